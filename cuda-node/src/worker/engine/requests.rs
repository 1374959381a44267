//! Answers requests, and requests the progress that the client waits for.

use std::sync::atomic::Ordering;

use cuda_core::{
    Error, MemoryInfo, Ticket,
    protocol::{Answer, Control, Feature, Reply, Request, StreamId},
};
use cuda_lease::{
    session::SessionError,
    wire::{Event, Variants},
};

use super::{
    Engine,
    state::{State, Stream, violation},
};
use crate::worker::{messages::Drained, numbers::Stage};

/// The maximum number of requests that wait for an answer.
const QUERY_LIMIT: usize = 4096;

/// The maximum number of requests about pools that wait for an answer.
const POOL_QUERY_LIMIT: usize = 256;

impl Engine {
    pub(super) fn want(&self, state: &mut State, ticket: Ticket) {
        match self.reports.stage(ticket) {
            Stage::Complete | Stage::Submitted(0) => self.reports.report(ticket.stream),
            Stage::Submitted(number) => {
                self.want_number(state, Ticket { number, ..ticket });
            }
            Stage::Held => {
                if let Some(stream) = state.streams.get_mut(&ticket.stream) {
                    stream.wanted = stream.wanted.max(ticket.number.min(stream.last));
                }
            }
        }
    }

    /// A submission that was held is submitted now.
    pub(super) fn want_held(&self, state: &mut State, ticket: Ticket) {
        let wanted = state.streams.get(&ticket.stream).map_or(0, |stream| stream.wanted);
        if ticket.number <= wanted
            && let Stage::Submitted(number) = self.reports.stage(ticket)
        {
            self.want_number(state, Ticket { number, ..ticket });
        }
    }

    /// Requests the progress of everything that a stream has taken.
    pub(super) fn want_all(&self, state: &mut State, stream: StreamId) {
        let (backlog, number) = self.reports.backlog(stream);
        if backlog > 0 {
            self.want_number(state, Ticket { stream, number });
        }
    }

    /// Requests the progress up to a number of the backend, and times that submission if its completion shows in time.
    fn want_number(&self, state: &mut State, ticket: Ticket) {
        let now = state.sampler.now;
        if !self.reports.time(ticket, now, false)
            && state.streams.contains_key(&ticket.stream)
            && state.sampler.may_peek()
        {
            // SAFETY: the stream exists, and is retired only under the lock of the state, which is held.
            let complete = unsafe { self.backend.peek(ticket.stream) };
            let is_running = complete.is_ok_and(|complete| complete < ticket.number);
            self.reports.time(ticket, now, is_running);
        }
        self.control(Control::Want { ticket });
    }

    /// Answers a request, or holds it.
    ///
    /// # Errors
    /// Too many requests wait, or a pool does not exist.
    pub(super) fn request(
        &self,
        state: &mut State,
        id: u64,
        request: Request,
    ) -> Result<(), SessionError> {
        let waiting = state.modules.waiting_queries()
            + state.graphs.waiting_queries()
            + state.waiting_resets.len();
        if waiting >= QUERY_LIMIT {
            return Err(violation(format!(
                "more than {QUERY_LIMIT} queries wait; wait for replies before sending more"
            )));
        }
        match request {
            Request::Memory => {
                let (total, used) = self.quota.limit_and_used();
                let info = MemoryInfo { used, free: total - used.min(total), total };
                self.reports.outbox.push(&Event::Reply { id, reply: Ok(Reply::Memory(info)) });
            }
            Request::PoolMemory { pool } | Request::TrimPool { pool, .. } => {
                state.pools.find(pool)?;
                let asked = state.pools.asked.clone();
                if asked.fetch_add(1, Ordering::Relaxed) >= POOL_QUERY_LIMIT {
                    return Err(violation(format!(
                        "more than {POOL_QUERY_LIMIT} queries about memory pools wait; wait for replies first"
                    )));
                }
                let answer = self.answer(id);
                let answer = Answer::new(move |reply| {
                    asked.fetch_sub(1, Ordering::Relaxed);
                    answer.give(reply);
                });
                self.backend.request(request, answer);
            }
            Request::Loaded { module } => {
                state.modules.ask(module, id);
                self.answer_loaded(state);
            }
            Request::GraphReady { graph } => {
                state.graphs.ask(graph, id);
                self.answer_graph_queries(state);
            }
            Request::Reset => {
                state.resets += 1;
                state.waiting_resets.push_back(id);
                self.advance(state);
            }
            // The backend refuses the occupancy of a module that it does not have, or not yet.
            request => self.backend.request(request, self.answer(id)),
        }
        Ok(())
    }

    pub(super) fn answer_loaded(&self, state: &mut State) {
        for (module, id) in state.modules.answerable() {
            self.backend.request(Request::Loaded { module }, self.answer(id));
        }
    }

    /// Requests the next reset if every command before it was submitted. Returns whether it did.
    pub(super) fn reset_if_due(&self, state: &mut State) -> bool {
        let done = state.resets - state.waiting_resets.len() as u64;
        let is_behind = |stream: &Stream| stream.held.front().is_none_or(|item| item.resets > done);
        if state.waiting_resets.is_empty() || !state.streams.values().all(is_behind) {
            return false;
        }
        if let Some(id) = state.waiting_resets.pop_front() {
            self.reports.reset();
            self.backend.request(Request::Reset, self.answer(id));
        }
        true
    }

    pub(super) fn answer(&self, id: u64) -> Answer {
        let reports = self.reports.clone();
        Answer::new(move |reply| {
            let unknown = || Error::unsupported(Feature::Reply, "the node");
            let reply = reply
                .and_then(|reply| if reply.tag().is_some() { Ok(reply) } else { Err(unknown()) });
            reports.outbox.push(&Event::Reply { id, reply });
        })
    }

    /// Requests a report when all work is complete.
    pub(in crate::worker) fn drain(&self, request: u64) {
        let mut state = self.state.lock();
        state.drain = Some(request);
        self.settle(&mut state);
    }

    /// Sends the report that all work is complete, or requests the progress that shows it.
    pub(super) fn report_drained(&self, state: &mut State) {
        let Some(request) = state.drain else { return };
        let busy = self.reports.busy_streams();
        busy.iter().for_each(|stream| self.want_all(state, *stream));
        if busy.is_empty() && state.held == 0 {
            state.drain = None;
            let drained = Drained { request };
            self.reports.outbox.push_frame(Drained::OPCODE, |out| drained.encode(out));
        }
    }
}
