//! Errors of the library and of devices: [`error::Error`], the parts of its messages, faults of kernels, and the status
//! codes of nodes. This folder uses only other data of `protocol`; every folder and every backend returns its errors.

pub(super) mod error;
pub(super) mod fault;
pub(super) mod limit;
pub(super) mod misuse;
pub(super) mod other_error;
