//! Resolved work, with addresses in place of names and with checked bounds, and the items that run it.

use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use cuda_core::protocol::{
    AllocId, Answer, HostBlock, LaunchAttributes, Pattern, Reply, StreamId, Use,
};
use cuda_core::{Access, Error, Result, Ticket};
use parking_lot::Mutex;
use smallvec::SmallVec;

use super::graph::Graph;
use crate::device::state::lost::contained;
use crate::device::state::modules::LoadedModule;
use crate::device::state::{DeviceState, errors};
use crate::{Launch, LaunchDims, LaunchError, Limits, Operand};

/// Resolved work.
pub(crate) enum Work {
    /// Only waits for other queues.
    Join,
    /// Allocates memory that was promised at submission, when it is available.
    Alloc {
        address: u64,
        bytes: u64,
    },
    /// Holds the place of an allocation that was made at once.
    Allocated,
    /// Frees memory, which counts as free since the submission.
    Free {
        id: AllocId,
        address: u64,
        bytes: u64,
    },
    /// Lets a reserved allocation use memory that was promised, when it is available.
    Grow {
        promise: u64,
        address: u64,
        bytes: u64,
        /// Behind a lock only because other items are shared between threads.
        answer: Box<Mutex<Answer>>,
    },
    Upload {
        from: Arc<HostBlock>,
        range: Range<usize>,
        to: u64,
    },
    Download {
        from: u64,
        to: Arc<HostBlock>,
        range: Range<usize>,
    },
    Copy {
        from: u64,
        to: u64,
        bytes: u64,
    },
    Fill {
        to: u64,
        pattern: Pattern,
        count: u64,
    },
    Timestamp {
        to: u64,
    },
    Launch(Box<Kernel>),
    /// Launches the nodes of a graph.
    Graph(Arc<Graph>),
    /// Repeats the nodes of a graph while a word of memory is not 0.
    Repeat {
        condition: u64,
        body: Arc<Graph>,
    },
}

/// A resolved launch.
pub(crate) struct Kernel {
    pub(crate) module: Arc<LoadedModule>,
    pub(crate) entry: usize,
    pub(crate) dims: LaunchDims,
    pub(crate) attributes: LaunchAttributes,
    pub(crate) params: SmallVec<[u8; 64]>,
    /// The operands, if the device checks writes to those that are only read.
    pub(crate) operands: Box<[Operand]>,
}

impl Work {
    /// Runs allocations and frees, which a lost device runs too. Returns whether device memory was freed, or as the
    /// error any other work.
    fn run_memory_work(self, device: &DeviceState) -> Result<bool, Self> {
        match self {
            Work::Allocated => Ok(false),
            Work::Alloc { address, bytes } => {
                if let Err(error) = device.memory.fulfill(address, bytes) {
                    let error = errors::no_host_memory(&error);
                    if device.lost.set(error.clone(), device.lost.epoch()) {
                        device.notices.faulted(error);
                    }
                }
                Ok(false)
            }
            Work::Free { id, address, bytes } => {
                device.memory.free_announced(address, bytes);
                device.poison.forget(id);
                Ok(true)
            }
            Work::Grow { address, bytes, answer, .. } => {
                device.memory.grow(address, bytes);
                // The answer can wake a task of the application, which can panic.
                _ = contained(|| answer.into_inner().give(Ok(Reply::Committed)));
                Ok(false)
            }
            other => Err(other),
        }
    }

    /// Whether the other work is of the same kind.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    /// Runs the work.
    pub(crate) fn execute(&self, device: &DeviceState) -> Result<()> {
        let memory = &device.memory;
        match self {
            Work::Upload { from, range, to } => {
                // SAFETY: the upload only reads the block, and the block is not written until the upload has run.
                let bytes = unsafe { from.shared_bytes() };
                let bytes = bytes.get(range.clone()).unwrap_or_default();
                memory.write(*to, bytes).map_err(errors::access)
            }
            Work::Download { from, to, range } => {
                // SAFETY: this is the backend, executing the download that names these bytes.
                let bytes = unsafe { to.shared_bytes_mut(range.clone()) };
                memory.read(*from, bytes.unwrap_or_default()).map_err(errors::access)
            }
            Work::Copy { from, to, bytes } => {
                memory.copy(*to, *from, *bytes).map_err(errors::access)
            }
            Work::Fill { to, pattern, count } => match pattern {
                Pattern::Byte(byte) => memory.fill(*to, &[*byte], *count),
                Pattern::Half(half) => memory.fill(*to, &half.to_ne_bytes(), *count),
                Pattern::Word(word) => memory.fill(*to, &word.to_ne_bytes(), *count),
            }
            .map_err(errors::access),
            Work::Timestamp { to } => {
                memory.write(*to, &nanoseconds().to_ne_bytes()).map_err(errors::access)
            }
            Work::Launch(kernel) => kernel.run(device),
            // `run_memory_work` has run allocations and frees, `QueueItem::run` runs graphs, and those run loops.
            Work::Join
            | Work::Allocated
            | Work::Alloc { .. }
            | Work::Grow { .. }
            | Work::Free { .. }
            | Work::Graph(_)
            | Work::Repeat { .. } => Ok(()),
        }
    }
}

/// Returns the nanoseconds since the first call, by a monotonic clock.
fn nanoseconds() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

impl Kernel {
    /// Makes the checks of a launch, at its submission.
    pub(crate) fn check(&self, device: &DeviceState) -> Result<()> {
        let checked =
            self.module.program().check(self.entry, &self.launch(device, &|_| {})).map(drop);
        checked.map_err(|invalid| self.refused(&LaunchError::Invalid(invalid)))
    }

    /// Whether it may have effects besides those on the memory of its operands.
    fn has_other_effects(&self) -> bool {
        self.module.program().entries().get(self.entry).is_none_or(|entry| entry.has_other_effects)
    }

    fn run(&self, device: &DeviceState) -> Result<()> {
        let print = |text: &str| device.notices.printed(text);
        let launch = self.launch(device, &print);
        let ran = self.module.program().launch(&device.memory, self.entry, &launch);
        ran.map_err(|error| self.refused(&error))
    }

    fn launch<'a>(
        &'a self,
        device: &'a DeviceState,
        print: &'a (dyn Fn(&str) + Sync),
    ) -> Launch<'a> {
        let options = &device.launch_options;
        Launch {
            operands: &self.operands,
            limits: Limits { instructions: options.budget, ..Limits::default() },
            pool: device.pool.as_ref(),
            schedule: options.schedule,
            checks: options.checks,
            profile: options.profile.as_deref(),
            cluster: self.attributes.cluster_dims(),
            cooperative: self.attributes.is_cooperative(),
            multiprocessors: options.multiprocessors,
            ..Launch::new(self.dims, &self.params, print)
        }
    }

    fn refused(&self, error: &LaunchError) -> Error {
        let name = self.module.program().entries().get(self.entry).map_or("", |entry| &entry.name);
        errors::launch(name, error)
    }
}

/// An item of a queue: work with its number and its operands.
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
    pub(crate) cancelled: Cancelled,
}

/// Whether the client waits for an item, and whether the item is skipped because nothing sees its results
/// (see [`dead_work`](super::dead_work)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Cancelled {
    /// The client waits for the item, or may still do so.
    #[default]
    No,
    /// No caller waits for the item.
    Unawaited,
    /// No caller waits for the item or reads the host memory that it writes.
    Unread,
    /// The item is skipped.
    Dead,
}

impl QueueItem {
    /// Creates an item that uses no memory that can be poisoned.
    pub(crate) fn new(work: Work, number: Option<u64>, epoch: u64) -> Self {
        let (uses, cancelled) = Default::default();
        Self { work, number, epoch, uses, overwrites: true, cancelled }
    }

    /// Records that no caller waits for the item, or reads the host memory that it writes if it is a download of
    /// `downloads`.
    pub(crate) fn cancel(&mut self, downloads: bool) {
        if self.cancelled != Cancelled::Dead {
            let cancelled = if downloads { Cancelled::Unread } else { self.cancelled };
            self.cancelled =
                if cancelled == Cancelled::No { Cancelled::Unawaited } else { cancelled };
        }
    }

    /// Whether the item could be skipped if no other work read the device memory that it writes.
    pub(crate) fn may_be_skipped(&self, device: &DeviceState) -> bool {
        match (&self.work, self.cancelled) {
            (_, Cancelled::No) => false,
            (Work::Upload { .. } | Work::Copy { .. } | Work::Fill { .. }, _) => true,
            (Work::Download { .. }, cancelled) => cancelled != Cancelled::Unawaited,
            // Checks report the accesses of a kernel. A kernel that states no write has effects that it does not state.
            (Work::Launch(kernel), _) => {
                let writes = self.uses.iter().any(|used| used.access == Access::Write);
                writes && !device.launch_options.checks.any() && !kernel.has_other_effects()
            }
            _ => false,
        }
    }

    /// Returns the address of promised memory that must be available before the item runs.
    pub(crate) fn promised(&self) -> Option<u64> {
        match self.work {
            Work::Alloc { address, .. } | Work::Grow { promise: address, .. } => Some(address),
            _ => None,
        }
    }

    /// Runs or skips the item, and reports a failure. On a lost device, and after a reset, only allocations and frees
    /// run. A dead item does nothing and cannot fail. Returns whether device memory may have been freed. Never panics.
    pub(crate) fn run(self, stream: StreamId, device: &DeviceState) -> bool {
        let QueueItem { work, number, epoch, uses, overwrites, cancelled } = self;
        let work = match work.run_memory_work(device) {
            Ok(freed) => return freed,
            Err(work) => work,
        };
        let launches = matches!(work, Work::Launch(_));
        if cancelled == Cancelled::Dead {
            if let Some(profile) = &device.launch_options.profile {
                profile.count_skipped();
            }
            // Dropping the work can run code of the application, which can panic.
            _ = contained(|| drop(work));
            return launches;
        }
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
