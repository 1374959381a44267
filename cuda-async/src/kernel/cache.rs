//! `ModuleCache`: a module that is loaded once for each device.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use cuda_core::{CachedModule, Device, Module, Result, WeakDevice};
use futures_util::{
    FutureExt,
    future::{Shared, WeakShared},
};
use parking_lot::Mutex;

#[cfg(feature = "nvrtc")]
use crate::kernel::cuda_source::CudaSource;
use crate::{
    context::ExecutionContext,
    kernel::code::{Code, LoadingCode},
    op::{Live, Op, Submit},
};

/// A cache that loads a PTX text once for each device. It is for libraries: a function of a library gets its kernels
/// for the device of its caller, without a value that holds them.
///
/// ```
/// use cuda_async::{Error, kernel::ModuleCache, prelude::*};
///
/// static KERNELS: ModuleCache = ModuleCache::new(include_str!("../../../kernels/basic.ptx"));
///
/// /// Doubles every element, on the device of the operation.
/// pub fn double(x: DeviceBuffer<f32>) -> impl DeviceOp<Output = DeviceBuffer<f32>> + use<> {
///     KERNELS.module().then(move |module| {
///         let (scale, n) = (module.function("scale")?, x.len());
///         // SAFETY: `scale(x, factor, n)` writes x, all below n.
///         Ok::<_, Error>(unsafe { launch(&scale, LaunchConfig::for_num_elems(n), (x, 2.0f32, n as u32)) })
///     })
/// }
///
/// assert_eq!(h2d(vec![1.0f32, 2.0]).then(double).then(to_host).sync()?, [2.0, 4.0]);
/// # Ok::<(), Error>(())
/// ```
///
/// The cache keeps modules loaded, but no device open. Modules of a closed device leave the cache at the next use. A struct
/// of [`kernels!`](crate::kernels) has such a cache: see its `for_device`.
#[derive(Debug)]
pub struct ModuleCache {
    code: Code,
    devices: Mutex<Vec<(WeakDevice, Arc<Slot>)>>,
}

/// The module of one device.
#[derive(Debug, Default)]
struct Slot {
    /// Held while [`ModuleCache::get`] loads.
    load: Mutex<()>,
    /// Held only to look, and to store.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Empty,
    /// Operations wait for this load. It ends if all of them are dropped.
    Loading(WeakShared<LoadingCode>),
    Loaded(CachedModule),
}

impl Slot {
    /// Returns the module if it is loaded.
    fn module(&self) -> Option<Module> {
        match &*self.state.lock() {
            State::Loaded(module) => module.get(),
            State::Empty | State::Loading(_) => None,
        }
    }

    /// Stores a module, unless another one was stored meanwhile, and returns the stored one.
    fn store(&self, module: Module) -> Module {
        let mut state = self.state.lock();
        if let State::Loaded(stored) = &*state
            && let Some(stored) = stored.get()
        {
            return stored;
        }
        *state = State::Loaded(module.cached());
        module
    }

    /// Returns the load that other operations wait for. If there is none, starts one, with the lock held so that no other
    /// thread starts a second one.
    fn join_load(
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
        // If `get` has stored the module meanwhile, `store` returns that one.
        if !matches!(*state, State::Loaded(_))
            && let Some(weak) = load.downgrade()
        {
            *state = State::Loading(weak);
        }
        Ok(load)
    }
}

impl ModuleCache {
    /// Creates a cache for a PTX text. Nothing is loaded yet.
    pub const fn new(ptx: &'static str) -> Self {
        Self { code: Code::Ptx(ptx), devices: Mutex::new(Vec::new()) }
    }

    /// Creates a cache for a CUDA source. If its PTX was not compiled with the program, the first load compiles it.
    #[cfg(feature = "nvrtc")]
    pub const fn of_source(source: CudaSource) -> Self {
        Self { code: Code::Source(source), devices: Mutex::new(Vec::new()) }
    }

    /// Returns the module on `device`. The first call for a device compiles and loads the text, and blocks as
    /// [`Device::load_ptx`] does; concurrent calls wait for it. In async code use [`module`](ModuleCache::module).
    ///
    /// # Errors
    /// As [`Device::load_ptx`]. The next call tries again.
    pub fn get(&self, device: &Device) -> Result<Module> {
        let slot = self.slot(device);
        if let Some(module) = slot.module() {
            return Ok(module);
        }
        let _load = slot.load.lock();
        match slot.module() {
            Some(module) => Ok(module),
            None => Ok(slot.store(self.code.load(device)?)),
        }
    }

    /// Creates an operation whose output is the module on the operation's device. The first one for a device compiles
    /// and loads the text on a thread of the device, so no executor thread waits.
    ///
    /// # Errors
    /// As [`load_ptx`](crate::kernel::load_ptx). If the module is loaded already, the operation does not wait, and is
    /// possible in [`async_on`](crate::DeviceOp::async_on).
    pub fn module(&self) -> Op<LoadCached<'_>> {
        Op::new(LoadCached { cache: self, load: Live::new(None) })
    }

    /// The slot of `device`. Drops the slots of closed devices.
    fn slot(&self, device: &Device) -> Arc<Slot> {
        let mut devices = self.devices.lock();
        devices.retain(|(known, _)| !known.is_closed());
        if let Some((_, slot)) = devices.iter().find(|(known, _)| known.is(device)) {
            return slot.clone();
        }
        let slot = Arc::<Slot>::default();
        devices.push((device.downgrade(), slot.clone()));
        slot
    }
}

/// The steps of [`ModuleCache::module`].
pub struct LoadCached<'a> {
    cache: &'a ModuleCache,
    /// The load that this operation waits for.
    load: Live<Option<Shared<LoadingCode>>>,
}

impl Submit for LoadCached<'_> {
    type Output = Module;

    fn poll_submit(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<Module>> {
        let load = self.load.get()?;
        let slot = self.cache.slot(cx.device());
        if let Some(module) = slot.module() {
            self.load.end();
            return Poll::Ready(Ok(module));
        }
        let load = match load {
            Some(load) => load,
            None => {
                cx.wait_by_wakers("load_ptx", task)?;
                load.insert(slot.join_load(|| self.cache.code.start(cx.device()))?)
            }
        };
        let loaded = ready!(Pin::new(load).poll(task));
        self.load.end();
        Poll::Ready(loaded.map(|module| slot.store(module)))
    }
}
