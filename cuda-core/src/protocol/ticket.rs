//! Tickets: the position of a submission.

use super::StreamId;

/// The `number`-th submission of a stream.
///
/// A ticket is complete when every submission of its stream up to it has run or was skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The stream.
    pub stream: StreamId,
    /// Counted from 1.
    pub number: u64,
}

/// The effect of a submission on an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// Reads it. Several reads may run at the same time.
    Read,
    /// Writes it, or reads and writes it.
    Write,
}
