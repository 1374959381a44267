//! The name of the operation that a program called, in errors about shapes.

use std::borrow::Cow;

use cuda_core::{Error, Result};

/// Adds the name of the called operation to an error about shapes.
pub(crate) fn of_operation<T>(operation: &'static str, checked: Result<T>) -> Result<T> {
    checked.map_err(|error| match error {
        Error::OutOfRange { detail, .. } => shape_error(operation, detail),
        error => error,
    })
}

/// Returns the error for shapes that do not fit `operation`.
#[cold]
pub(crate) fn shape_error(operation: &'static str, detail: String) -> Error {
    Error::OutOfRange { what: what(operation), detail }
}

/// Returns the error for a target of `operation` whose elements are the same memory.
#[cold]
pub(crate) fn broadcast_target(operation: &'static str) -> Error {
    let detail = "the target is broadcast: several of its elements are the same memory; copy it first, with `dup()`".into();
    Error::Misuse { what: what(operation), detail }
}

fn what(operation: &str) -> Cow<'static, str> {
    format!("`{operation}` of a tensor").into()
}
