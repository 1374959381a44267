//! A job: work with its number, its edges and its operands.

use std::sync::Arc;

use cuda_core::{
    Error, Ticket,
    protocol::{StreamId, Use},
};
use smallvec::SmallVec;

use super::{
    backend::Shared,
    queue::Queue,
    work::{Work, contained},
};

pub(crate) struct Job {
    pub(crate) work: Work,
    /// Its number on the stream; none for a free, which counts as no submission.
    pub(crate) number: Option<u64>,
    /// The epoch (see [`lost`](super::lost)) in which it was submitted.
    pub(crate) epoch: u64,
    /// Queues with the number that comes first.
    pub(crate) after: SmallVec<[(Arc<Queue>, u64); 2]>,
    pub(crate) uses: SmallVec<[Use; 2]>,
    /// Whether it replaces everything that it writes.
    pub(crate) overwrites: bool,
}

/// Events that a job waits for.
pub(crate) struct Waits {
    after: SmallVec<[(Arc<Queue>, u64); 2]>,
    /// The address of promised memory for which there has to be room.
    room: Option<u64>,
}

impl Waits {
    /// Whether all have come. If not, `queue` is started again when the next has.
    pub(crate) fn are_over(&self, queue: &Arc<Queue>, shared: &Shared) -> bool {
        self.after.iter().all(|(producer, number)| producer.has_passed(*number, queue))
            && self.room.is_none_or(|address| {
                shared.parked.has_room(queue, || shared.memory.has_room_for(address))
            })
    }
}

impl Job {
    /// A job that is not ordered after other queues and uses no memory that could be poisoned.
    pub(crate) fn new(work: Work, number: Option<u64>, epoch: u64) -> Self {
        let (after, uses) = Default::default();
        Self { work, number, epoch, after, uses, overwrites: true }
    }

    pub(crate) fn is_always_ready(&self) -> bool {
        self.after.is_empty() && !matches!(self.work, Work::Alloc { .. })
    }

    pub(crate) fn waits(&self) -> Waits {
        let room = match self.work {
            Work::Alloc { address, .. } => Some(address),
            _ => None,
        };
        Waits { after: self.after.clone(), room }
    }

    /// Runs or skips it, and reports if it fails. On a lost device, and after a reset, only the account of memory is
    /// kept. Never panics.
    pub(crate) fn run(self, stream: StreamId, shared: &Arc<Shared>) {
        let Job { work, number, epoch, uses, overwrites, .. } = self;
        let work = match work.keep_account(shared) {
            Ok(()) => return,
            Err(work) => work,
        };
        let launches = matches!(work, Work::Launch(_));
        let failed = match Self::skipped(shared, epoch, &uses, overwrites) {
            // The work is dropped in there too: that may run foreign code.
            Some(error) => contained(|| drop(work))
                .err()
                .map_or(Some((error, false)), |panic| Some((panic.into(), true))),
            None => {
                let ran = contained(|| work.carry_out(shared));
                ran.unwrap_or_else(|panic| Err(panic.into())).err().map(|error| (error, true))
            }
        };
        if let Some((error, faulted)) = failed {
            Self::fail(shared, number.map(|number| Ticket { stream, number }), &uses, &error);
            if faulted && shared.lost.set(error.clone(), epoch) {
                shared.notices.faulted(error);
            }
        }
        if launches {
            // It may have been the last of a module that was unloaded.
            shared.parked.wake(shared);
        }
    }

    /// The error with which a job is skipped.
    fn skipped(shared: &Shared, epoch: u64, uses: &[Use], overwrites: bool) -> Option<Error> {
        let lost = shared.lost.check_at(epoch).err();
        lost.or_else(|| shared.poison.check(uses, overwrites))
    }

    fn fail(shared: &Shared, ticket: Option<Ticket>, uses: &[Use], error: &Error) {
        shared.poison.spread(uses, error);
        if let Some(ticket) = ticket {
            shared.notices.failed(ticket, error.clone());
        }
    }
}
