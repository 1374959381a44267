//! A launch: its blocks spread over workers.
//!
//! A worker takes blocks from a common counter and runs each to its end. One that keeps spinning
//! (its time slices run out again and again) is set aside while the worker begins another, so blocks
//! that wait for each other make progress, up to a number of blocks per worker.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::block::{Block, BlockFault, Turn};
use super::budget::Budget;
use super::code::Code;
use super::crew;
use super::ctx::{Ctx, LANES};
use super::fault::{Fault, FaultKind};
use super::launch::{LaunchDims, Limits};
use super::presets::Place;
use super::runner::Runner;
use super::spares::Spares;
use crate::memory::{Memory, View};

/// Blocks that one worker keeps at a time.
const RESIDENT: usize = 256;

/// How long a launch runs on one thread alone: waking another takes about as long.
const PATIENCE: Duration = Duration::from_micros(10);

/// What all workers of a launch share.
pub(crate) struct Grid<'a> {
    pub(crate) code: &'a Code,
    pub(crate) memory: &'a Memory,
    pub(crate) function: u32,
    pub(crate) dims: LaunchDims,
    pub(crate) static_shared: u32,
    pub(crate) params: &'a [u8],
    pub(crate) limits: Limits<'a>,
    pub(crate) print: &'a (dyn Fn(&str) + Sync),
    pub(crate) grid_id: u64,
    budget: Budget,
    spares: &'a Spares,
    next: AtomicU64,
    iterations: AtomicU64,
    stopped: AtomicBool,
    fault: Mutex<Option<Box<Fault>>>,
}

impl<'a> Grid<'a> {
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn new(
        code: &'a Code,
        memory: &'a Memory,
        function: u32,
        dims: LaunchDims,
        static_shared: u32,
        params: &'a [u8],
        limits: Limits<'a>,
        print: &'a (dyn Fn(&str) + Sync),
        grid_id: u64,
        budget: Budget,
        spares: &'a Spares,
    ) -> Self {
        Self {
            code,
            memory,
            function,
            dims,
            static_shared,
            params,
            limits,
            print,
            grid_id,
            budget,
            spares,
            next: AtomicU64::new(0),
            iterations: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            fault: Mutex::new(None),
        }
    }

    fn blocks(&self) -> u64 {
        self.dims.grid.iter().map(|&d| u64::from(d)).product()
    }

    /// Whether there are blocks that nobody has begun, and somebody should.
    pub(crate) fn has_more(&self) -> bool {
        self.next.load(Ordering::Relaxed) < self.blocks() && !self.stopped.load(Ordering::Relaxed)
    }

    /// Runs all blocks on this thread, with helpers from `pool` when there are several.
    pub(crate) fn run(&self, pool: Option<&rayon::ThreadPool>) -> Result<(), Box<Fault>> {
        let helpers = pool.map_or(0, |pool| pool.current_num_threads() as u64);
        match pool {
            Some(pool) if self.blocks() > 1 => {
                crew::run(self, pool, helpers.min(self.blocks() - 1) as u32);
            }
            _ => self.work(0, 1, None),
        }
        self.fault.lock().take().map_or(Ok(()), Err)
    }

    /// Runs blocks until there are none left; calls for help, if there is some, when that takes a while.
    pub(crate) fn work(&self, worker: u32, workers: u32, mut help: Option<&dyn Fn()>) {
        let _stopping = StopOnPanic(&self.stopped);
        let mut ctx =
            Ctx::new(self.code, View::new(self.memory), self.params, self.print, &self.budget);
        ctx.place = Place {
            grid: self.dims.grid,
            block: self.dims.block,
            at: [0; 3],
            worker,
            workers,
            grid_id: self.grid_id,
            static_shared: self.static_shared,
            dynamic_shared: self.dims.dynamic_shared,
        };
        let mut runner = Runner { ctx, code: self.code };
        let mut running = VecDeque::new();
        let mut spare: Option<Box<Block>> = None;
        while !self.stopped.load(Ordering::Relaxed) {
            if running.is_empty() {
                running.extend(self.begin(&mut runner, spare.take()));
            }
            let Some(mut block) = running.pop_front() else { return };
            match block.run(&mut runner) {
                Ok(Turn::Finished) => {
                    let other = spare.replace(block);
                    other.iter().for_each(|block| self.budget.give(block.taken()));
                }
                Ok(Turn::Yielded(used)) => {
                    self.count(&runner, used);
                    running.push_back(block);
                    if running.len() < RESIDENT {
                        running.extend(self.begin(&mut runner, spare.take()));
                    }
                }
                Err(fault) => self.stop(&mut runner, &block, fault),
            }
            if self.limits.cancel.is_some_and(|c| c.load(Ordering::Relaxed)) {
                self.end(&runner, FaultKind::Cancelled);
            }
            if help.is_some() && runner.ctx.started.elapsed() > PATIENCE && self.has_more() {
                help.take().into_iter().for_each(|call| call());
            }
        }
    }

    /// The next block, in a finished one's place if there is one. None when there is no memory for another
    /// one: then the blocks that take it will make place for what is left.
    fn begin(&self, runner: &mut Runner<'_>, spare: Option<Box<Block>>) -> Option<Box<Block>> {
        let mut block = match spare {
            Some(block) => block,
            None => self.new_block(runner)?,
        };
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        if index >= self.blocks() {
            self.budget.give(block.taken());
            self.spares.give(block);
            return None;
        }
        let [x, y, _] = self.dims.grid.map(u64::from);
        let at = [index % x, index / x % y, index / (x * y)].map(|i| i as u32);
        let place = Place { at, ..runner.ctx.place };
        block.start(runner, place);
        Some(block)
    }

    fn new_block(&self, runner: &Runner<'_>) -> Option<Box<Block>> {
        let threads = runner.ctx.place.threads();
        let shared = self.static_shared + self.dims.dynamic_shared;
        if !self.has_more() {
            return None;
        }
        let kept = self.spares.take(self.function, threads, shared);
        if let Some(kept) = kept.filter(|block| self.budget.take(block.taken())) {
            return Some(kept);
        }
        let needed = Block::needed(self.code, self.function, threads, shared);
        if !self.budget.take(needed) {
            return None;
        }
        let block = Block::new(self.code, self.function, threads, shared);
        if block.is_none() {
            self.end(runner, FaultKind::LaunchMemory { limit: self.budget.limit });
        }
        block
    }

    /// Counts the fuel of a block that yielded against the budget.
    fn count(&self, runner: &Runner<'_>, used: u64) {
        let Some(limit) = self.limits.iterations else { return };
        let before = self.iterations.fetch_add(used, Ordering::Relaxed);
        if before.saturating_add(used) > limit {
            self.end(runner, FaultKind::Budget { limit });
        }
    }

    /// A fault of no thread in particular.
    fn end(&self, runner: &Runner<'_>, kind: FaultKind) {
        self.report(Fault {
            kind,
            kernel: self.code.functions[self.function as usize].name.clone(),
            block: runner.ctx.place.at,
            thread: [0; 3],
            line: 0,
            nearest: None,
        });
    }

    fn stop(&self, runner: &mut Runner<'_>, block: &Block, at: BlockFault) {
        let Some(fault) = runner.ctx.fault.take() else { return };
        self.report(Fault {
            kind: fault.kind,
            kernel: self.code.functions[self.function as usize].name.clone(),
            block: block.at,
            thread: runner.ctx.place.thread(at.warp * LANES as u32 + fault.lane),
            line: self.code.lines[at.pc as usize],
            nearest: fault.nearest,
        });
    }

    /// Keeps the first fault and stops all workers.
    fn report(&self, fault: Fault) {
        self.fault.lock().get_or_insert_with(|| Box::new(fault));
        self.stopped.store(true, Ordering::Relaxed);
    }
}

/// Blocks may spin until another one has come somewhere: when a worker panics, the others stop too.
struct StopOnPanic<'a>(&'a AtomicBool);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}
