//! `RunMode`: how the waits of a run end.

/// How the waits of a run end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RunMode {
    /// A future runs the operation. Every wait registers a waker.
    Async,
    /// A thread runs the operation and blocks. It asks the device directly.
    Blocking,
    /// The operation is submitted only. No step may wait.
    Detached,
}
