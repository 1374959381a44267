//! Decodes matrix instructions: multiplications, and the moves of their fragments.

pub(super) mod fragment;
pub(super) mod fragment_layout;
pub(super) mod matrix;
pub(super) mod mma;
pub(super) mod sparse;
pub(super) mod wmma;
