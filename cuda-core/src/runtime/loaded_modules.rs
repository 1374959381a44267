//! The loaded modules of a device, by id: a recording keeps those that its launches name.

use std::{
    any::Any,
    sync::{Arc, Weak},
};

use rustc_hash::FxHashMap;

use crate::{
    protocol::{EntryInfo, ModuleId},
    sync::Mutex,
};

#[derive(Default)]
pub(crate) struct LoadedModules(Mutex<FxHashMap<ModuleId, Known>>);

struct Known {
    module: Weak<dyn Any + Send + Sync>,
    has_variables: bool,
    entries: Arc<[EntryInfo]>,
}

/// A loaded module.
pub(crate) struct Found {
    /// Keeps the module loaded.
    pub(crate) held: Arc<dyn Any + Send + Sync>,
    /// Whether its kernels may share variables.
    pub(crate) has_variables: bool,
    /// Its kernels, by their index.
    pub(crate) entries: Arc<[EntryInfo]>,
}

impl LoadedModules {
    /// `has_variables` says whether its kernels may share variables.
    pub(crate) fn insert(
        &self,
        id: ModuleId,
        module: Weak<dyn Any + Send + Sync>,
        has_variables: bool,
        entries: Arc<[EntryInfo]>,
    ) {
        self.0.lock().insert(id, Known { module, has_variables, entries });
    }

    /// The module, unless its last handle is gone.
    pub(crate) fn find(&self, id: ModuleId) -> Option<Found> {
        let modules = self.0.lock();
        let Known { module, has_variables, entries } = modules.get(&id)?;
        let (held, entries) = (module.upgrade()?, entries.clone());
        Some(Found { held, has_variables: *has_variables, entries })
    }

    pub(crate) fn remove(&self, id: ModuleId) {
        let removed = self.0.lock().remove(&id);
        drop(removed);
    }
}
