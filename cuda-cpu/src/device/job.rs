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
    /// The number on the stream. `None` for a free, which does not count as a submission.
    pub(crate) number: Option<u64>,
    /// The epoch of the submission (see [`lost`](super::lost)).
    pub(crate) epoch: u64,
    /// The queues that the job waits for, each with a number.
    pub(crate) after: SmallVec<[(Arc<Queue>, u64); 2]>,
    /// Empty for a graph, whose nodes have their own.
    pub(crate) uses: SmallVec<[Use; 2]>,
    /// Whether the job overwrites its whole write set.
    pub(crate) overwrites: bool,
}

/// Events that a job waits for.
pub(crate) struct Waits {
    after: SmallVec<[(Arc<Queue>, u64); 2]>,
    /// The address of promised memory that must be available.
    room: Option<u64>,
}

impl Waits {
    /// Whether all events have occurred. If not, `queue` is restarted when the next one occurs.
    pub(crate) fn check_or_wait(&self, queue: &Arc<Queue>, shared: &Shared) -> bool {
        self.after.iter().all(|(producer, number)| producer.check_or_follow(*number, queue))
            && self.room.is_none_or(|address| {
                shared.memory_waiters.check_or_wait(queue, || shared.memory.has_room_for(address))
            })
    }
}

impl Job {
    /// Creates a job that waits for no other queue and uses no memory that can be poisoned.
    pub(crate) fn new(work: Work, number: Option<u64>, epoch: u64) -> Self {
        let (after, uses) = Default::default();
        Self { work, number, epoch, after, uses, overwrites: true }
    }

    pub(crate) fn is_always_ready(&self) -> bool {
        self.after.is_empty() && !matches!(self.work, Work::Alloc { .. } | Work::Grow { .. })
    }

    pub(crate) fn waits(&self) -> Waits {
        let room = match self.work {
            Work::Alloc { address, .. } | Work::Grow { promise: address, .. } => Some(address),
            _ => None,
        };
        Waits { after: self.after.clone(), room }
    }

    /// Runs or skips the job, and reports a failure. On a lost device, and after a reset, only allocations and frees run.
    /// Never panics.
    pub(crate) fn run(self, stream: StreamId, shared: &Arc<Shared>) {
        let Job { work, number, epoch, uses, overwrites, .. } = self;
        let work = match work.run_memory_work(shared) {
            Ok(()) => return,
            Err(work) => work,
        };
        let launches = matches!(work, Work::Launch(_));
        if let Work::Graph(graph) = &work {
            if let Some((error, faulted)) = graph.run(shared, epoch) {
                let ticket = number.map(|number| Ticket { stream, number });
                Self::report(shared, ticket, epoch, error, faulted);
            }
            _ = contained(|| drop(work));
            return shared.memory_waiters.wake(shared);
        }
        let failed = match Self::skipped(shared, epoch, &uses, overwrites) {
            // Dropping the work can run code of the application, which can panic.
            Some(error) => contained(|| drop(work))
                .err()
                .map_or(Some((error, false)), |panic| Some((panic.into(), true))),
            None => {
                // Dropping the work can run code of the application, which can panic.
                let ran = contained(move || work.execute(shared));
                ran.unwrap_or_else(|panic| Err(panic.into())).err().map(|error| (error, true))
            }
        };
        if let Some((error, faulted)) = failed {
            shared.poison.spread(&uses, &error);
            let ticket = number.map(|number| Ticket { stream, number });
            Self::report(shared, ticket, epoch, error, faulted);
        }
        if launches {
            // The launch may have been the last one of an unloaded module, whose variables are freed then.
            shared.memory_waiters.wake(shared);
        }
    }

    /// Returns the error with which the job is skipped, if it is.
    fn skipped(shared: &Shared, epoch: u64, uses: &[Use], overwrites: bool) -> Option<Error> {
        let lost = shared.lost.check_at(epoch).err();
        lost.or_else(|| shared.poison.check(uses, overwrites))
    }

    /// Reports a failure. A fault loses the device.
    fn report(shared: &Shared, ticket: Option<Ticket>, epoch: u64, error: Error, is_fault: bool) {
        if let Some(ticket) = ticket {
            shared.notices.failed(ticket, error.clone());
        }
        if is_fault && shared.lost.set(error.clone(), epoch) {
            shared.notices.faulted(error);
        }
    }
}
