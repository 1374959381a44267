//! Decodes matrix instructions: multiplications, and the moves of their fragments.

pub(super) mod matrix;
pub(super) mod mma;
pub(super) mod sparse;
pub(super) mod wmma;
pub(super) mod wmma_layout;
pub(super) mod wmma_load_store;
