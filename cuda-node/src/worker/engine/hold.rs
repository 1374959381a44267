//! Holds commands in the order of their streams, until they can run.

use std::sync::atomic::Ordering;

use cuda_core::{
    Ticket,
    protocol::{Control, StreamId},
};
use cuda_lease::session::SessionError;

use super::{
    Engine,
    graphs::can_launch,
    state::{BackendStep, Item, State, Task, has_module, violation},
};
use crate::worker::numbers::Stage;

/// The maximum number of commands that a session may have waiting.
const HELD_LIMIT: usize = 64 << 10;

/// Whether an item at the head of its stream was carried out.
#[derive(PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    Waits,
}

impl Engine {
    /// Carries a command out, or holds it.
    pub(super) fn put(
        &self,
        state: &mut State,
        stream: StreamId,
        after: Vec<Ticket>,
        task: Task,
    ) -> Result<(), SessionError> {
        let mut item = Item { resets: state.resets, arrived: state.sampler.now, after, task };
        let first = state.streams.get(&stream).is_none_or(|stream| stream.held.is_empty());
        if first && self.try_run(state, stream, &mut item) == Outcome::Done {
            return Ok(());
        }
        if state.held == HELD_LIMIT {
            return Err(violation(format!("more than {HELD_LIMIT} commands wait")));
        }
        state.held += 1;
        if let Some(stream) = state.streams.get_mut(&stream) {
            stream.held.push_back(item);
        }
        Ok(())
    }

    /// Carries out held commands until none can run.
    pub(super) fn advance(&self, state: &mut State) {
        state.sampler.begin();
        loop {
            let mut progressed = false;
            let holding: Vec<_> = state
                .streams
                .iter()
                .filter(|(_, stream)| !stream.held.is_empty())
                .map(|(id, _)| *id)
                .collect();
            for id in holding {
                while let Some(mut item) =
                    state.streams.get_mut(&id).and_then(|stream| stream.held.pop_front())
                {
                    if self.try_run(state, id, &mut item) == Outcome::Waits {
                        if let Some(stream) = state.streams.get_mut(&id) {
                            stream.held.push_front(item);
                        }
                        break;
                    }
                    state.held -= 1;
                    progressed = true;
                }
            }
            progressed |= self.create_due_graphs(state);
            progressed |= self.reset_if_due(state);
            if !progressed {
                break;
            }
        }
        self.settle(state);
    }

    /// Updates the flag `is_holding`. A progress report that saw the flag unset only updated the numbers in `reports`
    /// and did not advance held commands. So this advances them once after the flag is set.
    pub(super) fn settle(&self, state: &mut State) {
        self.report_drained(state);
        let is_holding = state.held > 0
            || !state.waiting_resets.is_empty()
            || state.drain.is_some()
            // The end of a module's load makes a waiting graph due.
            || state.graphs.has_waiting();
        // Stored under the lock alone.
        if self.is_holding.load(Ordering::Relaxed) == is_holding {
            return;
        }
        // SeqCst: `Ready::end` stores its flag and then loads this one.
        self.is_holding.store(is_holding, Ordering::SeqCst);
        if is_holding {
            self.advance(state);
        }
    }

    /// Whether a command at the head of `stream` finds its predecessors submitted.
    pub(super) fn can_run(&self, state: &State, stream: StreamId, after: &[Ticket]) -> bool {
        let submitted = |ticket: &Ticket| self.reports.stage(*ticket) != Stage::Held;
        state.waiting_resets.is_empty()
            && state.streams.get(&stream).is_some_and(|stream| stream.held.is_empty())
            && after.iter().all(submitted)
    }

    /// As [`has_credit`](Self::has_credit), for a command that becomes one submission. Usually it does not query the
    /// backend.
    pub(super) fn has_credit_for_one(&self, state: &mut State, stream: StreamId) -> bool {
        if let Some(found) = state.streams.get_mut(&stream)
            && found.credit > 0
        {
            found.credit -= 1;
            return true;
        }
        let has_credit = self.has_credit(state, stream);
        if has_credit && let Some(found) = state.streams.get_mut(&stream) {
            let (backlog, half) = (self.reports.backlog(stream).0, self.backlog / 2);
            // At half of the limit `has_credit` requests progress.
            let until = if backlog < half { half } else { self.backlog };
            found.credit = until.saturating_sub(backlog + 1);
        }
        has_credit
    }

    /// Whether the backend takes another submission of a stream. Requests a progress report when half of the credit is
    /// used, so the report usually arrives before the credit is exhausted.
    pub(super) fn has_credit(&self, state: &mut State, stream: StreamId) -> bool {
        if let Some(found) = state.streams.get_mut(&stream) {
            found.credit = 0;
        }
        let (backlog, taken) = self.reports.backlog(stream);
        let (complete, half) = (taken - backlog, (self.backlog / 2).max(1));
        if backlog >= half
            && let Some(found) = state.streams.get_mut(&stream)
            && found.requested <= complete
        {
            let number = complete + half;
            found.requested = number;
            self.control(Control::Want { ticket: Ticket { stream, number } });
        }
        backlog < self.backlog
    }

    /// Tries to carry out the first command of a stream.
    pub(super) fn try_run(&self, state: &mut State, stream: StreamId, item: &mut Item) -> Outcome {
        let submitted = |ticket: &Ticket| self.reports.stage(*ticket) != Stage::Held;
        let resets_left = state.waiting_resets.len() as u64;
        if item.resets > state.resets - resets_left
            || !item.after.iter().all(submitted)
            || !self.has_credit(state, stream)
        {
            return Outcome::Waits;
        }
        state.sampler.arrived = item.arrived;
        let after = std::mem::take(&mut item.after);
        let outcome = self.try_task(state, stream, &after, &mut item.task);
        item.after = after;
        if outcome == Outcome::Done
            && let Some(number) = item.number()
        {
            self.want_held(state, Ticket { stream, number });
        }
        outcome
    }

    pub(super) fn try_task(
        &self,
        state: &mut State,
        stream: StreamId,
        after: &[Ticket],
        task: &mut Task,
    ) -> Outcome {
        match task {
            Task::Work { number, work } => {
                if !has_module(state, work) {
                    return Outcome::Waits;
                }
                let ticket = Ticket { stream, number: *number };
                self.run(state, BackendStep::whole(ticket, after, work));
                Outcome::Done
            }
            Task::Graph { number, graph, changes } => {
                if !can_launch(state, *graph, changes) {
                    return Outcome::Waits;
                }
                let ticket = Ticket { stream, number: *number };
                self.launch_graph(state, ticket, after, *graph, changes);
                Outcome::Done
            }
            Task::Upload(upload) => self.upload(state, stream, after, upload),
            Task::Download(download) => self.download(state, stream, after, download),
            Task::Allocate { number, pool, id, bytes } => {
                self.allocate(state, Ticket { stream, number: *number }, *pool, *id, *bytes);
                Outcome::Done
            }
            Task::Free { id } => {
                self.free(state, stream, after, *id);
                Outcome::Done
            }
            Task::Retire => {
                state.streams.remove(&stream);
                if let Some(number) = self.reports.retire(stream) {
                    self.control(Control::Want { ticket: Ticket { stream, number } });
                }
                self.control(Control::RetireStream { id: stream });
                Outcome::Done
            }
        }
    }
}
