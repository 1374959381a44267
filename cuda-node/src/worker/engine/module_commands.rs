//! Commands about modules, and the code that arrives for them.

use cuda_core::protocol::{AllocId, Control, ModuleId, Request};
use cuda_lease::{
    session::SessionError,
    wire::{Hash, ImageKind},
};

use super::{
    Engine,
    objects::OBJECT_LIMIT,
    state::{State, violation},
};
use crate::worker::modules::Load;

impl Engine {
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

    pub(super) fn unload_module(&self, state: &mut State, id: ModuleId) {
        state.objects.unload(id);
        if state.modules.remove(id) {
            self.control(Control::UnloadModule { id });
        }
        // Queries and launches that wait for the module get their errors.
        self.answer_loaded(state);
        self.advance(state);
    }

    pub(super) fn name_variable(
        &self,
        state: &mut State,
        id: AllocId,
        module: ModuleId,
        name: String,
        bytes: u64,
    ) -> Result<(), SessionError> {
        state.objects.name(module, id)?;
        let control = Control::NameVariable { id, module, name, bytes };
        // SAFETY: gives nothing up.
        if let Err(error) = unsafe { self.backend.control(control) } {
            state.objects.spread_over(id, &error);
        }
        Ok(())
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
