//! Resolved work, with addresses in place of names and with checked bounds.

use std::{
    any::Any,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, OnceLock},
    time::Instant,
};

use cuda_core::{
    Error, Fault, FaultKind, Result,
    protocol::{AllocId, Answer, HostBlock, LaunchAttributes, Pattern, Reply},
    sync::discard_panic,
};
use parking_lot::Mutex;
use smallvec::SmallVec;

use super::{backend::Shared, graph::Graph, lost::RECOVERY, modules::LoadedModule, translate};
use crate::{Launch, LaunchDims, LaunchError, Limits};

pub(crate) enum Work {
    /// Only waits for other queues.
    Join,
    /// Allocates memory that was promised at submission, when it is available.
    Alloc {
        address: u64,
        bytes: u64,
    },
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
        /// Behind a lock only because other jobs are shared between threads.
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

pub(crate) struct Kernel {
    pub(crate) module: Arc<LoadedModule>,
    pub(crate) entry: usize,
    pub(crate) dims: LaunchDims,
    pub(crate) attributes: LaunchAttributes,
    pub(crate) params: SmallVec<[u8; 64]>,
}

impl Work {
    /// Runs allocations and frees, which a lost device runs too. Returns any other work.
    pub(crate) fn run_memory_work(self, shared: &Arc<Shared>) -> Result<(), Self> {
        match self {
            Work::Alloc { address, bytes } => {
                if let Err(error) = shared.memory.fulfil(address, bytes) {
                    let error = no_host_memory(&error);
                    if shared.lost.set(error.clone(), shared.lost.epoch()) {
                        shared.notices.faulted(error);
                    }
                }
                Ok(())
            }
            Work::Free { id, address, bytes } => {
                shared.memory.free_announced(address, bytes);
                shared.poison.forget(id);
                shared.memory_waiters.wake(shared);
                Ok(())
            }
            Work::Grow { address, bytes, answer, .. } => {
                shared.memory.grow(address, bytes);
                // The answer can wake a task of the application, which can panic.
                _ = contained(|| answer.into_inner().give(Ok(Reply::Committed)));
                Ok(())
            }
            other => Err(other),
        }
    }

    /// Whether the other work is of the same kind.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    /// Runs the work.
    pub(crate) fn execute(&self, shared: &Shared) -> Result<()> {
        let memory = &shared.memory;
        match self {
            Work::Upload { from, range, to } => {
                // SAFETY: the upload only reads the block, and the block is not written until the upload has run.
                let bytes = unsafe { from.shared_bytes() };
                let bytes = bytes.get(range.clone()).unwrap_or_default();
                memory.write(*to, bytes).map_err(translate::access)
            }
            Work::Download { from, to, range } => {
                // SAFETY: this is the backend, executing the download that names these bytes.
                let bytes = unsafe { to.shared_bytes_mut(range.clone()) };
                memory.read(*from, bytes.unwrap_or_default()).map_err(translate::access)
            }
            Work::Copy { from, to, bytes } => {
                memory.copy(*to, *from, *bytes).map_err(translate::access)
            }
            Work::Fill { to, pattern, count } => match pattern {
                Pattern::Byte(byte) => memory.fill(*to, &[*byte], *count),
                Pattern::Half(half) => memory.fill(*to, &half.to_ne_bytes(), *count),
                Pattern::Word(word) => memory.fill(*to, &word.to_ne_bytes(), *count),
            }
            .map_err(translate::access),
            Work::Timestamp { to } => {
                memory.write(*to, &nanoseconds().to_ne_bytes()).map_err(translate::access)
            }
            Work::Launch(kernel) => kernel.run(shared),
            // `run_memory_work` has run allocations and frees, `Job::run` runs graphs, and those run loops.
            Work::Join
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

/// The message of a panic.
pub(crate) struct Panicked(pub(crate) String);

impl From<Panicked> for Error {
    fn from(Panicked(said): Panicked) -> Self {
        let what = format!("the CPU device's interpreter panicked: {said}");
        Fault::new(FaultKind::Other, what).recovery(RECOVERY).into()
    }
}

/// Runs `f` and catches a panic. The data that `f` uses must be its own, or atomic, or behind locks and valid between any two
/// steps.
pub(crate) fn contained<T>(f: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|panic| {
        let said = message(&*panic);
        discard_panic(panic);
        Panicked(said)
    })
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("(no message)").to_owned()
}

impl Kernel {
    /// Makes the checks of a launch, at its submission.
    pub(crate) fn check(&self, shared: &Shared) -> Result<()> {
        let checked =
            self.module.program().check(self.entry, &self.launch(shared, &|_| {})).map(drop);
        checked.map_err(|invalid| self.refused(&LaunchError::Invalid(invalid)))
    }

    fn run(&self, shared: &Shared) -> Result<()> {
        let print = |text: &str| shared.notices.printed(text);
        let launch = self.launch(shared, &print);
        let ran = self.module.program().launch(&shared.memory, self.entry, &launch);
        ran.map_err(|error| self.refused(&error))
    }

    fn launch<'a>(&'a self, shared: &'a Shared, print: &'a (dyn Fn(&str) + Sync)) -> Launch<'a> {
        let options = &shared.launch_options;
        Launch {
            limits: Limits { instructions: options.budget, ..Limits::default() },
            pool: shared.pool.as_ref(),
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
        translate::launch(name, error)
    }
}

/// Returns the error for an allocation within the device's capacity that the host has no memory for.
fn no_host_memory(error: &crate::OutOfMemory) -> Error {
    let what = format!(
        "the host is out of memory: an allocation of device memory needs {} bytes",
        error.requested
    );
    Fault::new(FaultKind::Other, what).recovery(RECOVERY).into()
}

/// Returns the error for a copy whose host block is missing from the submission.
pub(crate) fn missing_block() -> Error {
    Error::OutOfRange {
        what: "a copy".into(),
        detail: "the submission does not contain its host block".into(),
    }
}
