//! Loads of modules, kept apart from the tests that need a running kernel.
//!
//! While a GPU's driver loads a module, it waits for every running kernel, and launches and event records of other
//! threads wait with it (`benches/results/2026-11-22-h200-driver-waits.md`). A test that looks at a kernel while it runs
//! would then find that it has ended.

use std::{
    cell::RefCell,
    sync::{PoisonError, RwLock, RwLockReadGuard},
};

use cuda_async::{Device, Error, Module};

static LOADS: RwLock<()> = RwLock::new(());

thread_local! {
    static NO_LOADS: RefCell<Option<RwLockReadGuard<'static, ()>>> = const { RefCell::new(None) };
}

/// Loads a module. On a GPU, waits for the tests that have called [`no_loads_from_here`].
pub fn load_ptx(device: &Device, ptx: &str) -> Result<Module, Error> {
    if !is_gpu(device) {
        return device.load_ptx(ptx);
    }
    // Otherwise this thread would wait for itself.
    let held = NO_LOADS.take().is_some();
    let module = {
        let _alone = LOADS.write().unwrap_or_else(PoisonError::into_inner);
        device.load_ptx(ptx)
    };
    if held {
        no_loads_from_here(device);
    }
    module
}

/// Keeps other tests from loading modules on a GPU until the calling thread ends or loads one itself.
pub fn no_loads_from_here(device: &Device) {
    if is_gpu(device) {
        let lock = || LOADS.read().unwrap_or_else(PoisonError::into_inner);
        NO_LOADS.with_borrow_mut(|held| _ = held.get_or_insert_with(lock));
    }
}

fn is_gpu(device: &Device) -> bool {
    device.info().address.starts_with("cuda")
}
