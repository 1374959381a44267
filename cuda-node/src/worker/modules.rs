//! Modules of a session: those that wait for their code, and those of the backend.
//!
//! A launch of a module is held until the backend has loaded it, because the backend may block the launch until then.

use std::{
    collections::{BTreeSet, hash_map::Entry},
    mem,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use cuda_core::{
    Error,
    internals::IdMap,
    protocol::{ModuleId, ModuleImage},
};
use cuda_lease::{
    session::SessionError,
    wire::{Hash, ImageKind},
};

use super::{
    queries::Queries,
    quota::{Charge, Quota},
};

/// The maximum number of bytes of code of all modules of a lease. A module may use several times as much memory.
pub(super) const CODE: u64 = 256 << 20;

/// The modules of a session.
#[derive(Default)]
pub(super) struct Modules {
    states: IdMap<ModuleId, State>,
    /// The modules that wait for each code: there may be a million modules when code arrives.
    waiting: IdMap<Hash, BTreeSet<ModuleId>>,
    /// The blob whose parts are arriving.
    arriving: Option<(Hash, Vec<u8>)>,
    /// Queries that wait for a module's code.
    queries: Queries<ModuleId>,
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
            None => {
                self.waiting.entry(hash).or_default().insert(id);
                Ok(())
            }
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

    /// Adds a part of a blob. If that completes it, returns the modules to load, whose code `quota` counts, and those whose
    /// code is too much.
    pub(super) fn arrived(
        &mut self,
        hash: Hash,
        total: u64,
        part: &[u8],
        quota: &Arc<Quota>,
    ) -> (Vec<Load>, Vec<ModuleId>) {
        let (_, bytes) = match &mut self.arriving {
            Some(arriving) if arriving.0 == hash => arriving,
            other => other.insert((hash, Vec::new())),
        };
        bytes.extend_from_slice(part);
        if (bytes.len() as u64) < total {
            return Default::default();
        }
        let bytes = mem::take(bytes);
        self.arriving = None;
        let (mut loads, mut refused) = (Vec::new(), Vec::new());
        for id in self.waiting.remove(&hash).unwrap_or_default() {
            let Some(state) = self.states.get_mut(&id) else { continue };
            let State::Waiting { kind, .. } = *state else { continue };
            match quota.charge(bytes.len() as u64) {
                Ok(code) => {
                    let ready = Arc::<Ready>::default();
                    loads.push(Load { id, image: image(kind, &bytes), ready: ready.clone() });
                    *state = State::Sent { ready, _code: code };
                }
                Err(error) => {
                    *state = State::Refused(error);
                    refused.push(id);
                }
            }
        }
        (loads, refused)
    }

    /// Drops the code that has arrived in part.
    pub(super) fn forget_partial(&mut self) {
        self.arriving = None;
    }

    /// The code that modules wait for.
    pub(super) fn waiting(&self) -> impl Iterator<Item = Hash> + '_ {
        self.waiting.keys().copied()
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
        let removed = self.states.remove(&id);
        if let Some(State::Waiting { hash, .. }) = removed
            && let Entry::Occupied(mut waiting) = self.waiting.entry(hash)
        {
            waiting.get_mut().remove(&id);
            if waiting.get().is_empty() {
                waiting.remove();
            }
        }
        matches!(removed, Some(State::Sent { .. }))
    }

    /// The error of a module whose code is too much, or about which the reply is too long.
    pub(super) fn refusal(&self, id: ModuleId) -> Option<Error> {
        match self.states.get(&id)? {
            State::Refused(error) => Some(error.clone()),
            State::Sent { ready, .. } => ready.refusal.get().cloned(),
            State::Waiting { .. } => None,
        }
    }

    /// Remembers a query for a module whose code has not arrived.
    pub(super) fn ask(&mut self, module: ModuleId, query: u64) {
        self.queries.add(module, query);
    }

    /// Takes the queries for a module, if it has arrived or was removed.
    pub(super) fn answerable(&mut self, module: ModuleId) -> Vec<u64> {
        if self.has_arrived(module) { self.queries.take(&module) } else { Vec::new() }
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
    /// The error for those who ask about the end, if the reply is too long for a frame. A client may ask again and again,
    /// and the backend would make the reply each time.
    refusal: OnceLock<Error>,
}

impl Ready {
    /// The reply about the end is too long for a frame.
    pub(super) fn refuse(&self, error: Error) {
        _ = self.refusal.set(error);
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_loads_the_modules_that_wait_for_it_and_each_removal_leaves_nothing() {
        let (mut modules, quota) = (Modules::default(), Arc::new(Quota::new("", 10)));
        let (code, other) = ([1; 32], [2; 32]);
        for (id, hash) in [(1, code), (2, code), (3, other), (4, code)] {
            modules.announce(ModuleId(id), hash, ImageKind::Ptx).unwrap();
            modules.ask(ModuleId(id), id);
        }
        assert!(!modules.remove(ModuleId(1)));
        assert_eq!(modules.answerable(ModuleId(1)), [1]);
        let (loads, refused) = modules.arrived(code, 6, b"module", &quota);
        assert_eq!(loads.iter().map(|load| load.id).collect::<Vec<_>>(), [ModuleId(2)]);
        assert_eq!(refused, [ModuleId(4)]);
        let answered = [2, 3, 4].map(|id| modules.answerable(ModuleId(id)));
        assert_eq!(answered, [vec![2], vec![], vec![4]]);
        assert_eq!(modules.waiting().collect::<Vec<_>>(), [other]);
        assert!(!modules.remove(ModuleId(3)) && modules.remove(ModuleId(2)));
        assert!(modules.waiting.is_empty());
        assert_eq!((modules.answerable(ModuleId(3)), modules.waiting_queries()), (vec![3], 0));
    }
}
