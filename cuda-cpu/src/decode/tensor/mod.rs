//! Decodes matrix instructions: multiplications, and the moves of their fragments.

pub(super) mod matrix;
pub(super) mod mma;
pub(super) mod wmma;
