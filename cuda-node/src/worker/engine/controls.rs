//! Takes controls, and the code that arrives for modules.

use cuda_core::{
    Ticket,
    protocol::{AllocId, Answer, Control, ModuleId, PoolId, PoolSpec, Request, StreamId},
};
use cuda_lease::{
    session::SessionError,
    wire::{Hash, ImageKind},
};

use super::{
    Engine,
    objects::OBJECT_LIMIT,
    state::{State, Stream, Task, violation},
};
use crate::worker::modules::Load;

/// The maximum number of retired streams whose work is not complete.
const RETIRED_LIMIT: usize = 1024;

impl Engine {
    /// Takes a control of the client.
    ///
    /// # Errors
    /// The client broke the protocol.
    pub(super) fn take_control(
        &self,
        state: &mut State,
        control: Control,
    ) -> Result<(), SessionError> {
        match control {
            Control::Want { ticket } => self.want(state, ticket),
            Control::Allocate { id, bytes, at } => {
                self.announce(state, PoolId::DEFAULT, id, bytes, at)?;
            }
            Control::AllocateIn { pool, id, bytes, at } => {
                self.announce(state, pool, id, bytes, at)?;
            }
            Control::Free { id, stream, after } => {
                state.stream(stream)?;
                state.check(&after, stream)?;
                self.put(state, stream, after, Task::Free { id })?;
            }
            Control::CreateStream { id, priority } => self.create_stream(state, id, priority)?,
            Control::RetireStream { id } => {
                state.stream(id)?.is_retired = true;
                self.put(state, id, Vec::new(), Task::Retire)?;
            }
            Control::CreatePool { id, spec } => {
                state.pools.create(id)?;
                let keep = spec.release_threshold.min(self.quota.limit_and_used().0);
                self.control(Control::CreatePool { id, spec: PoolSpec::new(keep) });
            }
            Control::ChangePool { id, .. } => {
                state.pools.find(id)?;
                self.control(control);
            }
            Control::DropPool { id } => {
                if let Some(id) = state.pools.drop(id)? {
                    self.control(Control::DropPool { id });
                }
            }
            Control::NameVariable { id, module, .. } => {
                state.objects.name(module, id)?;
                // SAFETY: gives nothing up.
                if let Err(error) = unsafe { self.backend.control(control) } {
                    state.objects.spread_over(id, &error);
                }
            }
            Control::UnloadModule { id } => {
                state.objects.unload(id);
                if state.modules.remove(id) {
                    self.control(Control::UnloadModule { id });
                }
                // Requests and launches that wait for the module get their errors.
                self.answer_loaded(state);
                self.advance(state);
            }
            Control::DropGraph { id } => self.drop_graph(state, id),
            // The wire protocol has no others.
            _ => return Err(violation("a lease does not have this control")),
        }
        Ok(())
    }

    /// Takes an allocation, which may have to wait.
    fn announce(
        &self,
        state: &mut State,
        pool: PoolId,
        id: AllocId,
        bytes: u64,
        at: Ticket,
    ) -> Result<(), SessionError> {
        state.expect(at)?;
        state.objects.announce(id)?;
        state.pools.announce(pool, id)?;
        let task = Task::Allocate { number: at.number, pool, id, bytes };
        self.put(state, at.stream, Vec::new(), task)
    }

    fn create_stream(
        &self,
        state: &mut State,
        id: StreamId,
        priority: i32,
    ) -> Result<(), SessionError> {
        if state.streams.len() as u64 >= u64::from(self.limits.streams) {
            return Err(violation(format!("more than {} streams exist", self.limits.streams)));
        }
        // A removed stream has completed its submissions, so a later stream cannot have its id.
        if let Some(newest) = state.newest_stream
            && id <= newest
        {
            return Err(violation(format!(
                "stream {} is not larger than the newest stream, {}; ids of streams must rise",
                id.0, newest.0
            )));
        }
        if self.reports.streams() >= self.limits.streams as usize + RETIRED_LIMIT {
            return Err(violation(format!(
                "at least {RETIRED_LIMIT} retired streams still have work in flight, which is the limit; wait for it \
                 before creating a stream"
            )));
        }
        state.newest_stream = Some(id);
        state.streams.insert(id, Stream::default());
        self.reports.create(id);
        self.control(Control::CreateStream { id, priority });
        Ok(())
    }

    pub(super) fn load_module(
        &self,
        state: &mut State,
        id: ModuleId,
        kind: ImageKind,
        hash: Hash,
        bytes: u64,
    ) -> Result<(), SessionError> {
        let limit = self.limits.module_bytes;
        if bytes > limit {
            let message = format!("module {} has {bytes} bytes; the limit is {limit}", id.0);
            return Err(violation(message));
        }
        state.modules.announce(id, hash, kind)?;
        if state.modules.len() > OBJECT_LIMIT {
            return Err(violation(format!("more than {OBJECT_LIMIT} modules exist")));
        }
        Ok(())
    }

    /// Returns the free memory of pools to the system. Asks for no reply.
    pub(super) fn trim(&self, pools: Vec<PoolId>) {
        for pool in pools {
            self.backend.request(Request::TrimPool { pool, keep: 0 }, Answer::new(drop));
        }
    }

    /// Takes a part of a module's code.
    pub(in crate::worker) fn blob(&self, hash: Hash, total: u64, part: &[u8]) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let loads = state.modules.arrived(hash, total, part);
        if !loads.is_empty() {
            for Load { id, image, ready } in loads {
                self.control(Control::LoadModule { id, image });
                self.await_ready(Request::Loaded { module: id }, &ready);
            }
            self.answer_loaded(state);
            self.advance(state);
        }
    }
}
