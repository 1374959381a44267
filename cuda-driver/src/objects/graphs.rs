//! The graphs of a client, by their ids: built on a helper thread, launched and changed by submissions.
//!
//! # Rules
//! - A graph is in the table from the control that creates it to the control that drops it. A launch blocks while its
//!   graph is being prepared. A client avoids this by waiting for
//!   [`Request::GraphReady`](cuda_core::protocol::Request::GraphReady) first.
//! - The driver does not allow two threads to change or launch an executable at the same time, so its slot is locked
//!   meanwhile.
//! - If a change fails, the executable may have some of the launch's changes and not the others. It then fails all
//!   later launches with the same error.

use std::sync::Arc;

use cuda_core::{
    internals::{IdMap, sync::HelperThread},
    protocol::{Answer, Error, GraphId, Result},
};
use parking_lot::RwLock;

use super::modules::ModuleSlot;
use crate::{
    context::{Bound, IdCache, Primary},
    driver::api::StreamHandle,
    graphs::{DriverNode, Executable, GraphSlot, OrderedNode},
    streams::taken,
};

/// The graphs of one backend. Launches find them through a cache, without a lock.
pub(crate) struct Graphs {
    primary: &'static Primary,
    table: RwLock<IdMap<GraphId, Arc<GraphSlot>>>,
    cache: IdCache,
}

impl Graphs {
    pub(crate) fn new(primary: &'static Primary) -> Self {
        Self { primary, table: RwLock::default(), cache: IdCache::default() }
    }

    /// Starts to build a graph on the helper thread. Never blocks. `modules` are those of the nodes: the client may
    /// drop the graph and unload them while it is being built.
    pub(crate) fn create(
        &self,
        id: GraphId,
        nodes: Vec<OrderedNode>,
        modules: Vec<Arc<ModuleSlot>>,
        helper: &HelperThread,
    ) -> Result<()> {
        let (primary, slot) = (self.primary, Arc::new(GraphSlot::pending()));
        {
            let mut table = self.table.write();
            if table.contains_key(&id) {
                return Err(taken("graph", id.0));
            }
            table.insert(id, slot.clone());
        }
        let build = move || {
            slot.end(Executable::new(primary, nodes));
            drop(modules);
        };
        helper.run(build).map_err(|error| {
            self.table.write().remove(&id);
            Error::host("failed to start the helper thread that builds graphs", &error)
        })
    }

    /// Answers when the graph is ready, or has failed. Never blocks.
    pub(crate) fn answer_ready(&self, id: GraphId, answer: Answer) {
        match self.find(id) {
            Ok(slot) => slot.answer(answer),
            Err(error) => answer.give(Err(error)),
        }
    }

    /// Removes a graph that no launch uses.
    pub(crate) fn remove(&self, id: GraphId) -> Result<()> {
        let removed = self.table.write().remove(&id);
        self.cache.evict([id.0, 0]);
        removed.map(drop).ok_or_else(|| Error::no_such_object("graph", id.0))
    }

    /// Launches a graph on a stream, with new parameters for some of its nodes. Blocks while the graph is being
    /// prepared.
    ///
    /// # Safety
    /// The modules of the nodes are loaded. The caller holds the stream. No thread drops the graph before this returns.
    pub(crate) unsafe fn launch(
        &self,
        id: GraphId,
        changes: impl Iterator<Item = Result<(u32, DriverNode)>>,
        stream: StreamHandle,
        bound: &Bound,
    ) -> Result<()> {
        // SAFETY: no thread drops the graph before this returns.
        let slot = unsafe { self.get(id) }?;
        let mut executable = slot.wait()?;
        for change in changes {
            let (node, work) = change?;
            // SAFETY: the modules of the nodes are loaded.
            let changed = unsafe { executable.change(node, &work, bound) };
            if let Err(error) = changed {
                drop(executable);
                slot.fail(error.clone());
                return Err(error);
            }
        }
        // SAFETY: the client keeps what the nodes name, and the caller holds the stream.
        unsafe { executable.launch(stream, bound) }
    }

    /// Takes out every graph, for a backend that is dropped.
    pub(crate) fn take(&self) -> Vec<Arc<GraphSlot>> {
        std::mem::take(&mut *self.table.write()).into_values().collect()
    }

    /// The graph with this id. A hit in the cache takes no lock and clones no `Arc`.
    ///
    /// # Safety
    /// No thread drops the graph while the result is used.
    #[inline]
    unsafe fn get(&self, id: GraphId) -> Result<&GraphSlot> {
        let found = match self.cache.get([id.0, 0]) {
            Some([address, _]) => std::ptr::with_exposed_provenance(address as usize),
            None => self.look_up(id)?,
        };
        // SAFETY: the table holds the graph, and no thread drops it while the result is used. `remove` evicts a graph
        // from the cache before it drops the graph (rule 4).
        Ok(unsafe { &*found })
    }

    #[cold]
    fn look_up(&self, id: GraphId) -> Result<*const GraphSlot> {
        let table = self.table.read();
        // Inserted with the table locked: a `remove` comes after this and evicts the entry.
        let graph =
            Arc::as_ptr(table.get(&id).ok_or_else(|| Error::no_such_object("graph", id.0))?);
        self.cache.insert([id.0, 0], [graph.expose_provenance() as u64, 0]);
        Ok(graph)
    }

    fn find(&self, id: GraphId) -> Result<Arc<GraphSlot>> {
        let found = self.table.read().get(&id).cloned();
        found.ok_or_else(|| Error::no_such_object("graph", id.0))
    }
}
