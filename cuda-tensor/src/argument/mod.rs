//! Tensors as arguments of kernels: of those of this crate, and of those that a program declares.

#[allow(clippy::module_inception)] // the concept of the folder
pub(super) mod argument;
mod kernel_forms;
pub(super) mod partition;
