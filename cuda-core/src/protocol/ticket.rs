//! Tickets: the position of a submission.

use super::StreamId;

/// The position of a submission: its stream and its number.
///
/// A ticket is complete when every submission of its stream up to it has run or was skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The stream.
    pub stream: StreamId,
    /// The number of the submission on its stream, from 1.
    pub number: u64,
}

/// The effect of a submission on an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// The submission reads the operand. Several reads may run at the same time.
    Read,
    /// The submission writes the operand, and may read it.
    Write,
}
