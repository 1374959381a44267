//! The operations of tensors. Each file launches the kernels of one family.

pub(super) mod arg_reduce;
pub(super) mod copy;
mod create;
pub(super) mod elementwise;
pub(super) mod fourier;
pub(super) mod loops;
pub(super) mod product;
pub(super) mod random;
pub(super) mod reduce;
pub(super) mod softmax;
pub(super) mod transfer;
