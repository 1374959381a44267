//! `ModuleStore`: a bounded cache of modules by their PTX.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use cuda_core::{Device, Module, Result, WeakDevice};
use futures_util::future::Shared;
use parking_lot::Mutex;

use super::code::LoadingCode;
use crate::kernel::modules::cache::DeviceModule;
use crate::{
    context::ExecutionContext,
    op::{Op, Submit, Submitted},
};

/// A cache of modules by their PTX text, with limits. It is for programs that make kernels while they run: it loads
/// each text once on each device, and unloads the modules that were used least recently.
///
/// ```standalone_crate
/// use cuda_async::{kernel::ModuleStore, prelude::*};
/// # const PTX: &str = include_str!("../../../../kernels/basic.ptx");
///
/// static GENERATED: ModuleStore = ModuleStore::new(64, 16 << 20);
///
/// let device = cuda_async::open_blocking("cpu")?;
/// let first = GENERATED.get(&device, PTX)?;
/// let scale = GENERATED.module(PTX).sync_on(&device.new_stream()?)?.function("scale")?;
/// assert_eq!((first.entries().len(), GENERATED.len()), (scale.module().entries().len(), 1));
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// A module is in use while a [`Module`], a [`Function`](crate::Function), a buffer of a variable or a recording of it
/// exists. It is never unloaded then, so the store may exceed its limits. On a GPU, unloading waits for the running
/// kernels, on a thread of the device. The store keeps no device open.
#[derive(Debug)]
pub struct ModuleStore {
    max_modules: usize,
    max_bytes: usize,
    entries: Mutex<Entries>,
}

/// The modules, in the order of their last use.
#[derive(Debug)]
struct Entries(Vec<Entry>);

#[derive(Debug, Clone)]
struct Entry {
    device: WeakDevice,
    ptx: Arc<str>,
    device_module: Arc<DeviceModule>,
}

impl ModuleStore {
    /// Creates a store for at most `max_modules` modules whose texts have at most `max_bytes` bytes together, over all
    /// devices.
    pub const fn new(max_modules: usize, max_bytes: usize) -> Self {
        Self { max_modules, max_bytes, entries: Mutex::new(Entries(Vec::new())) }
    }

    /// Returns the module of `ptx` on `device`. The first call for a text and a device compiles and loads it, and
    /// blocks as [`Device::load_ptx_blocking`] does; concurrent calls for it wait. In async code use
    /// [`module`](Self::module).
    ///
    /// # Errors
    /// The errors of [`Device::load_ptx_blocking`]. The next call tries again.
    pub fn get(&self, device: &Device, ptx: &str) -> Result<Module> {
        self.device_module(device, ptx).get_or_load(|| device.load_ptx_blocking(ptx))
    }

    /// Creates an operation whose output is the module of `ptx` on the operation's device. The first operation for a
    /// text and a device compiles and loads it on a thread of the device, so no executor thread waits. To load ahead,
    /// run the operation and drop the output.
    ///
    /// # Errors
    /// The errors of [`load_ptx`](crate::kernel::load_ptx). If the module is loaded already, the operation does not
    /// wait.
    pub fn module(&self, ptx: impl Into<Arc<str>>) -> Op<LoadStored<'_>> {
        Op::new(LoadStored { store: self, ptx: ptx.into(), load: None })
    }

    /// Returns the number of modules, in use or not.
    pub fn len(&self) -> usize {
        self.entries.lock().0.len()
    }

    /// Returns whether there are no modules.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Unloads all modules that are not in use.
    pub fn clear(&self) {
        let evicted = self.entries.lock().evict(0, 0, None);
        drop(evicted);
    }

    /// Returns the module of a text on a device, marks it as used, and evicts others if there are too many.
    fn device_module(&self, device: &Device, ptx: &str) -> Arc<DeviceModule> {
        let mut entries = self.entries.lock();
        let found =
            entries.0.iter().position(|entry| entry.device.is(device) && *entry.ptx == *ptx);
        let entry = match found {
            Some(index) => entries.0.remove(index),
            None => {
                Entry { device: device.downgrade(), ptx: ptx.into(), device_module: Arc::default() }
            }
        };
        let device_module = entry.device_module.clone();
        entries.0.push(entry);
        let evicted = match found {
            Some(_) => Vec::new(),
            None => entries.evict(self.max_modules, self.max_bytes, Some(&device_module)),
        };
        // Unloading a module calls the device.
        drop(entries);
        drop(evicted);
        device_module
    }
}

impl Entries {
    /// Removes the entries of closed devices. Then removes entries that are not in use, least recently used first,
    /// until the rest is within the limits. Keeps `kept`. Returns the removed entries.
    fn evict(
        &mut self,
        max: usize,
        max_bytes: usize,
        kept: Option<&Arc<DeviceModule>>,
    ) -> Vec<Entry> {
        let mut evicted: Vec<_> = self.0.extract_if(.., |entry| entry.device.is_closed()).collect();
        let mut bytes: usize = self.0.iter().map(|entry| entry.ptx.len()).sum();
        let mut count = self.0.len();
        evicted.extend(self.0.extract_if(.., |entry| {
            let is_kept = kept.is_some_and(|kept| Arc::ptr_eq(kept, &entry.device_module));
            // A caller that holds the entry's module is about to load or use it.
            let is_idle =
                Arc::strong_count(&entry.device_module) == 1 && entry.device_module.is_idle();
            let goes = (count > max || bytes > max_bytes) && !is_kept && is_idle;
            if goes {
                count -= 1;
                bytes -= entry.ptx.len();
            }
            goes
        }));
        evicted
    }
}

/// The steps of [`ModuleStore::module`].
pub struct LoadStored<'a> {
    store: &'a ModuleStore,
    ptx: Arc<str>,
    /// The module, which is not evicted meanwhile, and the load that this operation waits for.
    load: Option<(Arc<DeviceModule>, Shared<LoadingCode>)>,
}

impl Submit for LoadStored<'_> {
    type Output = Module;

    fn submit(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        let Self { store, ptx, load } = self;
        let (device_module, mut load) = match load {
            Some(load) => load,
            None => {
                let device_module = store.device_module(cx.device(), &ptx);
                if let Some(module) = device_module.module() {
                    return Ok(Submitted::Ready(module));
                }
                cx.waits().wait_by_wakers("load_ptx", task)?;
                let load = device_module.join_load(|| LoadingCode::of_ptx(cx.device(), &ptx))?;
                (device_module, load)
            }
        };
        Ok(match Pin::new(&mut load).poll(task)? {
            Poll::Ready(module) => Submitted::Ready(device_module.store(module)),
            Poll::Pending => {
                Submitted::Pending(Self { store, ptx, load: Some((device_module, load)) })
            }
        })
    }
}
