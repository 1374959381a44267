//! Waiting inside an operation: for all that a part of it has submitted, or for more than one stream.

use std::{
    sync::{OnceLock, atomic::Ordering},
    task::{Context, Poll},
    time::Duration,
};

use cuda_core::{Error, Result, Stream, Ticket};

use crate::context::{
    execution_context::{Branch, Events, ExecutionContext, Place, Root, Run},
    spin::InFlight,
};

impl ExecutionContext {
    /// How waits end here.
    pub(crate) fn run(&self) -> Run {
        match self.0.run {
            Run::Blocking if self.root_place().by_wakers.get().is_some() => Run::Async,
            run => run,
        }
    }

    /// For steps that cannot do without a wait.
    ///
    /// # Errors
    /// [`Error::NeedsHostData`] where nothing may wait.
    pub(crate) fn may_wait(&self) -> Result<()> {
        match self.0.run {
            Run::Detached => Err(Error::NeedsHostData),
            Run::Async | Run::Blocking => Ok(()),
        }
    }

    /// From now on all that waits in this operation is woken, also where a thread blocks for it: it would
    /// wait for one stream and see neither another one nor the time.
    ///
    /// # Errors
    /// [`Error::NeedsHostData`] where nothing may wait.
    pub(crate) fn wait_by_wakers(&self, task: &Context<'_>) -> Result<()> {
        self.may_wait()?;
        if self.run() == Run::Blocking {
            self.root_place().by_wakers.get_or_init(InFlight::new);
            // What was polled before has left no waker.
            task.waker().wake_by_ref();
        }
        Ok(())
    }

    /// A context on the same stream, behind what this one has. Its work counts as this one's only after
    /// [`join_sibling`](Self::join_sibling): until then it can be given up.
    pub(crate) fn sibling(&self) -> Result<Self> {
        self.request_notice()?;
        self.on_this_stream(self.0.patience)
    }

    /// As [`sibling`](Self::sibling); allocations in it wait for memory, each at most that long.
    pub(crate) fn with_memory_wait(&self, max: Duration) -> Result<Self> {
        self.on_this_stream(Some(max))
    }

    fn on_this_stream(&self, patience: Option<Duration>) -> Result<Self> {
        let (root, stream) = (self.root_context().clone(), self.stream()?.clone());
        let branch = Branch::new(root, OnceLock::from(stream), Events::new());
        let sibling = Self::new(Place::Branch(branch), self.0.run, patience);
        sibling.0.last.store(self.0.last.load(Ordering::Acquire), Ordering::Release);
        Ok(sibling)
    }

    /// The context of a part with a root of its own: on another device, or one that several runs drive. Its work
    /// does not count as this one's.
    pub(crate) fn on_other_stream(&self, stream: Stream) -> Self {
        let root = Root::new(stream);
        Self::new(Place::Root(root), Run::Async, self.0.patience)
    }

    /// Takes the work of a context [`sibling`](Self::sibling) as this one's.
    pub(crate) fn join_sibling(&self, sibling: &Self) {
        self.0.last.fetch_max(sibling.0.last.load(Ordering::Acquire), Ordering::AcqRel);
        if let (Ok(stream), Some(other)) = (self.stream(), sibling.known_stream()) {
            // Both are on one stream, so this submits nothing and cannot fail.
            _ = stream.join_stream(other);
        }
    }

    /// Makes sure that the end of what this context has is told before what comes behind it has run.
    fn request_notice(&self) -> Result<()> {
        if let (Some(stream), Some(number)) = (self.known_stream(), self.last()) {
            drop(stream.waiter(number)?);
        }
        Ok(())
    }

    /// Blocks until submission `number` of this context has run.
    pub(crate) fn block_until(&self, number: u64) -> Result<()> {
        self.known_stream().map_or(Ok(()), |stream| stream.synchronize_to(number))
    }

    /// Leaves word for the blocking thread that a step waits for this submission.
    pub(super) fn block_on<T>(&self, stream: &Stream, number: u64) -> Poll<Result<T>> {
        self.root_place().blocked.lock().on = Some((stream.clone(), number));
        Poll::Pending
    }

    /// Blocks for what [`block_on`](Self::block_on) left, if that is all that anyone waits for; whether it did.
    ///
    /// If the wait fails, the step that waits is told, which decides what that means.
    pub(crate) fn synchronize(&self) -> bool {
        let blocked_on = self.root_place().blocked.lock().on.take();
        let Some((stream, number)) = blocked_on.filter(|_| self.run() == Run::Blocking) else {
            return false;
        };
        if let Err(error) = stream.synchronize_to(number) {
            let ticket = Ticket { stream: stream.id(), number };
            self.root_place().blocked.lock().failed = Some((ticket, error));
        }
        true
    }

    /// How the wait for this submission failed.
    pub(super) fn take_failure(&self, stream: &Stream, number: u64) -> Option<Result<()>> {
        let mut blocked = self.root_place().blocked.lock();
        let ticket = Ticket { stream: stream.id(), number };
        let (_, error) = blocked.failed.take_if(|(failed, _)| *failed == ticket)?;
        Some(Err(error))
    }
}
