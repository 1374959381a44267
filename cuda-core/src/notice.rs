//! The third thing that crosses the trait: a backend's answer to [`Command::Notify`](crate::Command).

use crate::{Result, StreamId};

/// "Everything that was enqueued on `stream` before the `Notify` with this token has run", or cannot.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Notice {
    /// The stream that was asked.
    pub stream: StreamId,
    /// The token of the `Notify`.
    pub token: u64,
    /// `Ok` only after the stream was asked for its status; else what it met.
    pub status: Result<()>,
}

/// Takes notices. Called on a thread of the backend's own, never on a driver's, and never while the
/// backend holds a lock: what it wakes may enqueue at once.
pub trait NoticeSink: Send + Sync {
    /// Takes one.
    fn notice(&self, notice: Notice);
}
