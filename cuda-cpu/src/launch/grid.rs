//! A launch: distributes its blocks to workers, reuses blocks of earlier launches, and ends early by a fault or a
//! panic.
//!
//! A worker takes blocks from a shared counter and runs each to its end. If a block uses up its turn, the worker sets
//! it aside and starts another one. So blocks that wait for each other make progress, up to a maximum number of blocks
//! per worker.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::crew;
use super::description::Launch;
use crate::fault::{Fault, FaultKind, FaultSpace};
use crate::lanes::LANES;
use crate::machine::budget::Budget;
use crate::machine::code::Code;
use crate::machine::ctx::{BlockFault, Ctx, LaneFault};
use crate::machine::place::{Clock, Place};
use crate::memory::{Memory, View};
use crate::observe::{BlockOrder, InstructionBudget, ReadOnly, Wanted, Watch};
use crate::schedule::block::{Block, BlockSize, Turn};
use crate::schedule::cluster::Cluster;
use crate::schedule::runner::Runner;

/// Maximum number of started blocks of one worker.
const MAX_STARTED: usize = 256;

/// Time for which a launch runs on one thread. Waking another thread takes about as long.
const SINGLE_THREAD_TIME: Duration = Duration::from_micros(10);

/// The state that all workers of a launch share.
pub(crate) struct Grid<'a> {
    code: &'a Code,
    memory: &'a Memory,
    function: u32,
    block: BlockSize,
    launch: &'a Launch<'a>,
    /// The place of every block, except for its position in the grid and its worker.
    place: Place,
    budget: Budget,
    spares: &'a Spares,
    read_only: Option<ReadOnly>,
    instructions: Option<InstructionBudget>,
    next: AtomicU64,
    iterations: AtomicU64,
    ending: Ending,
}

impl<'a> Grid<'a> {
    pub(crate) fn new(
        code: &'a Code,
        memory: &'a Memory,
        block: BlockSize,
        launch: &'a Launch<'a>,
        place: Place,
        (budget, spares): (Budget, &'a Spares),
        read_only: Option<ReadOnly>,
    ) -> Self {
        Self {
            code,
            memory,
            function: block.function,
            block,
            launch,
            place,
            budget,
            spares,
            read_only,
            instructions: launch.limits.instructions.map(InstructionBudget::new),
            next: AtomicU64::new(0),
            iterations: AtomicU64::new(0),
            ending: Ending::default(),
        }
    }

    /// Returns the number of clusters. Most launches have clusters of one block.
    fn clusters(&self) -> u64 {
        self.dims().iter().product()
    }

    /// Returns the number of clusters in each direction.
    fn dims(&self) -> [u64; 3] {
        let Place { grid, cluster, .. } = self.place;
        [0, 1, 2].map(|i| u64::from(grid[i] / cluster[i].max(1)))
    }

    /// Returns the maximum number of started clusters of one worker.
    fn most_started(&self) -> usize {
        // Blocks of a cooperative launch wait for each other, so all of them have to start.
        if self.launch.cooperative { usize::MAX } else { MAX_STARTED }
    }

    /// Returns whether blocks are left to start and the launch has not ended.
    pub(crate) fn has_more(&self) -> bool {
        self.next.load(Ordering::Relaxed) < self.clusters() && !self.ending.has_ended()
    }

    /// Runs all blocks on this thread. If there are several, helpers from the launch's pool join.
    pub(crate) fn run(&self) -> Result<(), Box<Fault>> {
        let pool = self.launch.pool.filter(|_| !self.launch.schedule.is_deterministic());
        let helpers = pool.map_or(0, |pool| pool.current_num_threads() as u64);
        match pool {
            Some(pool) if self.clusters() > 1 => {
                crew::run(self, pool, helpers.min(self.clusters() - 1) as u32);
            }
            _ => self.work(0, 1, None),
        }
        if let Some(profile) = self.launch.profile {
            profile.count_launch(self.kernel());
        }
        self.ending.fault()
    }

    fn kernel(&self) -> &'a str {
        &self.code.functions[self.function as usize].name
    }

    /// Creates the runner of one worker.
    fn runner(&self, worker: u32, workers: u32) -> Runner<'_> {
        let Launch { params, print, schedule, profile, .. } = *self.launch;
        let checks = self.block.checks;
        let mut ctx = Ctx::new(self.code, View::new(self.memory), params, print, &self.budget);
        ctx.place = Place { worker, workers, ..self.place };
        if schedule.is_deterministic() {
            ctx.clock = Clock::Counted(0);
        }
        let instructions = self.instructions.as_ref();
        let read_only = self.read_only.as_ref();
        let wanted = Wanted { checks, schedule, instructions, profile, read_only };
        let watch = Watch::new(wanted, self.code, workers == 1);
        Runner { ctx, code: self.code, watch }
    }

    /// Runs blocks until none is left. Calls `help` once if this takes longer than [`SINGLE_THREAD_TIME`].
    pub(crate) fn work(&self, worker: u32, workers: u32, mut help: Option<&dyn Fn()>) {
        let _stopping = self.ending.on_panic();
        let mut runner = self.runner(worker, workers);
        let mut order = BlockOrder::new(self.launch.schedule, self.clusters());
        let started = Instant::now();
        let mut running = VecDeque::new();
        let mut spare: Option<Box<Block>> = None;
        while !self.ending.has_ended() {
            if running.is_empty() {
                running.extend(self.begin(&mut runner, &order, spare.take()));
            }
            let (next, further) = order.turn(running.len());
            let Some(mut block) = running.remove(next) else { break };
            runner.ctx.forget_freed();
            let turn = block.run(&mut runner);
            // Helpers are called before this worker takes its next block, so that a block is left for them.
            if help.is_some() && started.elapsed() > SINGLE_THREAD_TIME && self.has_more() {
                help.take().into_iter().for_each(|call| call());
            }
            match turn {
                Ok(Turn::Finished) => {
                    let other = spare.replace(block);
                    other.iter().for_each(|block| self.budget.give(block.taken()));
                }
                Ok(Turn::Yielded(used)) => {
                    self.charge_iterations(&runner, &block, used);
                    self.end_if_cancelled(&runner, &block);
                    running.push_back(block);
                    if running.len() < self.most_started() && further {
                        running.extend(self.begin(&mut runner, &order, spare.take()));
                    }
                    continue;
                }
                Err(fault) => self.stop(&mut runner, fault),
            }
            if self.is_cancelled() {
                self.end(&runner, None, FaultKind::Cancelled);
            }
        }
        let watch = runner.watch.as_mut();
        if watch.is_some_and(|watch| watch.finish(self.kernel(), self.code)) {
            let limit = self.launch.limits.instructions.unwrap_or(0);
            self.end(&runner, None, FaultKind::InstructionBudget { limit });
        }
    }

    fn is_cancelled(&self) -> bool {
        self.launch.limits.cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed))
    }

    /// Ends the launch if it has been cancelled.
    fn end_if_cancelled(&self, runner: &Runner<'_>, block: &Block) {
        if self.is_cancelled() {
            self.end(runner, Some(block), FaultKind::Cancelled);
        }
    }

    /// Starts the next block, reusing a finished one if given. Returns `None` if no block is left or the budget has no
    /// room. In the second case the running blocks free memory for the remaining ones when they finish.
    fn begin(
        &self,
        runner: &mut Runner<'_>,
        order: &BlockOrder,
        spare: Option<Box<Block>>,
    ) -> Option<Box<Block>> {
        let mut block = match spare {
            Some(block) => block,
            None => self.new_cluster(runner)?,
        };
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        if index >= self.clusters() {
            self.give_back(block);
            return None;
        }
        let index = order.block(index);
        let [x, y, _] = self.dims();
        let at = [index % x, index / x % y, index / (x * y)];
        let at = [0, 1, 2].map(|i| at[i] as u32 * self.place.cluster[i]);
        let place = Place { at, ..runner.ctx.place };
        block.start(runner, place);
        Some(block)
    }

    /// Returns a block for further use in this program.
    fn give_back(&self, mut block: Box<Block>) {
        self.budget.give(block.taken());
        block.cluster = None;
        if block.is_unwatched() {
            self.spares.give(block);
        }
    }

    /// Creates the blocks of a cluster. `None` if no block is left or the budget has no room for all of them.
    fn new_cluster(&self, runner: &Runner<'_>) -> Option<Box<Block>> {
        let mut first = self.new_block(runner)?;
        let others = self.place.cluster_size().saturating_sub(1);
        if others == 0 {
            return Some(first);
        }
        let mut blocks = Vec::with_capacity(others as usize);
        for _ in 0..others {
            let Some(block) = self.new_block(runner) else {
                blocks.into_iter().chain([first]).for_each(|block| self.give_back(block));
                return None;
            };
            blocks.push(block);
        }
        first.cluster = Some(Box::new(Cluster::new(blocks)));
        Some(first)
    }

    fn new_block(&self, runner: &Runner<'_>) -> Option<Box<Block>> {
        if !self.has_more() {
            return None;
        }
        let kept = self.spares.take(self.block);
        if let Some(kept) = kept.filter(|block| self.budget.take(block.taken())) {
            return Some(kept);
        }
        if !self.budget.take(self.block.needed(self.code)) {
            return None;
        }
        let block = Block::new(self.code, self.block);
        if block.is_none() {
            self.end(runner, None, FaultKind::LaunchMemory { limit: self.budget.limit });
        }
        block
    }

    /// Counts the fuel of a block that yielded against the iteration limit.
    fn charge_iterations(&self, runner: &Runner<'_>, block: &Block, used: u64) {
        let Some(limit) = self.launch.limits.iterations else { return };
        let before = self.iterations.fetch_add(used, Ordering::Relaxed);
        if before.saturating_add(used) > limit {
            self.end(runner, Some(block), FaultKind::Budget { limit });
        }
    }

    /// Ends the launch with a fault that no particular thread caused. Reports the position of one thread of `block`, if
    /// given.
    fn end(&self, runner: &Runner<'_>, block: Option<&Block>, kind: FaultKind) {
        let start = self.code.functions[self.function as usize].entry.unwrap_or(0);
        let nowhere = (BlockFault { pc: start, warp: 0 }, 0);
        let (at, lane) = block.and_then(Block::any_position).unwrap_or(nowhere);
        let fault = LaneFault::new(lane, kind);
        self.ending.report(self.complete(runner, fault, runner.ctx.place.at, at));
    }

    fn stop(&self, runner: &mut Runner<'_>, at: BlockFault) {
        let Some(fault) = runner.ctx.fault.take() else { return };
        // In a cluster, this is the block whose thread has faulted.
        let place = runner.ctx.place.at;
        self.ending.report(self.complete(runner, fault, place, at));
    }

    /// Adds the location, the nearest allocation and the nearest variable to a fault.
    fn complete(
        &self,
        runner: &Runner<'_>,
        fault: LaneFault,
        block: [u32; 3],
        at: BlockFault,
    ) -> Fault {
        let LaneFault { kind, lane, mut nearest, begun } = fault;
        let at = begun.unwrap_or(at);
        let mut variable = None;
        if let Some((space, address, bytes)) = kind.access() {
            let dynamic = self.launch.dims.dynamic_shared.into();
            variable = self.code.variables.near(self.function, space, address, dynamic);
            if space == FaultSpace::Global && nearest.is_none() {
                nearest = self.memory.explain(address, bytes.into()).nearest;
            }
        }
        Fault {
            kind,
            kernel: self.kernel().to_owned(),
            block,
            thread: runner.ctx.place.thread(at.warp * LANES as u32 + lane),
            line: self.code.lines[at.pc as usize],
            source: self.code.sources.line(at.pc),
            nearest,
            variable,
        }
    }
}

/// State of the launch that its workers check between blocks.
#[derive(Debug, Default)]
struct Ending {
    has_ended: AtomicBool,
    fault: Mutex<Option<Box<Fault>>>,
}

impl Ending {
    /// Returns whether the launch has ended early. Workers then start no further turn.
    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    /// Keeps the first fault and stops all workers.
    pub(crate) fn report(&self, fault: Fault) {
        self.fault.lock().get_or_insert_with(|| Box::new(fault));
        self.has_ended.store(true, Ordering::Relaxed);
    }

    /// Returns the fault that ended the launch, if any. Called after all workers have stopped.
    pub(crate) fn fault(&self) -> Result<(), Box<Fault>> {
        self.fault.lock().take().map_or(Ok(()), Err)
    }

    /// Returns a guard that stops the other workers if its thread panics. Otherwise their blocks could spin without
    /// end, waiting for a block of this worker.
    fn on_panic(&self) -> impl Drop + '_ {
        StopOnPanic(&self.has_ended)
    }
}

struct StopOnPanic<'a>(&'a AtomicBool);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

/// Maximum size of the blocks that are kept for one program, in bytes.
const MAX_KEPT_BYTES: u64 = 16 << 20;

/// Blocks of earlier launches of a program, kept for reuse. Small launches would otherwise spend most of their time on
/// creating blocks.
#[allow(clippy::vec_box)] // Blocks are passed around in boxes.
#[derive(Default)]
pub(crate) struct Spares(Mutex<Vec<Box<Block>>>);

impl Spares {
    /// Returns a kept block of this size, if any.
    pub(crate) fn take(&self, size: BlockSize) -> Option<Box<Block>> {
        let mut kept = self.0.lock();
        let at = kept.iter().rposition(|block| block.fits(size))?;
        Some(kept.swap_remove(at))
    }

    /// Keeps a block. Evicts the oldest blocks beyond the limit.
    pub(crate) fn give(&self, block: Box<Block>) {
        let mut kept = self.0.lock();
        kept.push(block);
        let mut taken: u64 = kept.iter().map(|block| block.taken()).sum();
        let mut old = 0;
        while taken > MAX_KEPT_BYTES {
            taken -= kept[old].taken();
            old += 1;
        }
        drop(kept.drain(..old));
    }
}

impl std::fmt::Debug for Spares {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Spares").field(&self.0.lock().len()).finish()
    }
}
