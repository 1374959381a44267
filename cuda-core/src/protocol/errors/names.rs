//! Names of operations in errors.

use crate::protocol::{Error, Name};

impl Error {
    /// Returns the error for a `step` that waits for host data where no step may wait. `step` is its kind, such as
    /// `to_host`.
    #[cold]
    pub fn needs_host_data(step: &'static str) -> Self {
        Error::NeedsHostData { step, operation: None }
    }

    /// Replaces the step of [`Error::NeedsHostData`], for a caller that knows the step more exactly. Other errors stay
    /// as they are.
    #[cold]
    pub fn of_step(self, step: &'static str) -> Self {
        match self {
            Error::NeedsHostData { operation, .. } => Error::NeedsHostData { step, operation },
            other => other,
        }
    }

    /// Adds the name of the operation in which the error occurred. If the error already names an operation, that
    /// operation is inside this one: `attention` turns `read` into `attention/read`.
    ///
    /// [`Error::NeedsHostData`] stays that variant. Every other error becomes [`Error::InOperation`], whose
    /// [`root`](Self::root) is the error itself.
    ///
    /// ```
    /// use cuda_core::Error;
    /// let error = Error::OutOfHostMemory { requested: 8 }.in_operation("read").in_operation("attention");
    /// assert!(error.to_string().starts_with("operation \"attention/read\": out of host memory"));
    /// assert_eq!(error.root(), &Error::OutOfHostMemory { requested: 8 });
    /// ```
    #[cold]
    pub fn in_operation(self, name: &str) -> Self {
        match self {
            Error::NeedsHostData { step, operation } => {
                let operation = Some(joined(name, operation.as_deref()));
                Error::NeedsHostData { step, operation }
            }
            Error::InOperation { operation, cause } => {
                Error::InOperation { operation: joined(name, Some(&operation)), cause }
            }
            cause => Error::InOperation { operation: name.into(), cause: Box::new(cause) },
        }
    }

    /// Returns the error without the names of operations: the cause of an [`Error::InOperation`], or else this error.
    pub fn root(&self) -> &Error {
        match self {
            Error::InOperation { cause, .. } => cause.root(),
            error => error,
        }
    }

    /// Returns the names of the operations in which the error occurred, outermost first and separated by `/`, if it
    /// names any.
    pub fn operation(&self) -> Option<&str> {
        match self {
            Error::InOperation { operation, .. } => Some(operation),
            Error::NeedsHostData { operation, .. } => operation.as_deref(),
            _ => None,
        }
    }

    /// Replaces the [root](Self::root) and keeps the names.
    pub fn map_root(self, map: impl FnOnce(Error) -> Error) -> Self {
        match self {
            Error::InOperation { operation, cause } => {
                Error::InOperation { operation, cause: Box::new(cause.map_root(map)) }
            }
            error => map(error),
        }
    }
}

/// The name of an operation inside another one.
fn joined(outer: &str, inner: Option<&str>) -> Name {
    inner.map_or_else(|| outer.into(), |inner| format!("{outer}/{inner}").into())
}

/// The message of [`Error::NeedsHostData`]. An operation without a name is named by its step.
pub(super) fn needs_host_data(step: &str, operation: Option<&str>) -> String {
    let (name, detail) = match operation {
        Some(operation) => (operation, format!(" (step `{step}`)")),
        None => (step, String::new()),
    };
    let instead = match step {
        "settled" | "or_else" | "retry" | "timeout" | "race" | "timed" => {
            format!(
                "record the operation without it, and write it around `graph.launch()` ({step})"
            )
        }
        "script" => {
            "await only operations of this library, no host data and no other futures, or write the script around \
             `graph.launch()`"
                .into()
        }
        "load_ptx" | "compile" => {
            "load the module before, and record operations that have it".into()
        }
        "to_host_vec" | "item" => {
            format!("end the graph before it and write `graph.launch().{step}()`")
        }
        "to_host_vec_into" => {
            "end the graph before it and write `graph.launch().to_host_vec_into(vec)`".into()
        }
        _ => "end the graph before it and write `graph.launch().then(to_host)`".into(),
    };
    format!(
        "operation \"{name}\" waits for host data{detail}, so it can neither be submitted without waiting nor recorded; \
         inside a graph, {instead}; otherwise use `.await`, `.sync()` or `.sync_on(&stream)`"
    )
}

#[cfg(test)]
mod tests {
    use crate::protocol::*;

    #[test]
    fn names_nest_outermost_first() {
        let error = Error::AlreadyEnded.in_operation("c").in_operation("b").in_operation("a");
        assert_eq!(error.operation(), Some("a/b/c"));
        assert_eq!(error.root(), &Error::AlreadyEnded);
        let mapped = error.map_root(|_| Error::OutsideScript);
        assert_eq!((mapped.operation(), mapped.root()), (Some("a/b/c"), &Error::OutsideScript));
    }

    #[test]
    fn named_error_keeps_the_properties_of_its_root() {
        let lost = Error::DeviceLost { address: "cpu".into(), cause: "a trap".into() };
        assert!(lost.in_operation("a").is_sticky());
        let full =
            Error::OutOfMemory { requested: 1, free: 0, total: 2, pool: None }.in_operation("a");
        assert!(full.is_retryable() && full.status().is_some());
        let own = Error::other(std::fmt::Error).in_operation("a");
        assert_eq!(own.downcast_ref(), Some(&std::fmt::Error));
    }

    #[test]
    fn host_data_error_stays_its_variant_and_names_operation_and_step() {
        let error = Error::needs_host_data("to_host");
        assert!(error.to_string().starts_with("operation \"to_host\" waits for host data, so"));
        let error = error.of_step("read_back").in_operation("read").in_operation("attention");
        assert!(matches!(error, Error::NeedsHostData { .. }));
        let expected = "operation \"attention/read\" waits for host data (step `read_back`), so";
        assert!(error.to_string().starts_with(expected), "{error}");
        assert_eq!(Error::AlreadyEnded.of_step("x"), Error::AlreadyEnded);
    }
}
