//! The loaded modules of a device, by id: a recording keeps those that its launches name.

use std::{
    any::Any,
    sync::{Arc, Weak},
};

use rustc_hash::FxHashMap;

use crate::{protocol::ModuleId, sync::Mutex};

#[derive(Default)]
pub(crate) struct LoadedModules(Mutex<FxHashMap<ModuleId, Known>>);

struct Known {
    module: Weak<dyn Any + Send + Sync>,
    has_variables: bool,
}

impl LoadedModules {
    /// `has_variables` says whether its kernels may share variables.
    pub(crate) fn insert(
        &self,
        id: ModuleId,
        module: Weak<dyn Any + Send + Sync>,
        has_variables: bool,
    ) {
        self.0.lock().insert(id, Known { module, has_variables });
    }

    /// The module, unless its last handle is gone, and whether its kernels may share variables.
    pub(crate) fn find(&self, id: ModuleId) -> Option<(Arc<dyn Any + Send + Sync>, bool)> {
        let modules = self.0.lock();
        let known = modules.get(&id)?;
        Some((known.module.upgrade()?, known.has_variables))
    }

    pub(crate) fn remove(&self, id: ModuleId) {
        let removed = self.0.lock().remove(&id);
        drop(removed);
    }
}
