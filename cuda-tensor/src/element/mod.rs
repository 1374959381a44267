//! The element types of tensors, and the kernels that exist for each of them.

pub(super) mod dtype;
pub(super) mod kernels;
