//! `ModuleCache`: a module that is loaded once for each device, for all callers that wait for it.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use cuda_core::{CachedModule, Device, Error, Module, Result, WeakDevice};
use futures_util::{
    FutureExt,
    future::{Shared, WeakShared},
};
use parking_lot::Mutex;

use crate::{
    context::ExecutionContext,
    kernel::modules::code::{Code, Image, LoadingCode},
    op::{Op, Submit, Submitted},
    ops::DeviceOp,
};

#[cfg(feature = "nvrtc")]
use crate::kernel::modules::compile::CudaSource;

/// A cache that loads a PTX text once for each device. It is for libraries: a library function gets its kernels on the
/// device of the operation, and its caller passes no value that holds them.
///
/// ```standalone_crate
/// use cuda_async::{Error, kernel::ModuleCache, prelude::*};
///
/// static KERNELS: ModuleCache = ModuleCache::new(include_str!("../../../../kernels/basic.ptx"));
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
/// The cache keeps modules loaded, but no device open. Modules of a closed device leave the cache at the next use. A
/// struct of [`kernels!`](crate::kernels) has such a cache: see its `for_device`.
#[derive(Debug)]
pub struct ModuleCache {
    code: Code,
    images: &'static [Image],
    /// The operation that loads the module, for errors.
    loaded_by: &'static str,
    devices: Mutex<Vec<(WeakDevice, Arc<DeviceModule>)>>,
}

impl ModuleCache {
    /// Creates a cache for a PTX text. Nothing is loaded yet.
    pub const fn new(ptx: &'static str) -> Self {
        Self::of_code(Code::Ptx(ptx))
    }

    /// Creates a cache for a CUDA source. If its PTX was not compiled with the program, the first load compiles it.
    #[cfg(feature = "nvrtc")]
    pub const fn of_source(source: CudaSource) -> Self {
        Self::of_code(Code::Source(source))
    }

    const fn of_code(code: Code) -> Self {
        let devices = Mutex::new(Vec::new());
        Self { code, images: &[], loaded_by: "ModuleCache::module()", devices }
    }

    /// Names the operation that loads the module, such as `Tensor::<f32>::warm_up()`. The error of an operation that
    /// cannot wait for the module states it.
    pub const fn loaded_by(mut self, operation: &'static str) -> Self {
        self.loaded_by = operation;
        self
    }

    /// Adds machine code of the same kernels. A GPU loads the image that fits it, and compiles nothing. Other devices
    /// load the PTX, and so does a GPU that refuses the image.
    ///
    /// ```standalone_crate
    /// use cuda_async::kernel::{Image, ModuleCache};
    ///
    /// # const PTX: &str = include_str!("../../../../kernels/filter.ptx");
    /// # const CUBIN: &[u8] = include_bytes!("../../../tests/suite/filter_sm_90.cubin");
    /// // SAFETY: both files are `kernels/filter.cu`, compiled by NVIDIA's compiler.
    /// static FILTERS: ModuleCache = ModuleCache::new(PTX).with_images(&[unsafe { Image::cubin((9, 0), CUBIN) }]);
    /// let module = FILTERS.get(&cuda_async::open_blocking("cpu")?)?;
    /// assert!(module.function("filter").is_ok());
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    pub const fn with_images(mut self, images: &'static [Image]) -> Self {
        self.images = images;
        self
    }

    /// Loads the module on all of the devices at the same time, and blocks until it is loaded on all. Call it before a
    /// service takes requests, so that no request waits for a compiler. For one device in async code, use
    /// [`module`](Self::module).
    ///
    /// # Errors
    /// The error of [`get`](Self::get) for the first device that fails. The module is still loaded on the other
    /// devices.
    pub fn warm_up(&self, devices: &[Device]) -> Result<()> {
        let start = |device: &Device| {
            let device_module = self.device_module(device);
            // Hold the load: it is dropped with its last holder.
            match device_module.module() {
                Some(_) => Ok(None),
                None => device_module.join_load(|| self.code.start(device, self.images)).map(Some),
            }
        };
        let started: Vec<_> = devices.iter().map(start).collect();
        let wait = |(device, load): (&Device, Result<_>)| {
            load.and_then(|_: Option<Shared<LoadingCode>>| {
                self.module().sync_on(&device.lend_stream(0)?).map(drop)
            })
        };
        let ended: Vec<_> = devices.iter().zip(started).map(wait).collect();
        ended.into_iter().collect()
    }

    /// Returns the module on `device`. The first call for a device compiles and loads the text, and blocks as
    /// [`Device::load_ptx_blocking`] does; concurrent calls wait for it. In async code use
    /// [`module`](ModuleCache::module).
    ///
    /// # Errors
    /// The errors of [`Device::load_ptx_blocking`]. The next call tries again.
    pub fn get(&self, device: &Device) -> Result<Module> {
        self.device_module(device).get_or_load(|| self.load(device))
    }

    /// Loads the module on `device` as [`get`](Self::get) does, but does not keep it: it is unloaded after its last
    /// use.
    ///
    /// # Errors
    /// The errors of [`get`](Self::get).
    pub fn load(&self, device: &Device) -> Result<Module> {
        self.code.load(device, self.images)
    }

    /// Creates an operation whose output is the module on the operation's device. The first operation on a device
    /// compiles and loads the text on a thread of the device, so no executor thread waits.
    ///
    /// # Errors
    /// The errors of [`Device::load_ptx_blocking`]. If the module is loaded already, the operation does not wait, and
    /// is possible inside a graph and in [`async_on`](crate::DeviceOp::async_on). Otherwise it gives
    /// [`Error::NotLoaded`] there.
    pub fn module(&self) -> Op<LoadCached<'_>> {
        self.module_loaded_by(self.loaded_by)
    }

    /// As [`module`](Self::module). The error [`Error::NotLoaded`] names `operation`, which loads the module for this
    /// caller: a cache may have several users.
    pub(crate) fn module_loaded_by(&self, operation: &'static str) -> Op<LoadCached<'_>> {
        Op::new(LoadCached { cache: self, loaded_by: operation, load: None })
    }

    /// The module of `device`. Drops the modules of closed devices.
    fn device_module(&self, device: &Device) -> Arc<DeviceModule> {
        let mut devices = self.devices.lock();
        devices.retain(|(known, _)| !known.is_closed());
        if let Some((_, device_module)) = devices.iter().find(|(known, _)| known.is(device)) {
            return device_module.clone();
        }
        let device_module = Arc::<DeviceModule>::default();
        devices.push((device.downgrade(), device_module.clone()));
        device_module
    }
}

/// The steps of [`ModuleCache::module`].
pub struct LoadCached<'a> {
    cache: &'a ModuleCache,
    loaded_by: &'static str,
    /// The load that this operation waits for.
    load: Option<Shared<LoadingCode>>,
}

impl Submit for LoadCached<'_> {
    type Output = Module;

    fn submit(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        let Self { cache, loaded_by, load } = self;
        let device_module = cache.device_module(cx.device());
        if let Some(module) = device_module.module() {
            return Ok(Submitted::Ready(module));
        }
        let mut load = match load {
            Some(load) => load,
            None => {
                let may_wait = cx.waits().wait_by_wakers("load_ptx", task);
                may_wait.map_err(|error| not_loaded(error, loaded_by))?;
                device_module.join_load(|| cache.code.start(cx.device(), cache.images))?
            }
        };
        Ok(match Pin::new(&mut load).poll(task)? {
            Poll::Ready(module) => Submitted::Ready(device_module.store(module)),
            Poll::Pending => Submitted::Pending(Self { cache, loaded_by, load: Some(load) }),
        })
    }
}

#[cold]
fn not_loaded(error: Error, operation: &'static str) -> Error {
    match error {
        Error::NeedsHostData { .. } => Error::NotLoaded { by: operation.into() },
        error => error,
    }
}

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
