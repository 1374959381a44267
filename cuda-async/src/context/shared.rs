//! `Shared`: a context that several handles refer to.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use cuda_core::{Error, Result, Stream, Ticket};
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::context::{fork_streams::ForkStreams, run_mode::RunMode, spin::InFlight};

/// The data of a context behind an `Arc`.
pub(super) struct Shared {
    pub(super) place: Place,
    mode: RunMode,
    /// How long an allocation may wait for memory.
    pub(super) memory_wait: Option<Duration>,
    /// The number of the last submission that this context has made, or 0.
    last: AtomicU64,
}

pub(super) enum Place {
    Root(Root),
    Branch(Branch),
}

pub(super) struct Root {
    pub(super) stream: Stream,
    /// The streams of the forks of this run.
    fork_streams: ForkStreams,
    /// The submission that a blocking run waits for.
    pub(super) blocked: Mutex<Blocked>,
    /// Set in a blocking run once one of its steps waits for more than one stream.
    pub(super) by_wakers: OnceLock<InFlight>,
}

/// Passes a wait from the steps of a blocking run to the thread that runs them, and a failure back.
#[derive(Default)]
pub(super) struct Blocked {
    pub(super) on: Option<(Stream, u64)>,
    pub(super) failed: Option<(Ticket, Error)>,
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
    /// The root context of a run on `stream`, whose last submission so far is `last`.
    pub(super) fn root(
        stream: Stream,
        mode: RunMode,
        memory_wait: Option<Duration>,
        last: u64,
    ) -> Self {
        let (fork_streams, blocked, by_wakers) = Default::default();
        let place = Place::Root(Root { stream, fork_streams, blocked, by_wakers });
        Self { place, mode, memory_wait, last: AtomicU64::new(last) }
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
        Self { place, mode: self.mode, memory_wait, last: AtomicU64::new(0) }
    }

    /// The root of this context's run.
    pub(super) fn root_of(this: &Arc<Self>) -> &Arc<Self> {
        match &this.place {
            Place::Root(_) => this,
            Place::Branch(branch) => &branch.root,
        }
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

    pub(super) fn root_place(&self) -> &Root {
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
