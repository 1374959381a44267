//! `DeviceModule`: a module that is loaded once, and the callers that wait for it.

use cuda_core::{CachedModule, Module, Result};
use futures_util::{
    FutureExt,
    future::{Shared, WeakShared},
};
use parking_lot::Mutex;

use super::code::LoadingCode;

/// The module of one device.
#[derive(Debug, Default)]
pub(super) struct DeviceModule {
    /// Locked while a blocking caller loads.
    load: Mutex<()>,
    /// Locked for single reads and writes. Only the start of a load runs under the lock.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Empty,
    /// Operations wait for this load. It is dropped with the last of them.
    Loading(WeakShared<LoadingCode>),
    Loaded(CachedModule),
}

impl DeviceModule {
    /// Returns the module if it is loaded.
    pub(super) fn module(&self) -> Option<Module> {
        match &*self.state.lock() {
            State::Loaded(module) => module.get(),
            State::Empty | State::Loading(_) => None,
        }
    }

    /// Returns the module. Loads it with `load` if it is not loaded; concurrent callers wait.
    pub(super) fn get_or_load(&self, load: impl FnOnce() -> Result<Module>) -> Result<Module> {
        if let Some(module) = self.module() {
            return Ok(module);
        }
        let _load = self.load.lock();
        match self.module() {
            Some(module) => Ok(module),
            None => Ok(self.store(load()?)),
        }
    }

    /// Returns whether the module is not in use and no caller loads it. The caller holds the lock of the cache, so no
    /// other thread finds the module meanwhile.
    pub(super) fn is_idle(&self) -> bool {
        if self.load.is_locked() {
            return false;
        }
        match &*self.state.lock() {
            State::Empty => true,
            State::Loading(load) => load.upgrade().is_none(),
            State::Loaded(module) => !module.is_in_use(),
        }
    }

    /// Stores a module, unless another one was stored meanwhile, and returns the stored one.
    pub(super) fn store(&self, module: Module) -> Module {
        let mut state = self.state.lock();
        if let State::Loaded(stored) = &*state
            && let Some(stored) = stored.get()
        {
            return stored;
        }
        *state = State::Loaded(module.cached());
        module
    }

    /// Returns the load that other operations wait for. If there is none, starts one, with the lock held so that no
    /// other thread starts a second one.
    pub(super) fn join_load(
        &self,
        start: impl FnOnce() -> Result<LoadingCode>,
    ) -> Result<Shared<LoadingCode>> {
        let mut state = self.state.lock();
        if let State::Loading(load) = &*state
            && let Some(load) = load.upgrade()
            && load.peek().is_none()
        {
            return Ok(load);
        }
        let load = start()?.shared();
        // If a blocking caller has stored the module meanwhile, `store` returns that one.
        if !matches!(*state, State::Loaded(_))
            && let Some(weak) = load.downgrade()
        {
            *state = State::Loading(weak);
        }
        Ok(load)
    }
}
