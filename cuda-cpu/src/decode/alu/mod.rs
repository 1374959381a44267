//! Decodes instructions on registers: arithmetic, comparisons, moves and selections.

pub(super) mod compare;
pub(super) mod lanewise;
pub(super) mod moves;
pub(super) mod select;
pub(super) mod video;
