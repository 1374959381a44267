//! An item: work with its number and its operands.

use cuda_core::{
    Error, Ticket,
    protocol::{StreamId, Use},
};
use smallvec::SmallVec;

use super::work::Work;
use crate::device::state::{device_state::DeviceState, panics::contained};

pub(crate) struct QueueItem {
    pub(crate) work: Work,
    /// The number on the stream. `None` for a free, which does not count as a submission.
    pub(crate) number: Option<u64>,
    /// The epoch of the submission (see [`lost`](crate::device::state::lost)).
    pub(crate) epoch: u64,
    /// Empty for a graph, whose nodes have their own.
    pub(crate) uses: SmallVec<[Use; 2]>,
    /// Whether the item overwrites its whole write set.
    pub(crate) overwrites: bool,
}

impl QueueItem {
    /// Creates an item that uses no memory that can be poisoned.
    pub(crate) fn new(work: Work, number: Option<u64>, epoch: u64) -> Self {
        Self { work, number, epoch, uses: SmallVec::new(), overwrites: true }
    }

    /// Returns the address of promised memory that must be available before the item runs.
    pub(crate) fn promised(&self) -> Option<u64> {
        match self.work {
            Work::Alloc { address, .. } | Work::Grow { promise: address, .. } => Some(address),
            _ => None,
        }
    }

    /// Runs or skips the item, and reports a failure. On a lost device, and after a reset, only allocations and frees run.
    /// Returns whether device memory may have been freed. Never panics.
    pub(crate) fn run(self, stream: StreamId, device: &DeviceState) -> bool {
        let QueueItem { work, number, epoch, uses, overwrites } = self;
        let work = match work.run_memory_work(device) {
            Ok(freed) => return freed,
            Err(work) => work,
        };
        let launches = matches!(work, Work::Launch(_));
        if let Work::Graph(graph) = &work {
            if let Some((error, faulted)) = graph.run(device, epoch) {
                let ticket = number.map(|number| Ticket { stream, number });
                Self::report(device, ticket, epoch, error, faulted);
            }
            _ = contained(|| drop(work));
            return true;
        }
        let failed = match Self::skipped(device, epoch, &uses, overwrites) {
            // Dropping the work can run code of the application, which can panic.
            Some(error) => contained(|| drop(work))
                .err()
                .map_or(Some((error, false)), |panic| Some((panic.into(), true))),
            None => {
                // Dropping the work can run code of the application, which can panic.
                let ran = contained(move || work.execute(device));
                ran.unwrap_or_else(|panic| Err(panic.into())).err().map(|error| (error, true))
            }
        };
        if let Some((error, faulted)) = failed {
            device.poison.spread(&uses, &error);
            let ticket = number.map(|number| Ticket { stream, number });
            Self::report(device, ticket, epoch, error, faulted);
        }
        // A launch may have been the last one of an unloaded module, whose variables are freed then.
        launches
    }

    /// Returns the error with which the item is skipped, if it is.
    fn skipped(device: &DeviceState, epoch: u64, uses: &[Use], overwrites: bool) -> Option<Error> {
        let lost = device.lost.check_at(epoch).err();
        lost.or_else(|| device.poison.check(uses, overwrites))
    }

    /// Reports a failure. A fault loses the device.
    fn report(
        device: &DeviceState,
        ticket: Option<Ticket>,
        epoch: u64,
        error: Error,
        is_fault: bool,
    ) {
        if let Some(ticket) = ticket {
            device.notices.failed(ticket, error.clone());
        }
        if is_fault && device.lost.set(error.clone(), epoch) {
            device.notices.faulted(error);
        }
    }
}
