//! `ExecutionContext`: the stream and the submissions of a part of a run.
//!
//! A context belongs to one sequence of steps. It is either an inline root or one of the handles of a shared context.
//!
//! # Inline roots
//! The root context of a run is stored in the run itself and not behind an `Arc`. A run keeps it on its stack or in its
//! future. Most runs never clone it, so most runs allocate nothing. Anything that needs more than the stream and the
//! last submission promotes the root to a [`SharedContext`] behind an `Arc` first. After a promotion, both copies of
//! `last` count: [`InlineRoot::last`] is the larger one.
//!
//! The cells make this type, and with it [`ExecutionContext`](crate::context::ExecutionContext), `Send` but not `Sync`.
//! A thread that needs the context of another thread gets a clone, and clones count submissions atomically.

use std::{
    cell::{Cell, OnceCell},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use crossbeam_utils::CachePadded;
use cuda_core::{
    Device, Error, MemoryPool, Result, Stream, Ticket,
    internals::{
        RecordedName, Window, allocating_in, cancel, lend_branch, name_recorded, request_report,
        sync::{SHARDS, Sharded, own_shard},
    },
};
use parking_lot::Mutex;
use smallvec::SmallVec;

/// The context in which an operation runs: its device and its stream. Clones are the same context.
///
/// A context is `Send` and not `Sync`: a thread that needs the context of another thread gets a clone.
pub struct ExecutionContext(Repr);

enum Repr {
    Inline(InlineRoot),
    Shared(Arc<SharedContext>),
}

impl ExecutionContext {
    /// The root context of a run on `stream`.
    #[inline]
    pub(crate) const fn root(stream: Stream, mode: RunMode) -> Self {
        Self(Repr::Inline(InlineRoot::new(stream, mode)))
    }

    /// Makes a context from `shared`, for steps inside the steps of this context.
    pub(super) fn derive(&self, mut shared: SharedContext) -> Self {
        *shared.nested_boxes.get_mut() = self.nested_boxes().load(Ordering::Relaxed);
        Self(Repr::Shared(Arc::new(shared)))
    }

    /// The number of boxes whose steps contain the steps that use this context now. One thread at a time polls the
    /// steps of a context, so plain loads and stores count.
    pub(crate) fn nested_boxes(&self) -> &AtomicUsize {
        match &self.0 {
            Repr::Inline(root) => &root.nested_boxes,
            Repr::Shared(shared) => &shared.nested_boxes,
        }
    }

    /// Returns the device.
    pub fn device(&self) -> &Device {
        match &self.0 {
            Repr::Inline(root) => root.stream().device(),
            Repr::Shared(shared) => shared.root_data().stream.device(),
        }
    }

    /// Returns whether the run is recorded into a graph instead of submitted.
    pub fn is_recording(&self) -> bool {
        match &self.0 {
            Repr::Inline(root) => root.stream().is_recording(),
            Repr::Shared(shared) => shared.root_data().stream.is_recording(),
        }
    }

    /// Names the work that a recorded run takes until the guard is dropped. Returns `None` in other runs.
    #[inline]
    pub(crate) fn name_recorded(&self, name: &str) -> Option<RecordedName> {
        match &self.0 {
            Repr::Inline(root) => name_recorded(root.stream(), name),
            Repr::Shared(shared) => name_recorded(&shared.root_data().stream, name),
        }
    }

    /// Enqueues work on this context's stream. The operation is complete only after that work is complete.
    ///
    /// # Errors
    /// The error of `submit`, or of the device if it has no stream to lend.
    #[inline(always)] // so that a launch is submitted without copies of its values
    pub fn enqueue<R>(&self, submit: impl FnOnce(&Stream) -> Result<R>) -> Result<R> {
        let stream = self.stream()?;
        let result = submit(stream);
        if let Err(lost @ (Error::DeviceLost { .. } | Error::Disconnected { .. })) = result {
            return Err(own_error(self, lost));
        }
        self.note(stream.last().number);
        result
    }

    /// The stream, for a step that enqueues something now; see [`enqueue`](ExecutionContext::enqueue).
    #[inline]
    pub(in crate::context) fn stream(&self) -> Result<&Stream> {
        match &self.0 {
            Repr::Inline(root) => Ok(root.stream()),
            Repr::Shared(shared) => shared.stream().map_err(|error| own_error(self, error)),
        }
    }

    /// The stream, if this context has one.
    #[inline]
    pub(in crate::context) fn known_stream(&self) -> Option<&Stream> {
        match &self.0 {
            Repr::Inline(root) => Some(root.stream()),
            Repr::Shared(shared) => shared.known_stream(),
        }
    }

    /// The number of the last submission, if there is one.
    #[inline]
    pub(crate) fn last(&self) -> Option<u64> {
        let last = match &self.0 {
            Repr::Inline(root) => root.last(),
            Repr::Shared(shared) => shared.last(),
        };
        Some(last).filter(|number| *number > 0)
    }

    /// Calls `submit`, whose work the device may launch together: see [`Window`]. If `submit` fails or panics, no caller
    /// waits for the work, and the device may discard what it still holds.
    #[inline]
    pub(crate) fn in_window<R>(&self, submit: impl FnOnce() -> Result<R>) -> Result<R> {
        if let Some(stream) = self.known_stream() {
            Window(stream).open();
        }
        let mut window = OpenWindow { cx: self, has_failed: true };
        let result = submit();
        window.has_failed = result.is_err();
        result
    }

    /// Counts submission `number` as this context's own.
    #[inline]
    pub(super) fn note(&self, number: u64) {
        match &self.0 {
            Repr::Inline(root) => root.note(number),
            Repr::Shared(shared) => shared.note(number),
        }
    }

    /// A handle that counts the submissions of this context so far. Returns `None` if there are none.
    pub(crate) fn snapshot(&self) -> Option<Stream> {
        self.last()?;
        self.known_stream().map(Stream::snapshot)
    }

    /// The kind of waits in this run now: a blocking run may have changed to waits by wakers.
    #[inline]
    pub(crate) fn mode(&self) -> RunMode {
        match &self.0 {
            Repr::Inline(root) => root.known_shared().map_or(root.mode, |shared| shared.mode()),
            Repr::Shared(shared) => shared.mode(),
        }
    }

    /// The rules for the allocations of this context.
    pub(in crate::context) fn allocation_rules(&self) -> AllocationRules {
        self.known_shared().map(|shared| shared.allocation_rules.clone()).unwrap_or_default()
    }

    /// The shared form of this context. Promotes an inline root.
    pub(in crate::context) fn shared(&self) -> &Arc<SharedContext> {
        match &self.0 {
            Repr::Inline(root) => root.shared(),
            Repr::Shared(shared) => shared,
        }
    }

    /// The shared form of this context, if it has one.
    pub(in crate::context) fn known_shared(&self) -> Option<&Arc<SharedContext>> {
        match &self.0 {
            Repr::Inline(root) => root.known_shared(),
            Repr::Shared(shared) => Some(shared),
        }
    }

    /// Requests a report of the work so far, so that its completion is known before later work is complete.
    pub(crate) fn request_report(&self) -> Result<()> {
        match (self.known_stream(), self.last()) {
            (Some(stream), Some(number)) => request_report(stream, number),
            _ => Ok(()),
        }
    }
}

impl Clone for ExecutionContext {
    fn clone(&self) -> Self {
        Self(Repr::Shared(self.shared().clone()))
    }
}

impl PartialEq for ExecutionContext {
    fn eq(&self, other: &Self) -> bool {
        let both = self.known_shared().zip(other.known_shared());
        std::ptr::eq(self, other) || both.is_some_and(|(this, other)| Arc::ptr_eq(this, other))
    }
}

impl std::fmt::Debug for ExecutionContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ExecutionContext({} on {:?})", self.device().info().address, self.known_stream())
    }
}

/// The open window of a context. Closed when it is dropped, also by unwinding.
struct OpenWindow<'a> {
    cx: &'a ExecutionContext,
    has_failed: bool,
}

impl Drop for OpenWindow<'_> {
    #[inline]
    fn drop(&mut self) {
        // A caller may wait for the stream of a detached run.
        let close = match self.has_failed && self.cx.mode() != RunMode::Detached {
            false => Window::close,
            true => Window::discard,
        };
        // A context that was promoted meanwhile has two handles with a window. The shared one also counts the
        // submissions of the other one, so it comes first.
        let own = match &self.cx.0 {
            Repr::Inline(root) => Some(&root.stream),
            Repr::Shared(_) => None,
        };
        self.cx.known_stream().into_iter().chain(own).for_each(|stream| close(&Window(stream)));
    }
}

/// Returns the error of an operation whose submission was refused because the device is lost. If earlier work of the
/// operation was in flight, that is the fault which lost the device, and not the `DeviceLost` of the submission. If any
/// work of the operation was submitted to a node that is disconnected, the operation may have run.
#[cold]
fn own_error(cx: &ExecutionContext, error: Error) -> Error {
    let root = SharedContext::root_of(cx.shared()).clone();
    let has_submitted = root.last() > 0 || root.root_data().has_branch_work.load(Ordering::Relaxed);
    let error = error.map_root(|error| match error {
        Error::Disconnected { address, cause, may_have_run } => {
            Error::Disconnected { address, cause, may_have_run: may_have_run || has_submitted }
        }
        error => error,
    });
    fault_of(&[cx.clone(), ExecutionContext(Repr::Shared(root))], error)
}

/// Returns the fault that lost the device, if `error` reports the loss and work of any of these contexts was in flight.
#[cold]
pub(super) fn fault_of(contexts: &[ExecutionContext], error: Error) -> Error {
    let fault = || contexts.iter().find_map(|cx| cx.known_stream()?.fault());
    error.map_root(|error| match error {
        Error::DeviceLost { .. } => fault().unwrap_or(error),
        error => error,
    })
}

/// The root context of a run until its promotion: the stream and the last submission.
pub(super) struct InlineRoot {
    stream: Stream,
    pub(super) mode: RunMode,
    /// The number of the last submission that was made through this context, or 0.
    last: Cell<u64>,
    nested_boxes: AtomicUsize,
    shared: OnceCell<Arc<SharedContext>>,
}

impl Drop for InlineRoot {
    /// Cancels the submissions that are not complete: no other part of the program waits for them.
    #[inline]
    fn drop(&mut self) {
        if self.mode != RunMode::Detached {
            cancel(&self.stream);
        }
    }
}

impl InlineRoot {
    #[inline]
    pub(super) const fn new(stream: Stream, mode: RunMode) -> Self {
        let (last, nested_boxes) = (Cell::new(0), AtomicUsize::new(0));
        Self { stream, mode, last, nested_boxes, shared: OnceCell::new() }
    }

    /// The handle that counts the submissions of this run: after a promotion, the shared one.
    #[inline]
    pub(super) fn stream(&self) -> &Stream {
        match self.shared.get() {
            None => &self.stream,
            Some(shared) => shared.known_stream().unwrap_or(&self.stream),
        }
    }

    #[inline]
    pub(super) fn note(&self, number: u64) {
        self.last.set(self.last.get().max(number));
        if let Some(shared) = self.shared.get() {
            shared.note(number);
        }
    }

    #[inline]
    pub(super) fn last(&self) -> u64 {
        let last = self.last.get();
        self.shared.get().map_or(last, |shared| last.max(shared.last()))
    }

    /// The shared context, if this one was promoted.
    #[inline]
    pub(super) fn known_shared(&self) -> Option<&Arc<SharedContext>> {
        self.shared.get()
    }

    /// Promotes this context, unless that has happened: makes the shared context, which counts the submissions from now
    /// on.
    pub(super) fn shared(&self) -> &Arc<SharedContext> {
        self.shared.get_or_init(|| {
            let (stream, last) = (self.stream.snapshot(), self.last.get());
            // The new handle goes on with the window of this one.
            if Window(&self.stream).is_open() {
                Window(&stream).open();
            }
            let mut shared =
                SharedContext::root(stream, self.mode, AllocationRules::default(), last);
            *shared.nested_boxes.get_mut() = self.nested_boxes.load(Ordering::Relaxed);
            Arc::new(shared)
        })
    }
}

/// The data of a context behind an `Arc`. Its kind holds the data that only a root or only a child has.
pub(in crate::context) struct SharedContext {
    pub(super) kind: ContextKind,
    mode: RunMode,
    pub(super) allocation_rules: AllocationRules,
    /// The number of the last submission that this context has made, or 0.
    last: AtomicU64,
    /// See [`ExecutionContext::nested_boxes`](crate::context::ExecutionContext::nested_boxes).
    pub(super) nested_boxes: AtomicUsize,
    /// Whether another context, or a handle of the stream, counts the submissions. Then the end of this context does not
    /// cancel them.
    is_counted: AtomicBool,
}

pub(super) enum ContextKind {
    Root(RootData),
    Child(ChildData),
}

/// The data of a root, which all contexts of its tree use.
pub(in crate::context) struct RootData {
    pub(super) stream: Stream,
    /// The streams of the forks of this run.
    fork_streams: ForkStreams,
    /// Whether a context of the tree that is not the root has submitted work.
    has_branch_work: AtomicBool,
    /// The submission that a blocking run waits for.
    pub(in crate::context) blocked: Mutex<Blocked>,
    /// Set in a blocking run once one of its steps waits for more than one stream.
    pub(in crate::context) by_wakers: OnceLock<RunInFlight>,
    /// The `shared` operation whose steps this root belongs to.
    pub(super) part_of: Option<usize>,
    /// The context whose steps poll the steps of this root now.
    pub(super) poller: Mutex<Option<Arc<SharedContext>>>,
}

/// The submission that the thread of a blocking run must wait for, and the failure of that wait.
#[derive(Default)]
pub(in crate::context) struct Blocked {
    pub(in crate::context) on: Option<(Stream, u64)>,
    pub(in crate::context) failed: Option<(Ticket, Error)>,
}

/// The data of a context that is not a root: a branch of a fork, or a sibling.
pub(super) struct ChildData {
    root: Arc<SharedContext>,
    /// The stream of a branch is borrowed when the branch first enqueues something.
    stream: OnceLock<Stream>,
    /// The tickets that come before the next work of this context.
    pub(super) after: Mutex<After>,
    has_after: AtomicBool,
}

pub(super) type After = SmallVec<[Ticket; 2]>;

impl SharedContext {
    fn new(kind: ContextKind, mode: RunMode, allocation_rules: AllocationRules, last: u64) -> Self {
        let (last, nested_boxes) = (AtomicU64::new(last), AtomicUsize::new(0));
        let is_counted = AtomicBool::new(false);
        Self { kind, mode, allocation_rules, last, nested_boxes, is_counted }
    }

    /// Records that the submissions of this context count as those of another context, or of a handle of the stream.
    pub(super) fn set_counted(&self) {
        self.is_counted.store(true, Ordering::Release);
    }

    /// The root context of a run on `stream`, whose last submission so far is `last`.
    pub(super) fn root(
        stream: Stream,
        mode: RunMode,
        allocation_rules: AllocationRules,
        last: u64,
    ) -> Self {
        let kind = ContextKind::Root(RootData {
            stream,
            fork_streams: ForkStreams::default(),
            has_branch_work: AtomicBool::new(false),
            blocked: Mutex::default(),
            by_wakers: OnceLock::new(),
            part_of: None,
            poller: Mutex::default(),
        });
        Self::new(kind, mode, allocation_rules, last)
    }

    /// A context of the same run. Without a stream it borrows one at its first use.
    pub(super) fn child(
        self: &Arc<Self>,
        stream: OnceLock<Stream>,
        after: After,
        allocation_rules: AllocationRules,
    ) -> Self {
        let root = Self::root_of(self).clone();
        let has_after = AtomicBool::new(!after.is_empty());
        let kind =
            ContextKind::Child(ChildData { root, stream, after: Mutex::new(after), has_after });
        Self::new(kind, self.mode, allocation_rules, 0)
    }

    /// The root of this context's run.
    pub(super) fn root_of(this: &Arc<Self>) -> &Arc<Self> {
        match &this.kind {
            ContextKind::Root(_) => this,
            ContextKind::Child(child) => &child.root,
        }
    }

    /// Makes this root a part of a `shared` operation.
    pub(super) fn with_part_of(mut self, id: usize) -> Self {
        if let ContextKind::Root(root) = &mut self.kind {
            root.part_of = Some(id);
        }
        self
    }

    /// The stream, for a step that enqueues something now.
    pub(super) fn stream(&self) -> Result<&Stream> {
        match &self.kind {
            ContextKind::Root(root) => Ok(&root.stream),
            ContextKind::Child(child) => child.stream(&self.allocation_rules),
        }
    }

    /// The stream, if this context has one.
    pub(super) fn known_stream(&self) -> Option<&Stream> {
        match &self.kind {
            ContextKind::Root(root) => Some(&root.stream),
            ContextKind::Child(child) => child.stream.get(),
        }
    }

    /// The data of the root of this context's run.
    pub(in crate::context) fn root_data(&self) -> &RootData {
        match &self.kind {
            ContextKind::Root(root) => root,
            // The root of a child is never a child.
            ContextKind::Child(child) => child.root.root_data(),
        }
    }

    pub(super) fn mode(&self) -> RunMode {
        match self.mode {
            RunMode::Blocking if self.root_data().by_wakers.get().is_some() => RunMode::Async,
            mode => mode,
        }
    }

    pub(super) fn note(&self, number: u64) {
        self.last.fetch_max(number, Ordering::AcqRel);
        if let ContextKind::Child(child) = &self.kind
            && number > 0
        {
            let has_branch_work = &child.root.root_data().has_branch_work;
            // A write would take the cache line from the threads of the other branches.
            if !has_branch_work.load(Ordering::Relaxed) {
                has_branch_work.store(true, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }
}

impl Drop for SharedContext {
    /// Cancels the submissions that are not complete, unless another context waits for them.
    fn drop(&mut self) {
        let is_awaited = *self.is_counted.get_mut() || self.mode == RunMode::Detached;
        if let Some(stream) = self.known_stream().filter(|_| !is_awaited) {
            cancel(stream);
        }
    }
}

impl ChildData {
    fn stream(&self, rules: &AllocationRules) -> Result<&Stream> {
        let stream = match self.stream.get() {
            Some(stream) => stream,
            None => {
                let root = self.root.root_data();
                let borrowed = rules.applied_to(root.fork_streams.next(&root.stream)?);
                self.stream.get_or_init(|| borrowed)
            }
        };
        if self.has_after.load(Ordering::Acquire) {
            let mut after = self.after.lock();
            if !after.is_empty() {
                stream.join(&after)?;
                after.clear();
            }
            // Under the lock, so that no clone of this context enqueues before the edges are in.
            self.has_after.store(false, Ordering::Release);
        }
        Ok(stream)
    }
}

/// The pool of a context's allocations, and the time for which they wait for memory. Derived contexts inherit both.
#[derive(Clone, Default)]
pub(in crate::context) struct AllocationRules {
    /// The time for which an allocation may wait for memory.
    pub(in crate::context) wait: Option<Duration>,
    /// The pool of the allocations. `None` if the stream decides, which is the default pool unless its handle has one.
    pub(super) pool: Option<MemoryPool>,
}

impl AllocationRules {
    /// The handle of a stream through which a context with these rules submits.
    pub(super) fn applied_to(&self, stream: Stream) -> Stream {
        match &self.pool {
            Some(pool) => allocating_in(&stream, pool),
            None => stream,
        }
    }
}

/// The maximum number of streams that one operation borrows for its branches, in addition to its own. Further branches
/// share them: an idle one if there is one, else the next in turn.
pub const MAX_FORK_STREAMS: usize = 7;

/// The streams that the forks of one run borrow.
#[derive(Default)]
pub(crate) struct ForkStreams(Mutex<Lent>);

#[derive(Default)]
struct Lent {
    streams: Vec<Stream>,
    /// The number of times that a stream was shared because none was idle.
    next: usize,
}

impl ForkStreams {
    /// Returns the stream for one more branch of an operation on `stream`.
    pub(crate) fn next(&self, stream: &Stream) -> Result<Stream> {
        if stream.is_recording() {
            // A stream of a recording uses no resources of the device.
            return lend_branch(stream);
        }
        let mut lent = self.0.lock();
        if lent.streams.len() < MAX_FORK_STREAMS {
            let borrowed = lend_branch(stream)?;
            lent.streams.push(borrowed.clone());
            return Ok(borrowed);
        }
        // The others may still run work of dropped branches.
        if let Some(idle) = lent.streams.iter().find(|stream| stream.in_flight() == 0) {
            return Ok(idle.clone());
        }
        let index = lent.next % lent.streams.len();
        lent.next += 1;
        Ok(lent.streams[index].clone())
    }
}

/// The number of runs that wait by wakers and have not ended, in shards.
static RUNS: Sharded<AtomicUsize> = [const { CachePadded::new(AtomicUsize::new(0)) }; SHARDS];

/// Counts a run that waits by wakers and has not ended: a future that has begun, or a blocking run from its first wait
/// by a waker on. A forgotten future counts until the process ends.
pub(crate) struct RunInFlight {
    shard: usize,
}

impl RunInFlight {
    #[inline]
    pub(crate) fn new() -> Self {
        let shard = own_shard();
        RUNS[shard].fetch_add(1, Ordering::Relaxed);
        Self { shard }
    }

    /// Whether the caller's run is the only such run of the process. The counts are read one after the other, so the
    /// result may be wrong while other runs begin or end. Then a poll spins for a short time without need, or does not.
    #[inline]
    pub(in crate::context) fn is_only_one() -> bool {
        // The caller's run is almost always counted in this thread's shard. If this shard counts more than one run, the
        // other shards are not read.
        let own = RUNS[own_shard()].load(Ordering::Relaxed);
        own <= 1 && RUNS.iter().map(|count| count.load(Ordering::Relaxed)).sum::<usize>() == 1
    }
}

impl Drop for RunInFlight {
    #[inline]
    fn drop(&mut self) {
        RUNS[self.shard].fetch_sub(1, Ordering::Relaxed);
    }
}

/// The kind of waits in a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RunMode {
    /// A future runs the operation. Every wait registers a waker.
    Async,
    /// A thread runs the operation and blocks. It asks the device directly.
    Blocking,
    /// The operation is submitted only, or recorded. No step may wait.
    Detached,
}

#[cfg(all(test, feature = "cpu"))]
mod tests;
