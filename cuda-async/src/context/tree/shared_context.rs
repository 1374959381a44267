//! `Shared`: a context that several handles refer to.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use cuda_core::{Error, Result, Stream, Ticket};
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::context::tree::{
    fork_streams::ForkStreams,
    run_mode::{InFlight, RunMode},
};

/// The data of a context behind an `Arc`.
pub(in crate::context) struct Shared {
    pub(super) place: Place,
    mode: RunMode,
    /// The time for which an allocation may wait for memory.
    pub(super) memory_wait: Option<Duration>,
    /// The number of the last submission that this context has made, or 0.
    last: AtomicU64,
    /// The number of nested polls of boxes.
    nesting: AtomicUsize,
}

pub(super) enum Place {
    Root(Root),
    Branch(Branch),
}

pub(in crate::context) struct Root {
    pub(super) stream: Stream,
    /// The streams of the forks of this run.
    fork_streams: ForkStreams,
    /// The submission that a blocking run waits for.
    pub(in crate::context) blocked: Mutex<Blocked>,
    /// Set in a blocking run once one of its steps waits for more than one stream.
    pub(in crate::context) by_wakers: OnceLock<InFlight>,
    /// The `shared` operation whose steps this root belongs to.
    pub(super) part_of: Option<usize>,
    /// The context whose steps poll the steps of this root now.
    pub(super) driver: Mutex<Option<Arc<Shared>>>,
}

/// Passes a wait from the steps of a blocking run to the thread that runs them, and a failure back.
#[derive(Default)]
pub(in crate::context) struct Blocked {
    pub(in crate::context) on: Option<(Stream, u64)>,
    pub(in crate::context) failed: Option<(Ticket, Error)>,
}

pub(super) struct Branch {
    root: Arc<Shared>,
    /// Borrowed when the branch first enqueues something.
    stream: OnceLock<Stream>,
    /// The tickets that come before the next work of this branch.
    pub(super) after: Mutex<After>,
    has_after: AtomicBool,
}

pub(super) type After = SmallVec<[Ticket; 2]>;

impl Shared {
    fn new(
        place: Place,
        mode: RunMode,
        memory_wait: Option<Duration>,
        last: u64,
        nesting: usize,
    ) -> Self {
        let (last, nesting) = (AtomicU64::new(last), AtomicUsize::new(nesting));
        Self { place, mode, memory_wait, last, nesting }
    }

    /// The root context of a run on `stream`, whose last submission so far is `last`.
    pub(super) fn root(
        stream: Stream,
        mode: RunMode,
        memory_wait: Option<Duration>,
        last: u64,
    ) -> Self {
        let place = Place::Root(Root {
            stream,
            fork_streams: ForkStreams::default(),
            blocked: Mutex::default(),
            by_wakers: OnceLock::new(),
            part_of: None,
            driver: Mutex::default(),
        });
        Self::new(place, mode, memory_wait, last, 0)
    }

    /// A context of the same run. Without a stream it borrows one at its first use.
    pub(super) fn branch(
        self: &Arc<Self>,
        stream: OnceLock<Stream>,
        after: After,
        memory_wait: Option<Duration>,
    ) -> Self {
        let root = Self::root_of(self).clone();
        let has_after = AtomicBool::new(!after.is_empty());
        let place = Place::Branch(Branch { root, stream, after: Mutex::new(after), has_after });
        Self::new(place, self.mode, memory_wait, 0, self.nesting())
    }

    /// The root of this context's run.
    pub(super) fn root_of(this: &Arc<Self>) -> &Arc<Self> {
        match &this.place {
            Place::Root(_) => this,
            Place::Branch(branch) => &branch.root,
        }
    }

    /// Makes this context's root a part of a `shared` operation.
    pub(super) fn with_part_of(mut self, id: usize) -> Self {
        if let Place::Root(root) = &mut self.place {
            root.part_of = Some(id);
        }
        self
    }

    /// The stream, for a step that enqueues something now.
    pub(super) fn stream(&self) -> Result<&Stream> {
        match &self.place {
            Place::Root(root) => Ok(&root.stream),
            Place::Branch(branch) => branch.stream(),
        }
    }

    /// The stream, if this context has one.
    pub(super) fn known_stream(&self) -> Option<&Stream> {
        match &self.place {
            Place::Root(root) => Some(&root.stream),
            Place::Branch(branch) => branch.stream.get(),
        }
    }

    pub(in crate::context) fn root_place(&self) -> &Root {
        match &self.place {
            Place::Root(root) => root,
            // The root of a branch is never a branch.
            Place::Branch(branch) => branch.root.root_place(),
        }
    }

    pub(super) fn mode(&self) -> RunMode {
        match self.mode {
            RunMode::Blocking if self.root_place().by_wakers.get().is_some() => RunMode::Async,
            mode => mode,
        }
    }

    /// The mode in which the run began.
    pub(super) fn first_mode(&self) -> RunMode {
        self.mode
    }

    pub(super) fn note(&self, number: u64) {
        self.last.fetch_max(number, Ordering::AcqRel);
    }

    pub(super) fn nesting(&self) -> usize {
        self.nesting.load(Ordering::Relaxed)
    }

    pub(super) fn set_nesting(&self, nesting: usize) {
        self.nesting.store(nesting, Ordering::Relaxed);
    }

    pub(super) fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }
}

impl Branch {
    fn stream(&self) -> Result<&Stream> {
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
            // Under the lock, so that no clone of this context enqueues before the edges are in.
            self.has_after.store(false, Ordering::Release);
        }
        Ok(stream)
    }
}
