//! The state of the engine: what exists, and which commands wait in the order of their stream: for bytes, for staging
//! memory, or for their predecessors.

use std::{collections::VecDeque, sync::Arc, time::Instant};

use cuda_core::{
    Error, Ticket,
    internals::IdMap,
    protocol::{AllocId, GraphId, HostBlock, PoolId, Region, StreamId, Work},
};
use cuda_lease::{session::SessionError, wire::TransferId};

use super::memory::{Objects, Pools};
use crate::worker::{
    graphs::{Contents, Graphs},
    modules::Modules,
    quota::Charge,
    reports::StepMemory,
    staging::Staged,
    telemetry::Sampler,
};

#[derive(Default)]
pub(super) struct State {
    pub(super) streams: IdMap<StreamId, Stream>,
    pub(super) newest_stream: Option<StreamId>,
    pub(super) modules: Modules,
    /// The uploads whose bytes have not all arrived.
    pub(super) uploads: IdMap<TransferId, Ticket>,
    pub(super) objects: Objects,
    pub(super) pools: Pools,
    pub(super) graphs: Graphs,
    pub(super) contents: Contents,
    pub(super) held: usize,
    /// The bytes of the frames of commands that are held.
    pub(super) held_bytes: usize,
    /// The bytes of the frame of the current command.
    pub(super) command_bytes: usize,
    /// Resets that were requested, and the queries of those that wait for earlier commands.
    pub(super) resets: u64,
    pub(super) waiting_resets: VecDeque<u64>,
    /// The latest request for a report that all work is complete.
    pub(super) drain: Option<u64>,
    /// Whether another thread waits for the trim of a pool.
    pub(super) awaits_trims: bool,
    pub(super) turn: Turn,
    /// Whether the session takes turns with others.
    pub(super) takes_turns: bool,
    pub(super) sampler: Sampler,
    /// Whether commands of a batch are taken.
    pub(super) is_in_batch: bool,
    /// Whether commands that are held may be able to run, of which the end of the batch takes care.
    pub(super) is_due: bool,
    /// How often the batch has made room for its own commands.
    pub(super) early_flushes: u32,
    /// Whether commands that are held wait for frees.
    pub(super) wants_frees: bool,
    pub(super) is_closed: bool,
}

/// Whether commands that are held may run.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    #[default]
    Has,
    /// They may not: another session may wait for the turn. When nothing runs on the device, they stall.
    GivesBack,
    /// They may run, after they have stalled. When nothing runs on the device and they wait, they stall again.
    GoesOn,
    /// They have stalled.
    Stalled,
    /// They have stalled, and the supervisor was asked for the turn.
    Wanted,
}

#[derive(Default)]
pub(super) struct Stream {
    /// The number of the last submission that arrived.
    pub(super) last: u64,
    pub(super) held: VecDeque<Item>,
    /// Whether its retirement has arrived. It may be held, behind other commands.
    pub(super) is_retired: bool,
    /// The largest number that the client waits for and that is held.
    pub(super) wanted: u64,
    /// The submissions that the backend takes before the backlog is read again.
    pub(super) credit: u64,
    /// The last number of the backend whose progress was requested for credit.
    pub(super) requested: u64,
}

impl State {
    /// The upload whose bytes are arriving.
    pub(super) fn upload(&mut self, transfer: TransferId) -> Option<&mut Upload> {
        let Ticket { stream, number } = *self.uploads.get(&transfer)?;
        let held = &mut self.streams.get_mut(&stream)?.held;
        // Each part that arrives looks for its upload, which may be behind many commands.
        let at = held.partition_point(|item| item.last < number);
        match &mut held.get_mut(at)?.task {
            Task::Upload(upload) if upload.brings(transfer) => Some(upload),
            _ => None,
        }
    }

    /// Checks that a new transfer does not have the id of one whose bytes are arriving: of an upload, or of the content
    /// of a graph command.
    pub(super) fn check_unused(&self, transfer: TransferId) -> Result<(), SessionError> {
        let in_use = self.uploads.contains_key(&transfer);
        if in_use || self.contents.expected(transfer).is_some() {
            return Err(violation(format!("the id of upload {} is already in use", transfer.0)));
        }
        Ok(())
    }

    /// The stream of a new command.
    ///
    /// # Errors
    /// It does not exist, or it is retired.
    pub(super) fn stream(&mut self, id: StreamId) -> Result<&mut Stream, SessionError> {
        self.streams
            .get_mut(&id)
            .filter(|stream| !stream.is_retired)
            .ok_or_else(|| violation(format!("stream {} does not exist", id.0)))
    }

    /// Checks and counts the next number of a stream.
    pub(super) fn expect(&mut self, ticket: Ticket) -> Result<(), SessionError> {
        let stream = self.stream(ticket.stream)?;
        if ticket.number != stream.last + 1 {
            let (got, expected) = (ticket.number, stream.last + 1);
            return Err(violation(format!(
                "submission {got} of stream {} is out of order; the next one is {expected}",
                ticket.stream.0
            )));
        }
        stream.last = ticket.number;
        Ok(())
    }

    /// Checks that tickets name submissions that have arrived. A removed stream has completed its submissions.
    pub(super) fn check(&self, after: &[Ticket], own: StreamId) -> Result<(), SessionError> {
        let has_arrived = |ticket: &Ticket| match self.streams.get(&ticket.stream) {
            Some(stream) => ticket.number <= stream.last,
            None => self.newest_stream.is_some_and(|newest| ticket.stream <= newest),
        };
        let future = after.iter().find(|ticket| ticket.stream == own || !has_arrived(ticket));
        future.map_or(Ok(()), |ticket| {
            let (number, stream) = (ticket.number, ticket.stream.0);
            Err(violation(format!(
                "`after` names submission {number} of stream {stream}; it may only name earlier submissions of other \
                 streams"
            )))
        })
    }
}

/// A command in the order of a stream.
pub(super) struct Item {
    /// The bytes of its frame.
    pub(super) bytes: usize,
    /// The number of resets before this command.
    pub(super) resets: u64,
    /// The arrival of the batch that brought it.
    pub(super) arrived: Instant,
    /// The number of the last submission of the stream when this command arrived: its own one, if it is a submission.
    pub(super) last: u64,
    /// Tickets of other streams that come first.
    pub(super) after: Vec<Ticket>,
    /// The number of tickets at the beginning of `after` that are known to be submitted. The engine does not look at them
    /// again: there may be thousands.
    pub(super) submitted: usize,
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
    /// Cancels submissions of the stream.
    Cancel {
        first: u64,
        last: u64,
        downloads: bool,
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
    fn brings(&self, transfer: TransferId) -> bool {
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
            Task::Free { .. } | Task::Cancel { .. } | Task::Retire => None,
        }
    }
}

/// A submission to the backend: a step of the client, or a part of one.
pub(super) struct BackendStep<'a> {
    /// The client's ticket of the step.
    pub(super) ticket: Ticket,
    /// The client's tickets of other streams that the step comes after.
    pub(super) after: &'a [Ticket],
    pub(super) work: &'a Work<'a>,
    /// The blocks that the work names.
    pub(super) host: &'a [Arc<HostBlock>],
    /// Whether the step has no more parts.
    pub(super) is_last: bool,
    /// The memory that is kept until the part is complete.
    pub(super) memory: StepMemory,
}

impl<'a> BackendStep<'a> {
    /// A whole step without host bytes.
    pub(super) fn whole(ticket: Ticket, after: &'a [Ticket], work: &'a Work<'a>) -> Self {
        Self { ticket, after, work, host: &[], is_last: true, memory: StepMemory::Nothing }
    }
}

/// Whether the backend takes work without waiting for a module.
pub(super) fn has_module(state: &State, work: &Work<'_>) -> bool {
    match work {
        Work::Launch(launch) => state.modules.can_launch(launch.function.module),
        _ => true,
    }
}

pub(super) fn violation(message: impl Into<String>) -> SessionError {
    SessionError::Command(message.into())
}
