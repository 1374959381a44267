//! The engine: takes commands in their order, holds those that cannot run yet, and submits the others to the backend.
//!
//! A command arrives in [`Engine::command`]. `controls` takes the controls and `requests` the requests of the client.
//! `hold` keeps a command until its predecessors and its bytes are there, `copies` cuts copies in pieces, `graphs` creates
//! and launches graphs, and `work` passes everything to the backend. `state`, `objects` and `pools` are the data.

mod controls;
mod copies;
mod graphs;
mod hold;
mod objects;
mod pools;
mod requests;
mod state;
#[cfg(test)]
mod tests;
mod work;

use std::sync::{
    Arc, Weak,
    atomic::{AtomicBool, Ordering},
};

use cuda_core::{Backend, Ticket, protocol::Control};
use cuda_lease::{
    session::SessionError,
    wire::{Command, Limits, Step},
};
use parking_lot::{Condvar, Mutex};

use self::{
    graphs::can_launch,
    state::{BackendStep, Download, State, Task, Upload, has_module, violation},
};
use super::{
    quota::Quota,
    reports::{AfterProgress, Reports},
    staging::Staging,
};

/// The maximum number of bytes of each staging pool: uploads, downloads, and bytes in commands. The last one may use as
/// much ordinary memory again (see `staging`).
const STAGING: usize = 64 << 20;

pub(super) struct Engine {
    backend: Arc<dyn Backend>,
    reports: Arc<Reports>,
    limits: Limits,
    quota: Arc<Quota>,
    /// The maximum number of submissions of a stream that the backend has at a time.
    backlog: u64,
    /// Staging memory of bytes that came with their commands. It is separate: they may wait for an upload on the bulk lane.
    inline: Arc<Staging>,
    uploads: Arc<Staging>,
    downloads: Arc<Staging>,
    state: Mutex<State>,
    /// An upload was announced, or the session ended.
    announced: Condvar,
    /// Whether commands are held. Readable without the lock.
    is_holding: AtomicBool,
}

impl Engine {
    pub(super) fn new(
        backend: Arc<dyn Backend>,
        reports: Arc<Reports>,
        limits: Limits,
    ) -> Arc<Self> {
        let engine = Arc::new(Self {
            backlog: backend.capabilities().submissions_in_flight.max(1),
            inline: Staging::new(backend.clone(), STAGING),
            uploads: Staging::new(backend.clone(), STAGING),
            downloads: Staging::new(backend.clone(), STAGING),
            backend,
            reports: reports.clone(),
            quota: Arc::new(Quota::new("", limits.memory)),
            limits,
            state: Mutex::default(),
            announced: Condvar::new(),
            is_holding: AtomicBool::new(false),
        });
        let after_progress: Weak<dyn AfterProgress> = Arc::<Self>::downgrade(&engine);
        reports.attach(after_progress);
        engine
    }

    /// A batch of commands has arrived.
    pub(super) fn begin_batch(&self) {
        self.state.lock().sampler.begin();
    }

    /// Takes the next command of the client.
    ///
    /// # Errors
    /// The client broke the protocol.
    pub(super) fn command(&self, command: Command<'_>) -> Result<(), SessionError> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        match command {
            Command::Submit { ticket, after, step } => {
                state.expect(ticket)?;
                state.check(&after, ticket.stream)?;
                self.submit(state, ticket, after, step)?;
            }
            Command::Control(control) => self.take_control(state, control)?,
            Command::LoadModule { id, kind, hash, bytes } => {
                self.load_module(state, id, kind, hash, bytes)?;
            }
            Command::CreateGraph { id, nodes } => self.create_graph(state, id, nodes)?,
            Command::Request { id, request } => self.request(state, id, request)?,
        }
        if state.graphs.has_waiting() {
            self.create_due_graphs(state);
        }
        self.settle(state);
        Ok(())
    }

    /// The device memory of the lease.
    pub(super) fn quota(&self) -> &Arc<Quota> {
        &self.quota
    }

    /// The staging memory of uploads.
    pub(super) fn staging(&self) -> &Arc<Staging> {
        &self.uploads
    }

    /// Ends all waits: no more commands come.
    pub(super) fn close(&self) {
        self.state.lock().is_closed = true;
        self.announced.notify_all();
        self.uploads.close();
    }

    fn submit(
        &self,
        state: &mut State,
        ticket: Ticket,
        after: Vec<Ticket>,
        step: Step<'_>,
    ) -> Result<(), SessionError> {
        let number = ticket.number;
        let task = match step {
            Step::WriteBulk { to, transfer, bytes } => {
                if bytes > 0 && state.uploads.insert(transfer, ticket.stream).is_some() {
                    return Err(violation(format!(
                        "the id of upload {} is already in use",
                        transfer.0
                    )));
                }
                self.announced.notify_all();
                Task::Upload(Upload::new(number, to, Some(transfer), bytes))
            }
            Step::Write { to, bytes } => {
                return self.write(state, ticket, after, to, bytes);
            }
            Step::Read { from, transfer, bytes } => {
                Task::Download(Download { number, from, transfer, bytes, submitted: 0 })
            }
            Step::Graph { graph, changes } => {
                let changes = self.changes(state, changes)?;
                if self.can_run(state, ticket.stream, &after)
                    && can_launch(state, graph, &changes)
                    && self.has_credit_for_one(state, ticket.stream)
                {
                    self.launch_graph(state, ticket, &after, graph, &changes);
                    return Ok(());
                }
                Task::Graph { number, graph, changes }
            }
            Step::Work(work) => {
                // The usual case, without a copy of the work.
                if self.can_run(state, ticket.stream, &after)
                    && has_module(state, &work)
                    && self.has_credit_for_one(state, ticket.stream)
                {
                    self.run(state, BackendStep::whole(ticket, &after, &work));
                    return Ok(());
                }
                Task::Work { number, work: work.into_owned() }
            }
        };
        self.put(state, ticket.stream, after, task)
    }

    /// Passes a control on. One that fails shows in the submissions that need it.
    fn control(&self, control: Control) {
        // SAFETY: commands are carried out in the client's order, and the rules of the module apply to what it frees.
        _ = unsafe { self.backend.control(control) };
    }
}

impl AfterProgress for Engine {
    fn after_progress(&self) {
        if self.is_holding.load(Ordering::SeqCst) {
            self.advance(&mut self.state.lock());
        }
    }
}
