//! Helpers of a launch: threads of a pool that run its blocks beside the thread that launched it.
//!
//! The launching thread works too, and never waits for a helper that has not begun: when it finds no block left
//! it closes the crew, and waits for those who are inside. So a small launch does not pay for waking threads,
//! nor does it wait until a pool that is busy with a long launch has time. Helpers call further ones as long as
//! there are blocks left.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
};

use parking_lot::{Condvar, Mutex};
use rayon::ThreadPool;

use super::grid::Grid;

/// Helpers that one worker calls.
const CALLS: u32 = 2;

struct Crew {
    /// Valid while somebody is inside: the owner of the grid closes the crew, and waits for them, before
    /// it lets go of it.
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

/// The compiler's word for it.
const _: for<'a> fn(&'a Grid<'static>) -> &'a dyn Sync = |grid| grid;

// SAFETY: the grid is only used as a shared reference, and is `Sync`; the rest is `Send` and `Sync`.
unsafe impl Send for Crew {}
// SAFETY: as above.
unsafe impl Sync for Crew {}

/// Closes the crew, also when the launching thread panics.
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

    /// On a thread of the pool.
    fn help(self: Arc<Self>, worker: u32) {
        {
            let mut state = self.state.lock();
            if state.closed {
                return;
            }
            state.inside += 1;
        }
        let ran = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: counted as inside, and the crew was not closed: the grid is there until this leaves.
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
