//! Modules of a session: those that wait for their code, and those of the backend.
//!
//! A launch of a module is held until the backend has loaded it, because the backend may block the launch until then.

use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use cuda_core::{
    Error,
    protocol::{IdMap, ModuleId, ModuleImage},
};
use cuda_lease::{
    session::SessionError,
    wire::{Hash, ImageKind},
};

use super::quota::{Charge, Quota};

/// The maximum number of bytes of code of all modules of a lease. A module may use several times as much memory.
pub(super) const CODE: u64 = 256 << 20;

/// The modules of a session.
#[derive(Default)]
pub(super) struct Modules {
    states: IdMap<ModuleId, State>,
    /// The blob whose parts are arriving.
    arriving: Option<(Hash, Vec<u8>)>,
    /// Queries that wait for a module's code.
    queries: Vec<(ModuleId, u64)>,
}

enum State {
    Waiting {
        hash: Hash,
        kind: ImageKind,
    },
    /// The backend loads it, or has loaded it.
    Sent {
        ready: Arc<Ready>,
        /// The memory of its code.
        _code: Charge,
    },
    /// Its code has arrived and is too much.
    Refused(Error),
}

/// A module that the backend can load.
pub(super) struct Load {
    pub(super) id: ModuleId,
    pub(super) image: ModuleImage,
    pub(super) ready: Arc<Ready>,
}

impl Modules {
    /// Adds a module whose code will arrive.
    ///
    /// # Errors
    /// The id is in use.
    pub(super) fn announce(
        &mut self,
        id: ModuleId,
        hash: Hash,
        kind: ImageKind,
    ) -> Result<(), SessionError> {
        match self.states.insert(id, State::Waiting { hash, kind }) {
            None => Ok(()),
            Some(_) => {
                Err(SessionError::Command(format!("the id of module {} is already in use", id.0)))
            }
        }
    }

    /// The number of modules.
    pub(super) fn len(&self) -> usize {
        self.states.len()
    }

    /// The number of queries that wait.
    pub(super) fn waiting_queries(&self) -> usize {
        self.queries.len()
    }

    /// Adds a part of a blob. If that completes it, returns the modules to load, whose code `quota` counts.
    pub(super) fn arrived(
        &mut self,
        hash: Hash,
        total: u64,
        part: &[u8],
        quota: &Arc<Quota>,
    ) -> Vec<Load> {
        let (_, bytes) = match &mut self.arriving {
            Some(arriving) if arriving.0 == hash => arriving,
            other => other.insert((hash, Vec::new())),
        };
        bytes.extend_from_slice(part);
        if (bytes.len() as u64) < total {
            return Vec::new();
        }
        let bytes = mem::take(bytes);
        self.arriving = None;
        let mut loads = Vec::new();
        for (id, state) in &mut self.states {
            if let State::Waiting { hash: wanted, kind } = state
                && *wanted == hash
            {
                let charge = match quota.charge(bytes.len() as u64) {
                    Ok(charge) => charge,
                    Err(error) => {
                        *state = State::Refused(error);
                        continue;
                    }
                };
                let ready = Arc::<Ready>::default();
                loads.push(Load { id: *id, image: image(*kind, &bytes), ready: ready.clone() });
                *state = State::Sent { ready, _code: charge };
            }
        }
        loads
    }

    /// Drops the code that has arrived in part.
    pub(super) fn forget_partial(&mut self) {
        self.arriving = None;
    }

    /// The code that modules wait for.
    pub(super) fn waiting(&self) -> impl Iterator<Item = Hash> + '_ {
        self.states.values().filter_map(|state| match state {
            State::Waiting { hash, .. } => Some(*hash),
            _ => None,
        })
    }

    /// Whether a module's code has arrived, or there is no such module.
    fn has_arrived(&self, id: ModuleId) -> bool {
        !matches!(self.states.get(&id), Some(State::Waiting { .. }))
    }

    /// Whether a launch of a module can be carried out without waiting, or fails.
    pub(super) fn can_launch(&self, id: ModuleId) -> bool {
        match self.states.get(&id) {
            Some(State::Waiting { .. }) => false,
            Some(State::Sent { ready, .. }) => ready.has_ended(),
            Some(State::Refused(_)) | None => true,
        }
    }

    /// Removes a module, if it exists. Returns whether the backend has it.
    pub(super) fn remove(&mut self, id: ModuleId) -> bool {
        matches!(self.states.remove(&id), Some(State::Sent { .. }))
    }

    /// The error of a module whose code is too much.
    pub(super) fn refusal(&self, id: ModuleId) -> Option<Error> {
        match self.states.get(&id) {
            Some(State::Refused(error)) => Some(error.clone()),
            _ => None,
        }
    }

    /// Remembers a query for a module whose code has not arrived.
    pub(super) fn ask(&mut self, module: ModuleId, query: u64) {
        self.queries.push((module, query));
    }

    /// Takes the queries whose modules have arrived or were removed.
    pub(super) fn answerable(&mut self) -> Vec<(ModuleId, u64)> {
        let (ready, waiting) =
            mem::take(&mut self.queries).into_iter().partition(|(id, _)| self.has_arrived(*id));
        self.queries = waiting;
        ready
    }
}

/// Bytes of PTX that are not UTF-8 reach the compiler as replacement characters, and it refuses them.
fn image(kind: ImageKind, bytes: &[u8]) -> ModuleImage {
    match kind {
        ImageKind::Ptx => ModuleImage::Ptx(String::from_utf8_lossy(bytes).into_owned()),
        ImageKind::Cubin => ModuleImage::Cubin(bytes.to_vec()),
    }
}

/// Whether the backend has prepared a graph, loaded a module or trimmed a pool, or failed to. A launch before that could
/// block.
#[derive(Default)]
pub(super) struct Ready {
    has_ended: AtomicBool,
    /// Set when the engine acts on the end. Before, the backend may answer while the engine holds its lock.
    is_awaited: AtomicBool,
}

impl Ready {
    /// Ends the preparation. Calls `advance` if the engine acts on the end.
    pub(super) fn end(&self, advance: impl FnOnce()) {
        self.has_ended.store(true, Ordering::SeqCst);
        if self.is_awaited.load(Ordering::SeqCst) {
            advance();
        }
    }

    /// Makes the end of the preparation advance the engine. A launch after this call sees an end that came before the
    /// call.
    pub(super) fn wait(&self) {
        self.is_awaited.store(true, Ordering::SeqCst);
    }

    /// Whether the preparation has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }
}
