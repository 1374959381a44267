//! The graphs of a session: incomplete content, graphs that wait for their memory, and graphs of the backend.
//!
//! This file has the state of each graph. `contents` collects the bytes of graph commands that travel on the bulk lane.
//! `work` turns decoded nodes into work of the backend, with one host block for the bytes of their uploads, and keeps
//! the accesses of the nodes. The folder uses `wire`, `cuda_core`, `quota` and `modules`. The engine creates and
//! launches the graphs.
//!
//! # Limits
//! A session has at most [`GRAPH_LIMIT`] graphs. Their nodes, the bytes of their uploads and the incomplete content are
//! charged to one quota of [`GRAPH_MEMORY`] bytes of host memory. A graph beyond it is refused, and the session goes
//! on.

mod contents;
mod work;

pub(super) use contents::{Arrived, Contents};
pub(super) use work::{GraphMemory, NodeAccess, Prepared, change, prepare};

use std::{collections::hash_map::Entry, mem, sync::Arc};

use cuda_core::{
    Error,
    internals::{IdMap, IdSet},
    protocol::{AllocId, GraphId, ModuleId, Use},
};
use cuda_lease::{session::SessionError, wire::TransferId};

use self::work::Record;
use super::{modules::Ready, queries::Queries, quota::Quota};

/// The maximum number of graphs of a session.
const GRAPH_LIMIT: usize = 4096;

/// The maximum host memory of the graphs of a session, in bytes.
const GRAPH_MEMORY: u64 = 256 << 20;

/// The maximum number of graphs that a session has, with those that were refused.
const KNOWN_LIMIT: usize = 4 * GRAPH_LIMIT;

/// The graphs of a session.
pub(super) struct Graphs {
    states: IdMap<GraphId, State>,
    /// The graphs whose nodes are there, and that may be due.
    unchecked: Vec<GraphId>,
    /// Those that are not due, by the first thing that they wait for: a client may have thousands of them, and let one
    /// thing happen with each command.
    waiting: IdMap<Awaited, IdSet<GraphId>>,
    /// Queries that wait until the backend has a graph.
    queries: Queries<GraphId>,
    pub(super) quota: Arc<Quota>,
    /// The number of searches for modules that can be launched.
    #[cfg(test)]
    pub(super) searches: usize,
}

enum State {
    /// Its content is incomplete, and comes with a transfer or with the command.
    Arriving(Option<TransferId>),
    /// It waits for its memory and its modules: for one of them, unless it is unchecked.
    Waiting(Box<Prepared>, Option<Awaited>),
    /// The backend has it.
    Created { record: Box<Record>, ready: Arc<Ready> },
    /// The graph, or a change of it, was refused. The backend may have it. `is_known` says whether the record has all
    /// that a launch uses.
    Refused { error: Error, record: Option<Box<Record>>, is_created: bool, is_known: bool },
}

/// A thing that a graph waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Awaited {
    Allocation(AllocId),
    Module(ModuleId),
}

/// The memory that a launch should have written and that is lost.
pub(super) enum Losses {
    Uses(Arc<[Use]>),
    /// The memory is not known, because the nodes of the graph or the changes of the launch were refused.
    Unknown,
}

/// A query that can be answered.
pub(super) enum Answerable {
    /// The backend answers it.
    ByBackend(GraphId, u64),
    /// The graph was refused.
    Refused(u64, Error),
}

impl Default for Graphs {
    fn default() -> Self {
        let quota = Arc::new(Quota::new(" of host memory for graphs; drop graphs", GRAPH_MEMORY));
        let (states, unchecked, waiting, queries) = Default::default();
        Self {
            states,
            unchecked,
            waiting,
            queries,
            quota,
            #[cfg(test)]
            searches: 0,
        }
    }
}

impl Graphs {
    /// Adds a graph whose content comes with a transfer. Without one, the caller has the content.
    ///
    /// # Errors
    /// The id is in use, or there are too many graphs, with those that were refused.
    pub(super) fn announce(
        &mut self,
        id: GraphId,
        transfer: Option<TransferId>,
    ) -> Result<(), SessionError> {
        if self.states.len() >= KNOWN_LIMIT {
            return Err(SessionError::Command(format!(
                "more than {KNOWN_LIMIT} graphs exist; drop those that were refused too"
            )));
        }
        match self.states.insert(id, State::Arriving(transfer)) {
            None => Ok(()),
            Some(_) => {
                Err(SessionError::Command(format!("the id of graph {} is already in use", id.0)))
            }
        }
    }

    /// Whether the content of a transfer creates a graph that was not dropped meanwhile.
    pub(super) fn expects(&self, id: GraphId, transfer: TransferId) -> bool {
        let expected = |state: &State| matches!(state, State::Arriving(arriving) if *arriving == Some(transfer));
        self.states.get(&id).is_some_and(expected)
    }

    /// Stores the nodes of a graph, or the error if it was refused.
    pub(super) fn prepared(&mut self, id: GraphId, prepared: Result<Prepared, Error>) {
        match prepared {
            Err(error) => self.refuse(id, error, None),
            Ok(prepared) => {
                self.unchecked.push(id);
                self.states.insert(id, State::Waiting(Box::new(prepared), None));
            }
        }
    }

    /// Whether a graph waits for its memory or its modules.
    pub(super) fn has_waiting(&self) -> bool {
        self.has_unchecked() || !self.waiting.is_empty()
    }

    /// Whether a graph may be due.
    pub(super) fn has_unchecked(&self) -> bool {
        !self.unchecked.is_empty()
    }

    /// Records that graphs do not have to wait for this any more.
    pub(super) fn has_happened(&mut self, awaited: Awaited) {
        self.unchecked.extend(self.waiting.remove(&awaited).unwrap_or_default());
    }

    /// Looks for modules that graphs wait for and that can be launched: they end their load at any time.
    pub(super) fn check_modules(&mut self, can_launch: impl Fn(ModuleId) -> bool) {
        #[cfg(test)]
        {
            self.searches += 1;
        }
        let is_ready = |awaited: &Awaited, _: &mut IdSet<GraphId>| match awaited {
            Awaited::Module(module) => can_launch(*module),
            Awaited::Allocation(_) => false,
        };
        let ready = self.waiting.extract_if(is_ready);
        self.unchecked.extend(ready.flat_map(|(_, graphs)| graphs));
    }

    /// Takes the graphs that the backend can create. `awaits` returns what a graph waits for.
    pub(super) fn take_due(
        &mut self,
        awaits: impl Fn(&mut Prepared) -> Option<Awaited>,
    ) -> Vec<(GraphId, Prepared)> {
        let mut due = Vec::new();
        for id in mem::take(&mut self.unchecked) {
            // The graph may have been dropped, and perhaps created again.
            let Some(State::Waiting(prepared, awaited)) = self.states.get_mut(&id) else {
                continue;
            };
            *awaited = awaits(prepared);
            if let Some(awaited) = *awaited {
                self.waiting.entry(awaited).or_default().insert(id);
            } else if let Some(State::Waiting(prepared, _)) = self.states.remove(&id) {
                due.push((id, *prepared));
            }
        }
        due
    }

    /// Records that the backend has taken a graph. Returns the state of its preparation.
    pub(super) fn created(&mut self, id: GraphId, record: Record) -> Arc<Ready> {
        let ready = Arc::<Ready>::default();
        let state = State::Created { record: Box::new(record), ready: ready.clone() };
        self.states.insert(id, state);
        ready
    }

    /// Records that a graph was refused. Later launches fail with the same error.
    pub(super) fn refuse(&mut self, id: GraphId, error: Error, record: Option<Record>) {
        let is_known = record.is_some();
        let record = record.map(Box::new);
        self.states.insert(id, State::Refused { error, record, is_created: false, is_known });
    }

    /// Fails a graph, because the changes of a launch were refused. The backend keeps the graph, and later launches
    /// fail with the same error.
    pub(super) fn fail(&mut self, id: GraphId, error: Error) {
        match self.states.remove(&id) {
            Some(State::Created { record, .. }) => {
                let record = Some(record);
                let failed = State::Refused { error, record, is_created: true, is_known: false };
                self.states.insert(id, failed);
            }
            Some(State::Refused { error, record, is_created, .. }) => {
                let failed = State::Refused { error, record, is_created, is_known: false };
                self.states.insert(id, failed);
            }
            other => self.states.extend(other.map(|state| (id, state))),
        }
    }

    /// The record of a graph, for the changes of a launch. A graph that was refused has one too: its launches lose what they
    /// write.
    pub(super) fn changed(&mut self, id: GraphId) -> Option<&mut Record> {
        match self.states.get_mut(&id)? {
            State::Created { record, .. } => Some(record),
            State::Refused { record, .. } => record.as_deref_mut(),
            State::Arriving(_) | State::Waiting(..) => None,
        }
    }

    /// Whether the backend has not taken changes of a graph.
    pub(super) fn has_untaken(&self, id: GraphId) -> bool {
        self.prepared_record(id).is_some_and(Record::has_untaken)
    }

    /// The number of nodes of a graph that has been prepared, and of their operands.
    pub(super) fn size(&self, id: GraphId) -> usize {
        let nodes = self.prepared_record(id).map(Record::nodes).unwrap_or_default();
        nodes.iter().map(|node| 1 + node.uses.len()).sum()
    }

    fn prepared_record(&self, id: GraphId) -> Option<&Record> {
        match self.states.get(&id)? {
            State::Created { record, .. } => Some(record),
            State::Refused { record, .. } => record.as_deref(),
            State::Arriving(_) | State::Waiting(..) => None,
        }
    }

    /// Whether a launch of a graph can be carried out without waiting, or fails.
    pub(super) fn can_launch(&self, id: GraphId) -> bool {
        match self.states.get(&id) {
            Some(State::Arriving(_) | State::Waiting(..)) => false,
            Some(State::Created { ready, .. }) => ready.has_ended(),
            Some(State::Refused { .. }) | None => true,
        }
    }

    /// The record of a graph that [can be launched](Self::can_launch).
    ///
    /// # Errors
    /// The error of a graph that was refused, or of one that does not exist, with what its launches lose.
    pub(super) fn record(&mut self, id: GraphId) -> Result<&mut Record, (Error, Losses)> {
        match self.states.get_mut(&id) {
            Some(State::Created { record, .. }) => Ok(record),
            Some(State::Refused { error, record, is_known, .. }) => {
                let record = record.as_ref().filter(|_| *is_known);
                let losses = record.map_or(Losses::Unknown, |of| Losses::Uses(of.uses().clone()));
                Err((error.clone(), losses))
            }
            _ => Err((Error::no_such_object("graph", id.0), Losses::Uses([].into()))),
        }
    }

    /// Removes a graph. Returns whether the backend has it, and the transfer that brings its content.
    pub(super) fn remove(&mut self, id: GraphId) -> (bool, Option<TransferId>) {
        match self.states.remove(&id) {
            Some(State::Created { .. } | State::Refused { is_created: true, .. }) => (true, None),
            Some(State::Arriving(transfer)) => (false, transfer),
            Some(State::Waiting(_, Some(awaited))) => {
                if let Entry::Occupied(mut graphs) = self.waiting.entry(awaited) {
                    graphs.get_mut().remove(&id);
                    if graphs.get().is_empty() {
                        graphs.remove();
                    }
                }
                (false, None)
            }
            _ => (false, None),
        }
    }

    /// The number of queries that wait.
    pub(super) fn waiting_queries(&self) -> usize {
        self.queries.len()
    }

    /// Stores a query until it can be answered.
    pub(super) fn ask(&mut self, graph: GraphId, query: u64) {
        self.queries.add(graph, query);
    }

    /// Takes the queries about a graph, if they can be answered.
    pub(super) fn answerable(&mut self, graph: GraphId) -> Vec<Answerable> {
        let state = self.states.get(&graph);
        if let Some(State::Arriving(_) | State::Waiting(..)) = state {
            return Vec::new();
        }
        let answerable = |query| match state {
            Some(State::Refused { error, .. }) => Answerable::Refused(query, error.clone()),
            _ => Answerable::ByBackend(graph, query),
        };
        self.queries.take(&graph).into_iter().map(answerable).collect()
    }
}
