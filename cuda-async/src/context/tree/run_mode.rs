//! `RunMode`: the kind of waits in a run.

/// The kind of waits in a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RunMode {
    /// A future runs the operation. Every wait registers a waker.
    Async,
    /// A thread runs the operation and blocks. It asks the device directly.
    Blocking,
    /// The operation is submitted only, or recorded. No step may wait.
    Detached,
}
