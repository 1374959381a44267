//! Decodes instructions on registers: arithmetic, comparisons, moves and selections.

pub(super) mod approximate;
pub(super) mod arithmetic;
pub(super) mod bits;
pub(super) mod compare;
pub(super) mod lanewise;
pub(super) mod moves;
pub(super) mod video;
