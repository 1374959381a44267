//! Where an operation runs, and what it has submitted so far.
//!
//! An operation's contexts form a tree: the root has the stream that the policy chose; a fork's branches
//! get contexts of their own, which borrow a stream only when they first enqueue something. A context
//! belongs to one chain of steps, which run one after the other.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use cuda_core::{Device, Error, Result, Stream, Ticket};
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::context::{fork_streams::ForkStreams, spin::InFlight};

/// Where an operation runs: its device, its stream. Clones are the same context.
#[derive(Clone)]
pub struct ExecutionContext(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) place: Place,
    pub(super) run: Run,
    /// How long an allocation may wait for memory.
    pub(super) patience: Option<Duration>,
    /// The stream's count when this context last enqueued something; 0 if it never has.
    pub(super) last: AtomicU64,
}

pub(super) enum Place {
    Root(Root),
    Branch(Branch),
}

pub(super) struct Root {
    pub(super) stream: Stream,
    /// The streams of its forks.
    fork_streams: ForkStreams,
    /// If it runs blocking: what a step waits for.
    pub(super) blocked: Mutex<Blocked>,
    /// If it runs blocking: set once something in it waits for more than one stream.
    pub(super) by_wakers: OnceLock<InFlight>,
}

/// What a blocking thread and the steps that it polls tell each other.
#[derive(Default)]
pub(super) struct Blocked {
    pub(super) on: Option<(Stream, u64)>,
    /// The error of the wait for a submission.
    pub(super) failed: Option<(Ticket, Error)>,
}

pub(super) struct Branch {
    root: ExecutionContext,
    /// Borrowed when it is first needed.
    stream: OnceLock<Stream>,
    /// What comes before the next thing that this context enqueues.
    pub(super) after: Mutex<Events>,
    has_after: AtomicBool,
}

pub(super) type Events = SmallVec<[Ticket; 2]>;

/// How the operation is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Run {
    /// By a future: whatever waits is woken.
    Async,
    /// By a thread that blocks: it asks the device directly.
    Blocking,
    /// Submitted and left: nothing may wait.
    Detached,
}

impl ExecutionContext {
    /// The root context of an operation on `stream`.
    pub(crate) fn root(stream: Stream, run: Run) -> Self {
        Self::new(Place::Root(Root::new(stream)), run, None)
    }

    /// A context of the same operation, of which nobody knows yet; without a stream it borrows one.
    pub(super) fn branch(&self, stream: OnceLock<Stream>, after: Events) -> Self {
        let branch = Branch::new(self.root_context().clone(), stream, after);
        Self::new(Place::Branch(branch), self.0.run, self.0.patience)
    }

    pub(super) fn new(place: Place, run: Run, patience: Option<Duration>) -> Self {
        Self(Arc::new(Inner { place, run, patience, last: AtomicU64::new(0) }))
    }

    /// The device.
    pub fn device(&self) -> &Device {
        self.root_place().stream.device()
    }

    /// The stream, for a step that enqueues something now; see [`enqueue`](ExecutionContext::enqueue).
    #[inline]
    pub(super) fn stream(&self) -> Result<&Stream> {
        match &self.0.place {
            Place::Root(root) => Ok(&root.stream),
            Place::Branch(branch) => branch.stream(),
        }
    }

    /// The stream, if it has one.
    pub(super) fn known_stream(&self) -> Option<&Stream> {
        match &self.0.place {
            Place::Root(root) => Some(&root.stream),
            Place::Branch(branch) => branch.stream.get(),
        }
    }

    /// Enqueues something on this context's stream: the operation is not done before it has run.
    ///
    /// # Errors
    /// What `submit` says, or the device if there is no stream to be had.
    #[inline]
    pub fn enqueue<R>(&self, submit: impl FnOnce(&Stream) -> Result<R>) -> Result<R> {
        let stream = self.stream()?;
        let result = submit(stream);
        if let Err(Error::DeviceLost { .. }) = result {
            return result.map_err(|lost| self.own_fault().unwrap_or(lost));
        }
        self.0.last.fetch_max(stream.last().number, Ordering::AcqRel);
        result
    }

    /// The fault that took the device, if work of this operation was in flight: then it is the operation's own
    /// error, though it was met while more was submitted.
    #[cold]
    fn own_fault(&self) -> Option<Error> {
        let fault = |cx: &Self| cx.known_stream()?.fault();
        fault(self).or_else(|| fault(self.root_context()))
    }

    /// The last submission of this context, if there is one.
    fn last_ticket(&self) -> Option<Ticket> {
        Some(Ticket { stream: self.known_stream()?.id(), number: self.last()? })
    }

    /// The submissions of this context so far, for other operations to come after; none if there are none.
    pub(crate) fn snapshot(&self) -> Option<Stream> {
        self.last()?;
        self.known_stream().map(Stream::snapshot)
    }

    /// Contexts for `count` branches that run at the same time. The first goes on here; the others come
    /// after what this context has enqueued so far, and before nothing until [`join`](Self::join).
    pub(crate) fn fork(&self, count: usize) -> Result<Vec<ExecutionContext>> {
        let mut branches = Vec::with_capacity(count);
        branches.push(self.clone());
        if count > 1 {
            let mut after = match &self.0.place {
                Place::Root(_) => Events::new(),
                Place::Branch(branch) => branch.after.lock().clone(),
            };
            after.extend(self.last_ticket());
            branches.extend((1..count).map(|_| self.branch(OnceLock::new(), after.clone())));
        }
        Ok(branches)
    }

    /// Orders what this context enqueues from now on after all that its branches have enqueued, and counts
    /// their work as its own. Branches that share a stream are waited for together.
    pub(crate) fn join(&self, branches: &[ExecutionContext]) -> Result<()> {
        let joined = |branch: &&ExecutionContext| *branch != self && branch.last().is_some();
        let streams = || branches.iter().filter(joined).filter_map(Self::known_stream);
        if streams().next().is_none() {
            return Ok(());
        }
        self.enqueue(|stream| stream.join_streams(streams()).map(drop))
    }

    /// The number of the last submission, if there is one.
    pub(crate) fn last(&self) -> Option<u64> {
        Some(self.0.last.load(Ordering::Acquire)).filter(|number| *number > 0)
    }

    /// A context of its own on the same stream, for steps that several runs may drive by turns.
    pub(crate) fn separate_root(&self) -> Result<Self> {
        Ok(self.on_other_stream(self.stream()?.clone()))
    }

    /// Orders this context after the submissions of a handle, and counts them as its own work.
    pub(crate) fn join_stream(&self, other: &Stream) -> Result<()> {
        self.enqueue(|stream| stream.join_stream(other).map(drop))
    }

    pub(super) fn root_context(&self) -> &ExecutionContext {
        match &self.0.place {
            Place::Root(_) => self,
            Place::Branch(branch) => &branch.root,
        }
    }

    pub(super) fn root_place(&self) -> &Root {
        match &self.0.place {
            Place::Root(root) => root,
            // The root of a branch is no branch.
            Place::Branch(branch) => branch.root.root_place(),
        }
    }
}

impl Root {
    pub(super) fn new(stream: Stream) -> Self {
        let (fork_streams, blocked, by_wakers) = Default::default();
        Self { stream, fork_streams, blocked, by_wakers }
    }
}

impl Branch {
    pub(super) fn new(root: ExecutionContext, stream: OnceLock<Stream>, after: Events) -> Self {
        let has_after = AtomicBool::new(!after.is_empty());
        Self { root, stream, after: Mutex::new(after), has_after }
    }

    pub(super) fn stream(&self) -> Result<&Stream> {
        let stream = match self.stream.get() {
            Some(stream) => stream,
            None => {
                let root = self.root.root_place();
                let borrowed = root.fork_streams.next(&root.stream)?;
                self.stream.get_or_init(|| borrowed)
            }
        };
        if self.has_after.load(Ordering::Acquire) {
            let mut after = self.after.lock();
            if !after.is_empty() {
                stream.join(&after)?;
                after.clear();
            }
            // Under the lock, so that no clone of this context goes on before the waits are in.
            self.has_after.store(false, Ordering::Release);
        }
        Ok(stream)
    }
}

impl PartialEq for ExecutionContext {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl std::fmt::Debug for ExecutionContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ExecutionContext({} on {:?})", self.device().info().address, self.known_stream())
    }
}

#[cfg(all(test, feature = "cpu"))]
#[path = "execution_context_tests.rs"]
mod tests;
