//! Helpers of a launch: pool threads that run its blocks in addition to the launching thread.
//!
//! The launching thread also works, and never waits for a helper that has not started. When no block is left, it closes
//! the crew and waits for the helpers that are inside. So a small launch does not pay for waking threads, and a launch
//! does not wait for a pool that is busy with another one. Helpers call further helpers as long as blocks are left.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
};

use parking_lot::{Condvar, Mutex};
use rayon::ThreadPool;

use super::grid::Grid;

/// Number of helpers that one worker calls.
const CALLS: u32 = 2;

struct Crew {
    /// Valid while a helper is inside: the owner of the grid closes the crew, and waits until it is empty, before it
    /// drops the grid.
    grid: *const Grid<'static>,
    most: u32,
    state: Mutex<State>,
    empty: Condvar,
}

#[derive(Default)]
struct State {
    closed: bool,
    called: u32,
    inside: u32,
    panic: Option<Box<dyn Any + Send>>,
}

/// Checks that `Grid` is `Sync`.
const _: for<'a> fn(&'a Grid<'static>) -> &'a dyn Sync = |grid| grid;

// SAFETY: the grid is used only as a shared reference and is `Sync`. The other fields are `Send` and `Sync`.
unsafe impl Send for Crew {}
// SAFETY: as for `Send`.
unsafe impl Sync for Crew {}

/// Closes the crew when dropped, also if the launching thread panics.
struct Closing<'a>(&'a Crew);

/// Runs the grid's blocks on this thread and up to `helpers` threads of `pool`.
pub(crate) fn run(grid: &Grid<'_>, pool: &ThreadPool, helpers: u32) {
    let crew = Arc::new(Crew {
        grid: std::ptr::from_ref(grid).cast(),
        most: helpers,
        state: Mutex::default(),
        empty: Condvar::new(),
    });
    let closing = Closing(&crew);
    let call = || crew.call(|crew, worker| pool.spawn_fifo(move || crew.help(worker)));
    grid.work(0, helpers + 1, Some(&call));
    drop(closing);
    let panic = crew.state.lock().panic.take();
    if let Some(panic) = panic {
        resume_unwind(panic);
    }
}

impl Crew {
    fn call(self: &Arc<Self>, spawn: impl Fn(Arc<Self>, u32)) {
        for _ in 0..CALLS {
            let mut state = self.state.lock();
            if state.closed || state.called == self.most {
                return;
            }
            state.called += 1;
            let worker = state.called;
            drop(state);
            spawn(self.clone(), worker);
        }
    }

    /// Runs blocks on a thread of the pool.
    fn help(self: Arc<Self>, worker: u32) {
        {
            let mut state = self.state.lock();
            if state.closed {
                return;
            }
            state.inside += 1;
        }
        let ran = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: this helper is counted as inside and the crew was not closed, so the grid is alive until it
            // leaves.
            let grid = unsafe { &*self.grid };
            if grid.has_more() {
                self.call(|crew, worker| rayon::spawn_fifo(move || crew.help(worker)));
                grid.work(worker, self.most + 1, None);
            }
        }));
        let mut state = self.state.lock();
        state.inside -= 1;
        if let Err(panic) = ran {
            state.panic.get_or_insert(panic);
        }
        if state.inside == 0 {
            self.empty.notify_all();
        }
    }
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.closed = true;
        while state.inside > 0 {
            self.0.empty.wait(&mut state);
        }
    }
}
