//! Errors of the library and of devices: [`error::Error`], the parts of its messages, faults of kernels, and the status
//! codes of nodes.

pub(super) mod error;
pub(super) mod fault;
pub(super) mod limit;
pub(super) mod misuse;
pub(super) mod other_error;
