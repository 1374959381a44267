//! Errors of the library and of devices: [`error::Error`], faults of kernels, and the status codes of nodes.

pub(super) mod error;
pub(super) mod fault;
mod names;
pub(super) mod other_error;
pub(super) mod source_line;
pub(super) mod status;
mod status_of_error;
