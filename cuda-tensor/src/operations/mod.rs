//! The operations of tensors. Each file launches the kernels of one family.

pub(super) mod arg_reduce;
pub(super) mod copy;
mod create;
pub(super) mod elementwise;
pub(super) mod fourier;
pub(super) mod host;
mod loop_state;
pub(super) mod pairs;
pub(super) mod product;
pub(super) mod random;
pub(super) mod reduce;
pub(super) mod scalar;
pub(super) mod softmax;
pub(super) mod to_device;
