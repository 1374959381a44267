//! The sockets to the supervisor. A worker that outlives its supervisor gets new ones from the next supervisor.

use std::{
    net::Shutdown,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::{Condvar, Mutex};

use crate::process::WorkerEnds;

/// The current sockets. Each thread of the worker uses one of them until it ends, and then asks for the next ones.
pub(super) struct Sockets {
    state: Mutex<State>,
    changed: Condvar,
    /// Counts the supervisors.
    supervisor: AtomicU64,
}

struct State {
    ends: Arc<WorkerEnds>,
    supervisor: u64,
    /// Whether another supervisor may come.
    has_next: bool,
}

/// The sockets to one supervisor.
#[derive(Clone)]
pub(super) struct Connected {
    pub(super) ends: Arc<WorkerEnds>,
    supervisor: u64,
}

impl Sockets {
    /// `has_next` states whether a supervisor can follow the first one.
    pub(super) fn new(ends: WorkerEnds, has_next: bool) -> Self {
        let state = State { ends: Arc::new(ends), supervisor: 0, has_next };
        Self { state: Mutex::new(state), changed: Condvar::new(), supervisor: AtomicU64::new(0) }
    }

    /// The current sockets.
    pub(super) fn current(&self) -> Connected {
        let State { ends, supervisor, .. } = &*self.state.lock();
        Connected { ends: ends.clone(), supervisor: *supervisor }
    }

    /// Replaces the sockets if there are later ones.
    pub(super) fn refresh(&self, connected: &mut Connected) {
        if self.supervisor.load(Ordering::Acquire) != connected.supervisor {
            *connected = self.current();
        }
    }

    /// Waits for the sockets of the next supervisor. Returns `None` if none will come.
    pub(super) fn next(&self, after: &Connected) -> Option<Connected> {
        let mut state = self.state.lock();
        while state.supervisor == after.supervisor && state.has_next {
            self.changed.wait(&mut state);
        }
        let State { ends, supervisor, .. } = &*state;
        let is_later = *supervisor > after.supervisor;
        is_later.then(|| Connected { ends: ends.clone(), supervisor: *supervisor })
    }

    /// Whether another supervisor may come.
    pub(super) fn has_next(&self) -> bool {
        self.state.lock().has_next
    }

    /// Sets the sockets of the next supervisor.
    pub(super) fn replace(&self, ends: WorkerEnds) {
        let mut state = self.state.lock();
        state.ends = Arc::new(ends);
        state.supervisor += 1;
        self.supervisor.store(state.supervisor, Ordering::Release);
        self.changed.notify_all();
    }

    /// Ends the reading of commands, and with it the session.
    pub(super) fn end_commands(&self) {
        let mut state = self.state.lock();
        state.has_next = false;
        _ = state.ends.commands.shutdown(Shutdown::Read);
        self.changed.notify_all();
    }

    /// Closes the sockets. No supervisor follows.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.has_next = false;
        let WorkerEnds { commands, bulk, jobs } = &*state.ends;
        for socket in [commands, bulk, jobs] {
            _ = socket.shutdown(Shutdown::Both);
        }
        self.changed.notify_all();
    }
}
