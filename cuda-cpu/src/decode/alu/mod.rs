//! Decodes instructions on registers: arithmetic, comparisons, moves and selections.

pub(super) mod approximate;
pub(super) mod arithmetic;
pub(super) mod bits;
pub(super) mod by_type;
pub(super) mod compare;
pub(super) mod float;
pub(super) mod integer;
pub(super) mod lanewise;
pub(super) mod moves;
pub(super) mod select;
pub(super) mod video;
