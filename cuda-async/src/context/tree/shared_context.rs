//! `SharedContext`: a context that several handles refer to. Every context is one, except an inline root that was not
//! promoted.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

use cuda_core::{Error, Result, Stream, Ticket};
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::context::tree::{
    allocation_rules::AllocationRules,
    execution_context::{RunInFlight, RunMode},
    fork_streams::ForkStreams,
};

/// The data of a context behind an `Arc`. Its kind holds the data that only a root or only a child has.
pub(in crate::context) struct SharedContext {
    pub(super) kind: ContextKind,
    mode: RunMode,
    pub(super) allocation_rules: AllocationRules,
    /// The number of the last submission that this context has made, or 0.
    last: AtomicU64,
    /// See [`ExecutionContext::nested_boxes`](crate::context::ExecutionContext::nested_boxes).
    pub(super) nested_boxes: AtomicUsize,
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
        Self { kind, mode, allocation_rules, last, nested_boxes }
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
    }

    pub(super) fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
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
