//! The name of the operation that a program called, in errors about shapes.

use cuda_core::{Error, ExpectedShape, MemoryConflict, Result};

/// Adds the name of the called operation to an error about shapes.
pub(crate) fn of_operation<T>(called: &'static str, checked: Result<T>) -> Result<T> {
    checked.map_err(|error| match error {
        Error::Shape { operation, given, expected } => {
            Error::Shape { operation: format!("`{called}` of {operation}").into(), given, expected }
        }
        Error::OutOfRange { object, quantity, given, limit } => {
            Error::out_of_range(format!("`{called}` of {object}"), quantity, given, limit)
        }
        error => error,
    })
}

/// Returns the error for a tensor of shape `given`.
#[cold]
pub(crate) fn shape_error(given: &[usize], expected: ExpectedShape) -> Error {
    Error::Shape { operation: "a tensor".into(), given: given.into(), expected }
}

/// Returns the error for a target of `operation` whose elements are the same memory.
#[cold]
pub(crate) fn broadcast_target(operation: &'static str) -> Error {
    Error::memory(format!("`{operation}` of a tensor"), MemoryConflict::Overlapping)
}
