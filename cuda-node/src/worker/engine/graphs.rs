//! Creates, drops and launches graphs.
//!
//! A graph reaches the backend when its content is complete and its modules and memory exist. A launch is held until
//! the backend has prepared the graph, as a launch of a kernel is held until its module is loaded.

use std::{borrow::Cow, sync::Arc};

use cuda_core::{
    Error, Ticket,
    protocol::{Answer, Control, GraphId, GraphLaunch, Reply, Request, Work},
};
use cuda_lease::{
    session::SessionError,
    wire::{Content, Event, TransferId, decode_changes, decode_graph},
};

use super::{
    Engine,
    state::{BackendStep, Changes, State},
};
use crate::worker::{
    graphs::{Answerable, Arrived, Losses, Prepared, change, prepare},
    modules::Ready,
    outbox::refusal,
    reports::StepMemory,
    staging::Staged,
};

/// The number of nodes and operands from which on a graph is long. The worker looks at each of them for a launch while
/// contents are lost, if the launch has changes or the backend has not taken earlier ones, and if the launch fails.
pub(super) const LONG: usize = 256;

impl Engine {
    pub(super) fn create_graph(
        &self,
        state: &mut State,
        id: GraphId,
        nodes: Content<'_>,
    ) -> Result<(), SessionError> {
        match nodes {
            Content::Inline(content) => {
                state.graphs.announce(id, None)?;
                self.prepare_graph(state, id, content)
            }
            Content::Bulk { transfer, bytes } => {
                state.graphs.announce(id, Some(transfer))?;
                self.announce_content(state, transfer, bytes, Some(id))
            }
        }
    }

    pub(super) fn drop_graph(&self, state: &mut State, id: GraphId) {
        let is_awaited = !state.graphs.can_launch(id);
        let (is_created, transfer) = state.graphs.remove(id);
        if let Some(transfer) = transfer {
            state.contents.discard(transfer);
        }
        if is_created {
            self.control(Control::DropGraph { id });
        }
        self.answer_graph_queries(state, id);
        // Launches that wait for the graph get their errors.
        if is_awaited {
            self.advance(state);
        }
    }

    /// Prepares a graph whose content is complete.
    ///
    /// # Errors
    /// The content is malformed.
    fn prepare_graph(
        &self,
        state: &mut State,
        id: GraphId,
        content: &[u8],
    ) -> Result<(), SessionError> {
        let graph = decode_graph(content)?;
        let prepared = prepare(graph, content, &*self.backend, &state.graphs.quota);
        state.graphs.prepared(id, prepared);
        self.answer_graph_queries(state, id);
        Ok(())
    }

    fn announce_content(
        &self,
        state: &mut State,
        transfer: TransferId,
        bytes: u64,
        graph: Option<GraphId>,
    ) -> Result<(), SessionError> {
        state.check_unused(transfer)?;
        state.contents.announce(transfer, bytes, graph, &state.graphs.quota)?;
        self.announced.notify_all();
        Ok(())
    }

    /// Takes the next `bytes` bytes of the content of a graph command.
    ///
    /// # Errors
    /// The content is complete and malformed.
    pub(super) fn content(
        &self,
        state: &mut State,
        transfer: TransferId,
        piece: &Staged,
        bytes: usize,
    ) -> Result<(), SessionError> {
        // SAFETY: no submission names the block, and nothing writes to it.
        let part = unsafe { piece.block().shared_bytes() };
        match state.contents.add(transfer, &part[..bytes]) {
            None => return Ok(()),
            Some(Arrived::Nodes(id, content)) if state.graphs.expects(id, transfer) => {
                match content {
                    Ok(content) => self.prepare_graph(state, id, &content)?,
                    Err(bytes) => {
                        let error = state.graphs.quota.shortage(bytes);
                        state.graphs.refuse(id, error, None);
                        self.answer_graph_queries(state, id);
                    }
                }
            }
            Some(Arrived::Nodes(..)) => {}
            Some(Arrived::Changes) => {
                if let Some(content) = state.contents.bytes(transfer) {
                    decode_changes(content)?;
                }
            }
        }
        self.advance(state);
        Ok(())
    }

    /// Creates the graphs that may be due and whose modules and memory exist now. Returns whether there were any.
    pub(super) fn create_due_graphs(&self, state: &mut State) -> bool {
        let State { graphs, modules, objects, .. } = state;
        let awaits = |prepared: &mut Prepared| {
            let can_launch = |module| modules.can_launch(module);
            prepared.awaits(can_launch, |allocation| objects.is_pending(allocation))
        };
        let due = graphs.take_due(awaits);
        let ids: Vec<_> = due.iter().map(|(id, _)| *id).collect();
        for (id, Prepared { graph, record, .. }) in due {
            if let Some(error) = objects.refused(record.uses()) {
                graphs.refuse(id, error, Some(record));
                continue;
            }
            // SAFETY: the control gives nothing up, and nothing writes to the host memory of the graph.
            match unsafe { self.backend.control(Control::CreateGraph { id, graph }) } {
                Ok(()) => {
                    let ready = graphs.created(id, record);
                    self.await_ready(Request::GraphReady { graph: id }, &ready);
                }
                Err(error) => graphs.refuse(id, self.reports.cause(error), Some(record)),
            }
        }
        ids.iter().for_each(|id| self.answer_graph_queries(state, *id));
        !ids.is_empty()
    }

    /// As [`create_due_graphs`](Self::create_due_graphs), also for graphs whose modules have ended their load.
    pub(super) fn create_loaded_graphs(&self, state: &mut State) {
        let State { graphs, modules, .. } = state;
        graphs.check_modules(|module| modules.can_launch(module));
        self.create_due_graphs(state);
    }

    /// Requests the end of the preparation of a graph or a module, or of the trim of a pool. The end advances commands
    /// that are held.
    pub(super) fn await_ready(&self, request: Request, ready: &Arc<Ready>) {
        let (reports, ended) = (self.reports.clone(), ready.clone());
        let answer = Answer::new(move |reply| {
            if let Ok(Reply::Loaded { .. }) = reply {
                let mut body = Vec::new();
                Event::Reply { id: 0, reply }.encode(&mut body);
                refusal(&body).into_iter().for_each(|error| ended.refuse(error));
            }
            ended.end(|| reports.after_progress());
        });
        self.backend.request(request, answer);
        ready.wait();
    }

    pub(super) fn answer_graph_queries(&self, state: &mut State, graph: GraphId) {
        for answerable in state.graphs.answerable(graph) {
            match answerable {
                Answerable::ByBackend(graph, id) => {
                    self.backend.request(Request::GraphReady { graph }, self.answer(id));
                }
                Answerable::Refused(id, error) => {
                    self.reports.outbox.push(&Event::Reply { id, reply: Err(error) });
                }
            }
        }
    }

    /// Takes the changes of a launch that has arrived.
    ///
    /// # Errors
    /// They are malformed.
    pub(super) fn changes(
        &self,
        state: &mut State,
        changes: Content<'_>,
    ) -> Result<Changes, SessionError> {
        let content = match changes {
            Content::Inline(content) => content,
            Content::Bulk { transfer, bytes } => {
                self.announce_content(state, transfer, bytes, None)?;
                return Ok(Changes::Arriving(transfer));
            }
        };
        if decode_changes(content)?.is_empty() {
            return Ok(Changes::None);
        }
        Ok(match state.graphs.quota.charge(content.len() as u64) {
            Ok(charge) => Changes::Here { content: content.to_vec(), _charge: charge },
            Err(error) => Changes::Refused(error),
        })
    }

    /// Launches a graph that [can be launched](Self::can_launch).
    pub(super) fn launch_graph(
        &self,
        state: &mut State,
        ticket: Ticket,
        after: &[Ticket],
        graph: GraphId,
        changes: &Changes,
    ) {
        let has_changes = !matches!(changes, Changes::None) || state.graphs.has_untaken(graph);
        let looks_at_all = has_changes || !state.objects.has_lost_nothing();
        if let Err(error) = self.change_graph(state, graph, changes) {
            state.graphs.fail(graph, error);
        }
        let is_taken = self.pass_graph_on(state, ticket, after, graph);
        // Launches of a long graph, again and again, would delay the request for the turn behind them.
        if state.takes_turns && (looks_at_all || !is_taken) && state.graphs.size(graph) >= LONG {
            self.pause();
        }
    }

    /// Passes a launch to the backend, or reports why it fails. Returns whether the backend has taken it.
    fn pass_graph_on(
        &self,
        state: &mut State,
        ticket: Ticket,
        after: &[Ticket],
        graph: GraphId,
    ) -> bool {
        let (error, losses) = match state.graphs.record(graph) {
            Ok(record) => match state.objects.check_nodes(record.nodes()) {
                None => {
                    let (uses, memory) = (record.uses().clone(), record.memory().clone());
                    let (changes, host) = record.untaken();
                    let work = GraphLaunch { graph, uses: Cow::Borrowed(&uses), changes };
                    let (work, memory) = (Work::Graph(work), StepMemory::Graph(memory));
                    let step = BackendStep {
                        ticket,
                        after,
                        work: &work,
                        host: &host,
                        is_last: true,
                        memory,
                    };
                    let taken = self.pass_on(state, step);
                    if taken.is_ok()
                        && let Ok(record) = state.graphs.record(graph)
                    {
                        record.taken();
                    }
                    return taken.is_ok();
                }
                Some(error) => (error, Losses::Uses(record.uses().clone())),
            },
            Err(refused) => refused,
        };
        match losses {
            Losses::Uses(uses) => self.skip(state, ticket, after, &uses, error),
            Losses::Unknown => {
                state.objects.spread_over_all(&error);
                self.skip(state, ticket, after, &[], error);
            }
        }
        false
    }

    /// Records the changes of a launch.
    ///
    /// # Errors
    /// They were refused.
    fn change_graph(
        &self,
        state: &mut State,
        graph: GraphId,
        changes: &Changes,
    ) -> Result<(), Error> {
        let arrived;
        let content = match changes {
            Changes::None => return Ok(()),
            Changes::Refused(error) => return Err(error.clone()),
            Changes::Here { content, .. } => &content[..],
            Changes::Arriving(transfer) => match state.contents.take(*transfer) {
                Some(Ok(content)) => {
                    arrived = content;
                    &arrived[..]
                }
                Some(Err(bytes)) => return Err(state.graphs.quota.shortage(bytes)),
                None => return Ok(()),
            },
        };
        // They could be decoded when they arrived.
        let changes = decode_changes(content).unwrap_or_default();
        let quota = state.graphs.quota.clone();
        match state.graphs.changed(graph) {
            Some(record) => change(record, graph, changes, content, &*self.backend, &quota),
            // The launch fails with the error of the graph.
            None => Ok(()),
        }
    }

    /// Whether a launch of a graph can be carried out, or fails, without waiting.
    pub(super) fn can_launch(&self, state: &State, graph: GraphId, changes: &Changes) -> bool {
        let has_changes = match changes {
            Changes::Arriving(transfer) => state.contents.is_complete(*transfer),
            Changes::None | Changes::Here { .. } | Changes::Refused(_) => true,
        };
        !self.is_paused() && has_changes && state.graphs.can_launch(graph)
    }
}
