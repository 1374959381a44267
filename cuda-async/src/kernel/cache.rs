//! `ModuleCache`: a module that is loaded once for each device.

use std::{
    sync::Arc,
    task::{Context, Poll, ready},
};

use cuda_core::{CachedModule, Device, Error, Loading, Module, Result, WeakDevice};
use parking_lot::Mutex;

use crate::{
    context::ExecutionContext,
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
    ptx: &'static str,
    devices: Mutex<Vec<(WeakDevice, Arc<Slot>)>>,
}

/// The module of one device. The lock is held while the first caller loads it.
type Slot = Mutex<Option<CachedModule>>;

impl ModuleCache {
    /// Creates a cache for a PTX text. Nothing is loaded yet.
    pub const fn new(ptx: &'static str) -> Self {
        Self { ptx, devices: Mutex::new(Vec::new()) }
    }

    /// Returns the module on `device`. The first call for a device compiles and loads the text, and blocks as
    /// [`Device::load_ptx`] does; concurrent calls wait for it. In async code use [`module`](ModuleCache::module).
    ///
    /// # Errors
    /// As [`Device::load_ptx`]. The next call tries again.
    pub fn get(&self, device: &Device) -> Result<Module> {
        let slot = self.slot(device);
        let mut cached = slot.lock();
        if let Some(module) = cached.as_ref().and_then(CachedModule::get) {
            return Ok(module);
        }
        let module = device.load_ptx(self.ptx)?;
        *cached = Some(module.cached());
        Ok(module)
    }

    /// Creates an operation whose output is the module on the operation's device. The first one for a device compiles
    /// and loads the text on a thread of the device, so no executor thread waits.
    ///
    /// # Errors
    /// As [`load_ptx`](crate::kernel::load_ptx). If the module is loaded already, the operation does not wait, and is
    /// possible in [`async_on`](crate::DeviceOp::async_on).
    pub fn module(&self) -> Op<LoadCached<'_>> {
        Op::new(LoadCached { cache: self, state: Live::new(None) })
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

    /// The module on `device` if it is loaded. Does not wait for a call that loads it now.
    fn loaded(&self, device: &Device) -> Option<Module> {
        self.slot(device).try_lock()?.as_ref()?.get()
    }

    /// Stores a module, unless another one was stored meanwhile, and returns the stored one.
    fn store(&self, module: Module) -> Module {
        let slot = self.slot(module.device());
        let Some(mut cached) = slot.try_lock() else { return module };
        match cached.as_ref().and_then(CachedModule::get) {
            Some(stored) => stored,
            None => {
                *cached = Some(module.cached());
                module
            }
        }
    }
}

/// The steps of [`ModuleCache::module`].
pub struct LoadCached<'a> {
    cache: &'a ModuleCache,
    /// The load that this operation has started.
    state: Live<Option<Box<Loading>>>,
}

impl Submit for LoadCached<'_> {
    type Output = Module;

    fn poll_submit(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<Module>> {
        if self.state.get()?.is_none() {
            if let Some(module) = self.cache.loaded(cx.device()) {
                self.state.end();
                return Poll::Ready(Ok(module));
            }
            cx.wait_by_wakers(task)?;
            let loading = cx.device().start_loading(self.cache.ptx)?;
            self.state.set(Some(Box::new(loading)));
        }
        let Some(loading) = self.state.get()? else {
            return Poll::Ready(Err(Error::AlreadyEnded));
        };
        let loaded = ready!(loading.poll(task));
        self.state.end();
        Poll::Ready(loaded.map(|module| self.cache.store(module)))
    }
}
