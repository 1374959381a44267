//! Loads modules and prepares graphs only while no test relies on a running kernel. Unloads no module, and destroys no
//! graph, before the process ends.
//!
//! While a GPU's driver loads or unloads a module or instantiates a graph, it waits for every running kernel, and
//! launches of other threads may wait with it (`benches/results/2026-11-23-h200-driver-waits.md`). A test that looks at
//! a kernel while it runs would then find that it has ended.

use std::{
    cell::RefCell,
    sync::{Mutex, PoisonError, RwLock, RwLockReadGuard},
};

use cuda_async::{
    Device, Error, Module,
    graph::{CudaGraph, Recording},
    prelude::*,
    to_device,
};

static LOADS: RwLock<()> = RwLock::new(());

thread_local! {
    static HELD_OFF: RefCell<Option<RwLockReadGuard<'static, ()>>> = const { RefCell::new(None) };
}

/// Loads PTX, as [`load`] loads any module.
pub fn load_ptx(device: &Device, ptx: &str) -> Result<Module, Error> {
    load(device, || device.load_ptx_blocking(ptx))
}

/// Loads a module. On a GPU, first waits until the threads that called [`hold_off_module_loads`] have ended, and keeps
/// the module loaded.
pub fn load(
    device: &Device,
    load: impl FnOnce() -> Result<Module, Error>,
) -> Result<Module, Error> {
    static KEPT: Mutex<Vec<Module>> = Mutex::new(Vec::new());
    if !is_gpu(device) {
        return load();
    }
    let module = alone(load)?;
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).push(module.clone());
    Ok(module)
}

/// Opens another GPU, and copies from `first` to it and back, while no test relies on a running kernel. The first open
/// creates a context, and the first copies enable the access of each device to the other one's memory. Both may hold up
/// other threads.
pub fn open_beside(first: &Device, address: &str) -> Result<Device, Error> {
    alone(|| {
        let second = cuda_async::open_blocking(address)?;
        let there = h2d([1u8]).then(|x| to_device(x, &second)).sync_on(&first.new_stream()?)?;
        to_device(there, first).sync_on(&second.new_stream()?)?;
        Ok(second)
    })
}

/// Prepares a graph while no test relies on a running kernel. On a GPU, keeps a handle of the graph, so that it is
/// never destroyed.
pub fn prepared<T: Send + Sync + 'static>(graph: CudaGraph<T>) -> CudaGraph<T> {
    if !is_gpu(graph.device()) {
        return graph;
    }
    alone(|| graph.upload()).unwrap();
    std::mem::forget(graph.clone());
    graph
}

/// As [`prepared`], for a recording, which the caller keeps.
pub fn prepare(recording: &Recording) {
    let prepare = || recording.prepare().wait();
    if is_gpu(recording.device()) { alone(prepare) } else { prepare() }.unwrap();
}

/// Runs `call` while no test relies on a running kernel.
fn alone<T>(call: impl FnOnce() -> T) -> T {
    // A thread that holds the read lock would wait for itself.
    let held = HELD_OFF.take();
    let holds_off = held.is_some();
    drop(held);
    let result = {
        let _alone = LOADS.write().unwrap_or_else(PoisonError::into_inner);
        call()
    };
    if holds_off {
        hold_off();
    }
    result
}

/// Keeps other tests from loading modules on a GPU until the calling thread ends. It may load modules itself.
pub fn hold_off_module_loads(device: &Device) {
    if is_gpu(device) {
        hold_off();
    }
}

fn hold_off() {
    let lock = || LOADS.read().unwrap_or_else(PoisonError::into_inner);
    HELD_OFF.with_borrow_mut(|held| _ = held.get_or_insert_with(lock));
}

fn is_gpu(device: &Device) -> bool {
    device.info().address.starts_with("cuda")
}
