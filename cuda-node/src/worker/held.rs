//! Commands that wait in the order of their stream: for bytes, for staging memory, or for their predecessors.

use std::{collections::VecDeque, time::Instant};

use cuda_core::{
    Error, Ticket,
    protocol::{AllocId, GraphId, PoolId, Region, Work},
};
use cuda_lease::wire::TransferId;

use super::{quota::Charge, staging::Staged};

/// A command in the order of a stream.
pub(super) struct Item {
    /// The number of resets before this command.
    pub(super) resets: u64,
    /// The arrival of the batch that brought it.
    pub(super) arrived: Instant,
    /// Tickets of other streams that come first.
    pub(super) after: Vec<Ticket>,
    pub(super) task: Task,
}

pub(super) enum Task {
    /// A submission that the backend carries out as it is.
    Work {
        number: u64,
        work: Work<'static>,
    },
    Upload(Upload),
    Download(Download),
    /// A launch of a graph.
    Graph {
        number: u64,
        graph: GraphId,
        changes: Changes,
    },
    Allocate {
        number: u64,
        pool: PoolId,
        id: AllocId,
        bytes: u64,
    },
    Free {
        id: AllocId,
    },
    Retire,
}

/// The changes of a launch of a graph.
pub(super) enum Changes {
    None,
    /// Their content is here, and can be decoded.
    Here {
        content: Vec<u8>,
        _charge: Charge,
    },
    /// The transfer that brings their content.
    Arriving(TransferId),
    /// They were refused.
    Refused(Error),
}

/// A write of device memory whose bytes arrive in pieces.
pub(super) struct Upload {
    pub(super) number: u64,
    pub(super) to: Region,
    /// The transfer whose chunks bring the bytes. `None` if they came with the command.
    pub(super) transfer: Option<TransferId>,
    pub(super) bytes: u64,
    /// The bytes that were submitted.
    pub(super) submitted: u64,
    /// The bytes that have arrived.
    pub(super) arrived: u64,
    /// Pieces that have arrived and are not submitted, with their lengths.
    pub(super) pieces: VecDeque<(Staged, usize)>,
    /// Whether a piece was refused: the rest is discarded.
    pub(super) is_refused: bool,
    /// The error of bytes that could not be stored.
    pub(super) error: Option<Error>,
}

impl Upload {
    pub(super) fn new(number: u64, to: Region, transfer: Option<TransferId>, bytes: u64) -> Self {
        let (submitted, arrived, pieces, is_refused, error) = Default::default();
        Self { number, to, transfer, bytes, submitted, arrived, pieces, is_refused, error }
    }

    /// Whether the bytes of `transfer` belong to this upload. A later upload may use the id of a complete one.
    pub(super) fn brings(&self, transfer: TransferId) -> bool {
        self.transfer == Some(transfer) && self.arrived < self.bytes
    }
}

/// A read of device memory.
pub(super) struct Download {
    pub(super) number: u64,
    pub(super) from: Region,
    pub(super) transfer: TransferId,
    pub(super) bytes: u64,
    /// The bytes that were submitted.
    pub(super) submitted: u64,
}

impl Item {
    /// The client's number of this command. `None` for a command that takes none.
    pub(super) fn number(&self) -> Option<u64> {
        match &self.task {
            Task::Work { number, .. }
            | Task::Graph { number, .. }
            | Task::Allocate { number, .. } => Some(*number),
            Task::Upload(upload) => Some(upload.number),
            Task::Download(download) => Some(download.number),
            Task::Free { .. } | Task::Retire => None,
        }
    }
}
