//! The window of a stream: its position in the tree, the held nodes, their launch, and the decision which windows have
//! graphs.

use std::sync::Arc;

use cuda_core::{
    internals::sync::atomic::{AtomicBool, Ordering},
    protocol::{AllocId, FunctionId, GraphCacheInfo, ModuleId, Result, Ticket, Work},
};

use super::{
    measure::Measure,
    memory::CacheMemory,
    results::Results,
    tree::{CachedGraph, End, EndId, MEASURE_EVERY, ROOT, Shape, StepId, Tree},
};
use crate::{
    context::{Bound, Primary},
    driver::api::StreamHandle,
    graphs::{DriverNode, GraphSlot, OrderedNode},
};

/// The number of nodes after which the first part of a window is flushed, so that the device begins early. Each further
/// part has twice as many nodes, up to [`MAX_PART`]. A window that comes before the stream was found idle goes on with
/// parts of that size.
const FIRST_PART: usize = 16;

/// The largest number of nodes that a stream holds.
const MAX_PART: usize = 64;

/// The decision about the next submission of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// It is held, as this step. The caller passes its node to [`Window::hold`].
    Hold(StepId),
    /// It is submitted now, after [`Window::flush`].
    Submit,
}

/// A free that waits until the work of a stream is flushed, or until a foreign call ends.
pub(crate) struct HeldFree {
    pub(crate) id: AllocId,
    pub(crate) after: Vec<Ticket>,
}

/// A window that is to be built as a graph.
pub(crate) struct Due {
    pub(crate) nodes: Vec<OrderedNode>,
    pub(crate) modules: Vec<ModuleId>,
    pub(crate) slot: Arc<GraphSlot>,
    /// Set when the preparation of the slot has ended.
    pub(crate) has_built: Arc<AtomicBool>,
}

/// The window of a stream, and the windows that the stream knows.
#[derive(Default)]
pub(crate) struct Window {
    memory: Arc<CacheMemory>,
    tree: Tree,
    position: Position,
    /// The steps whose nodes are held.
    held: Vec<StepId>,
    results: Results,
    /// The number of the last submission that is held.
    last: u64,
    frees: Vec<HeldFree>,
    /// The number that a report was requested for, while it was held.
    report: Option<u64>,
    /// The version of the last node that changed.
    version: u64,
    /// The graphs that the helper thread builds.
    building: Vec<EndId>,
    /// Set when the helper thread has built a graph.
    has_built: Arc<AtomicBool>,
    counts: GraphCacheInfo,
    flushes: u64,
}

/// The place of a window in the tree.
#[derive(Default, Clone, Copy)]
struct Position {
    /// The last step. `None` if the tree does not have the window.
    step: Option<StepId>,
    /// The number of nodes of this part so far.
    nodes: usize,
    /// The number of parts since the stream was found idle.
    parts: u32,
    /// The first shape of this part. Work that repeats in a window has it again.
    first: Option<Shape>,
    /// The last shape.
    last: Option<Shape>,
}

impl Position {
    /// The number of nodes of a full part.
    #[inline]
    fn part(&self) -> usize {
        MAX_PART.min(FIRST_PART << self.parts.min(8))
    }
}

impl Window {
    pub(crate) fn new(memory: Arc<CacheMemory>) -> Self {
        let mut window = Self::default();
        window.memory = memory;
        window
    }

    /// Whether no submission of a window came since the last [`end_part`](Self::end_part).
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.position.nodes == 0
    }

    #[inline]
    pub(crate) fn holds_work(&self) -> bool {
        !self.held.is_empty()
    }

    /// Moves to the step of the next submission, and decides about the submission.
    #[inline]
    pub(crate) fn advance(&mut self, shape: Shape) -> Next {
        if self.is_empty() {
            self.begin();
        }
        self.position.nodes += 1;
        self.position.last = Some(shape);
        self.position.first.get_or_insert(shape);
        let Some(at) = self.position.step else { return Next::Submit };
        let next = self.tree.child(at, shape).or_else(|| self.tree.grow(at, shape));
        self.position.step = next;
        // The nodes of a graph are all held, or none.
        let from_start = self.held.len() + 1 == self.position.nodes;
        match next {
            Some(step) if from_start && self.tree.is_held(step) => Next::Hold(step),
            _ => Next::Submit,
        }
    }

    fn begin(&mut self) {
        self.position.step = Some(ROOT);
        if self.has_built.load(Ordering::Relaxed) {
            self.take_built();
        }
    }

    /// Uses the graphs that were built since the last time.
    #[cold]
    fn take_built(&mut self) {
        self.has_built.store(false, Ordering::SeqCst);
        for id in std::mem::take(&mut self.building) {
            let end = self.tree.end_mut(id);
            let Some(graph) = &mut end.graph else { continue };
            if graph.slot.is_pending() {
                self.building.push(id);
            } else if graph.slot.ready().is_some() {
                graph.is_ready = true;
                self.counts.built += 1;
                self.tree.set_held(id, true);
            } else {
                self.refuse(id);
            }
        }
    }

    /// Holds the node of the submission that came last, which is `work`. `step` is that of [`Next::Hold`].
    #[inline]
    pub(crate) fn hold(&mut self, step: StepId, node: DriverNode, number: u64, work: &Work<'_>) {
        self.version += 1;
        self.tree.set_node(step, node, self.version);
        self.held.push(step);
        self.results.add(number, work);
        self.last = number;
    }

    /// Records that no caller waits for these submissions.
    pub(crate) fn cancel(&mut self, first: u64, last: u64) {
        self.results.cancel(first, last);
    }

    /// Whether no caller waits for the held work, and nothing can see what it writes to device memory.
    #[inline]
    pub(crate) fn is_unseen(&self) -> bool {
        self.results.are_unseen(|id| self.frees.iter().any(|free| free.id == id))
    }

    /// The functions that the held work launches.
    pub(crate) fn launched(&self) -> impl Iterator<Item = FunctionId> {
        self.held.iter().filter_map(|step| self.tree.function(*step))
    }

    /// Discards the held work.
    pub(crate) fn discard(&mut self) {
        self.counts.discarded += self.held.len() as u64;
        self.forget_held();
    }

    fn forget_held(&mut self) {
        self.held.clear();
        self.results.clear();
    }

    /// Whether this part of the window is full, so that it has to [end](Self::end_part).
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.position.nodes >= FIRST_PART && self.position.nodes >= self.position.part()
    }

    /// Whether this part of the window has to end before a submission of this shape: the part is at least half full,
    /// and it began with the same shape. So work that repeats in a window has few different parts.
    #[inline]
    pub(crate) fn begins_again(&self, shape: Shape) -> bool {
        let Position { nodes, first, last, .. } = self.position;
        nodes >= FIRST_PART / 2
            && first == Some(shape)
            && last != first
            && nodes >= self.position.part() / 2
    }

    /// Leaves the tree: the submission that came last cannot be held.
    #[cold]
    pub(crate) fn leave(&mut self) {
        self.position.step = None;
    }

    /// Counts a submission that does not wait for the held ones, if there are any. Returns false if there are none.
    pub(crate) fn pass(&mut self, number: u64) -> bool {
        if self.holds_work() {
            self.last = number;
        }
        self.holds_work()
    }

    /// The number of the last submission that is held or has passed held ones.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Holds a free until the next flush, if the stream holds work. Otherwise returns it.
    pub(crate) fn hold_free(&mut self, free: HeldFree) -> Option<HeldFree> {
        if !self.holds_work() {
            return Some(free);
        }
        self.frees.push(free);
        None
    }

    /// Takes the frees that were held. Called after a flush.
    pub(crate) fn take_frees(&mut self) -> Vec<HeldFree> {
        std::mem::take(&mut self.frees)
    }

    /// Ends a part of the window, whose work was flushed. If it came often enough, it is measured from now on.
    pub(crate) fn end_part(&mut self, primary: &'static Primary, bound: &Bound) {
        let Position { step, nodes, .. } = self.position;
        if let Some(step) = step.filter(|_| nodes > 0) {
            self.count(step, nodes, primary, bound);
        }
        self.next_part();
    }

    fn next_part(&mut self) {
        let parts = self.position.parts.saturating_add(1);
        self.position = Position { parts, ..Position::default() };
    }

    /// Begins with a small part again, because the device may have no other work.
    pub(crate) fn restart(&mut self) {
        self.position.parts = 0;
    }

    /// Holds a report until the next flush, if the stream holds work. Returns false if it does not.
    pub(crate) fn hold_report(&mut self, number: u64) -> bool {
        if self.holds_work() {
            self.report = self.report.max(Some(number));
        }
        self.holds_work()
    }

    /// Takes the report that was held. Called after a flush.
    pub(crate) fn take_report(&mut self) -> Option<u64> {
        self.report.take()
    }

    /// Counts a window that was submitted node by node.
    #[inline]
    fn count(&mut self, step: StepId, nodes: usize, primary: &'static Primary, bound: &Bound) {
        let id = self.tree.end_at(step);
        let end = self.tree.end_mut(id);
        if !end.is_due() {
            return;
        }
        match Measure::new(nodes, primary, bound) {
            Ok(measure) => {
                end.measure = Some(measure);
                self.tree.set_held(id, true);
            }
            Err(_) => end.refuse(),
        }
    }

    /// Passes all held work to the driver: as a graph if there is one, and otherwise node by node. Returns a window
    /// that is to be built as a graph.
    ///
    /// # Errors
    /// The driver refused a node. Nodes after it are lost.
    ///
    /// # Safety
    /// Everything that the held nodes name is alive, and the caller holds the stream.
    pub(crate) unsafe fn flush(
        &mut self,
        stream: StreamHandle,
        primary: &'static Primary,
        bound: &Bound,
    ) -> Result<Option<Due>> {
        let Some(last) = self.held.last() else { return Ok(None) };
        let id = self.tree.end_at(*last);
        self.flushes += 1;
        // SAFETY: everything that the held nodes name is alive, and the caller holds the stream.
        let flushed = if unsafe { self.launch(id, stream, primary, bound) } {
            Ok(None)
        } else {
            // SAFETY: everything that the held nodes name is alive, and the caller holds the stream.
            unsafe { self.enqueue_measured(id, stream, primary, bound) }
        };
        self.forget_held();
        flushed
    }

    /// Enqueues the held nodes one by one, and takes a sample if the window is being measured.
    ///
    /// # Safety
    /// As for [`flush`](Self::flush).
    unsafe fn enqueue_measured(
        &mut self,
        id: EndId,
        stream: StreamHandle,
        primary: &'static Primary,
        bound: &Bound,
    ) -> Result<Option<Due>> {
        // SAFETY: everything that the held nodes name is alive, and the caller holds the stream.
        let enqueue = |window: &Self| unsafe { window.enqueue(stream, primary, bound) };
        let Some(mut measure) = self.tree.end_mut(id).measure.take() else {
            return enqueue(self).map(|()| None);
        };
        // The time of the sample before.
        let verdict = measure.verdict(bound);
        if let Some(pays) = verdict {
            return enqueue(self).map(|()| self.decide(id, pays));
        }
        let enqueued = measure.sample(stream, bound, || enqueue(self));
        self.tree.end_mut(id).measure = Some(measure);
        enqueued.map(|()| None)
    }

    /// # Safety
    /// As for [`flush`](Self::flush).
    unsafe fn enqueue(
        &self,
        stream: StreamHandle,
        primary: &'static Primary,
        bound: &Bound,
    ) -> Result<()> {
        self.held.iter().try_for_each(|step| {
            let (node, _) = self.tree.node(*step);
            // SAFETY: everything that the held nodes name is alive, and the caller holds the stream.
            unsafe { node.enqueue(stream, primary, bound) }.map_err(|failed| primary.error(failed))
        })
    }

    /// Launches the held nodes as a graph. Returns false if there is none that is ready, or if the driver refuses it.
    ///
    /// # Safety
    /// As for [`flush`](Self::flush).
    unsafe fn launch(
        &mut self,
        id: EndId,
        stream: StreamHandle,
        primary: &'static Primary,
        bound: &Bound,
    ) -> bool {
        let end = self.tree.end_mut(id);
        if end.measure.is_some() {
            return false;
        }
        let Some(mut graph) = end.graph.take_if(|graph| graph.is_ready) else { return false };
        // SAFETY: everything that the held nodes name is alive, and the caller holds the stream.
        let launched = unsafe { self.launch_changed(&mut graph, stream, bound) };
        graph.launches += 1;
        graph.used = self.flushes;
        let (nodes, is_due) = (graph.nodes(), graph.launches % MEASURE_EVERY == 0);
        let end = self.tree.end_mut(id);
        end.graph = Some(graph);
        let Some(changes) = launched else {
            // The nodes are enqueued one by one.
            self.refuse(id);
            return false;
        };
        if is_due {
            end.measure = Measure::new(nodes, primary, bound).ok();
        }
        self.counts.launches += 1;
        self.counts.nodes += nodes as u64;
        self.counts.changes += changes;
        true
    }

    /// Changes the nodes that differ from the last launch, and launches the graph. Returns the number of changes, or
    /// `None` if the driver refuses.
    ///
    /// # Safety
    /// As for [`flush`](Self::flush).
    unsafe fn launch_changed(
        &self,
        graph: &mut CachedGraph,
        stream: StreamHandle,
        bound: &Bound,
    ) -> Option<u64> {
        let mut executable = graph.slot.ready()?;
        let mut changes = 0;
        for (at, (step, applied)) in self.held.iter().zip(&mut graph.applied).enumerate() {
            let (node, version) = self.tree.node(*step);
            if *applied != version {
                // SAFETY: the modules of the held nodes are loaded, because everything that they name is alive.
                unsafe { executable.change(at as u32, node, bound) }.ok()?;
                *applied = version;
                changes += 1;
            }
        }
        // SAFETY: everything that the held nodes name is alive, and the caller holds the stream.
        unsafe { executable.launch(stream, bound) }.ok()?;
        Some(changes)
    }

    /// Forgets every window if one of them launches a kernel of this module. Called after a flush.
    pub(crate) fn forget_module(&mut self, module: ModuleId) {
        if self.tree.launches_module(module) {
            self.forget_all();
        }
    }

    /// Forgets every window. Called after a flush.
    pub(crate) fn forget_all(&mut self) {
        let graphs = self.tree.ends().filter_map(|(_, end)| end.graph.as_ref());
        graphs.for_each(|graph| self.memory.release(graph.nodes()));
        (self.tree, self.building) = Default::default();
        self.position.step = None;
    }

    /// Adds the counts of this stream to those of the device. The bytes are not added.
    pub(crate) fn add_counts(&self, to: &mut GraphCacheInfo) {
        to.launches += self.counts.launches;
        to.nodes += self.counts.nodes;
        to.changes += self.counts.changes;
        to.built += self.counts.built;
        to.refused += self.counts.refused;
        to.evicted += self.counts.evicted;
        to.discarded += self.counts.discarded;
    }
}

/// Decides which windows have graphs: builds them, refuses them, and evicts them.
impl Window {
    /// Ends the measurement of a window. Returns it if it is to be built as a graph.
    fn decide(&mut self, id: EndId, pays: bool) -> Option<Due> {
        if !pays {
            self.refuse(id);
            return None;
        }
        if self.tree.end_mut(id).graph.is_some() {
            return None; // it still pays
        }
        self.tree.set_held(id, false);
        if !self.make_room(self.held.len()) {
            self.refuse(id);
            return None;
        }
        let due = self.due();
        let versions = self.held.iter().map(|step| self.tree.node(*step).1);
        let (slot, applied) = (due.slot.clone(), versions.collect());
        let graph = CachedGraph { slot, applied, is_ready: false, launches: 0, used: self.flushes };
        self.tree.end_mut(id).graph = Some(graph);
        self.building.push(id);
        Some(due)
    }

    fn due(&self) -> Due {
        let before = |at: usize| at.checked_sub(1).map(|before| before as u32);
        let nodes = self.held.iter().enumerate().map(|(at, step)| {
            let (node, _) = self.tree.node(*step);
            (node.clone(), before(at).into_iter().collect())
        });
        let (slot, has_built) = (Arc::new(GraphSlot::pending()), self.has_built.clone());
        Due { nodes: nodes.collect(), modules: self.tree.modules(&self.held), slot, has_built }
    }

    /// Reserves memory for a graph. Drops the graphs of this stream that were not launched for the longest time until
    /// there is enough.
    fn make_room(&mut self, nodes: usize) -> bool {
        while !self.memory.reserve(nodes) {
            let ready = |(id, end): (EndId, &mut End)| {
                end.graph.as_ref().filter(|graph| graph.is_ready).map(|graph| (graph.used, id))
            };
            let oldest = self.tree.ends().filter_map(ready).min_by_key(|(used, _)| *used);
            let Some((_, oldest)) = oldest else { return false };
            self.drop_graph(oldest);
            self.tree.end_mut(oldest).evict();
            self.counts.evicted += 1;
        }
        true
    }

    /// Submits a window node by node from now on, until it has come often enough to be measured again.
    fn refuse(&mut self, id: EndId) {
        self.drop_graph(id);
        self.tree.end_mut(id).refuse();
        self.counts.refused += 1;
    }

    /// Drops the graph of a window, and holds its nodes no longer.
    fn drop_graph(&mut self, id: EndId) {
        self.tree.set_held(id, false);
        if let Some(graph) = self.tree.end_mut(id).graph.take() {
            self.memory.release(graph.nodes());
        }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.forget_all();
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
