//! The loaded modules of a device, by id: a recording keeps those that its launches name.

use std::{
    any::Any,
    sync::{Arc, Weak},
};

use rustc_hash::FxHashMap;

use crate::{protocol::ModuleId, sync::Mutex};

#[derive(Default)]
pub(crate) struct LoadedModules(Mutex<FxHashMap<ModuleId, Weak<dyn Any + Send + Sync>>>);

impl LoadedModules {
    pub(crate) fn insert(&self, id: ModuleId, module: Weak<dyn Any + Send + Sync>) {
        self.0.lock().insert(id, module);
    }

    /// The module, unless its last handle is gone.
    pub(crate) fn find(&self, id: ModuleId) -> Option<Arc<dyn Any + Send + Sync>> {
        self.0.lock().get(&id).and_then(Weak::upgrade)
    }

    pub(crate) fn remove(&self, id: ModuleId) {
        let removed = self.0.lock().remove(&id);
        drop(removed);
    }
}
