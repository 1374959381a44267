//! Errors of the library and of devices: [`error::Error`], the parts of its messages, faults of kernels, and the status
//! codes of nodes.

mod conversions;
pub(super) mod error;
pub(super) mod fault;
pub(super) mod feature;
pub(super) mod limit;
pub(super) mod misuse;
mod names;
pub(super) mod other_error;
pub(super) mod shape;
pub(super) mod source_line;
pub(super) mod status;
mod status_of_error;
