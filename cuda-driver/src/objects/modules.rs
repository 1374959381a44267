//! Modules: loaded on a helper thread, their kernels found by launches.
//!
//! # Rules
//! - A module is in the table from the control that loads it to the control that unloads it. A launch blocks while its
//!   module is loading. A client avoids this by waiting for [`Request::Loaded`](cuda_core::protocol::Request::Loaded)
//!   first.
//! - A slot that is dropped gives its module to the helper thread that unloads it. The load task holds the slot too.

use std::{
    ffi::CString,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32},
    },
};

use cuda_core::{
    internals::{IdMap, sync::HelperThread},
    protocol::{
        Answer, EntryInfo, Error, Feature, FunctionId, Misuse, ModuleId, ModuleImage, Reply,
        Result, module_info,
    },
};
use parking_lot::RwLock;

use super::images::{
    check_shared, compile, kernels_of, load_machine_code, ptx_version, refuse_too_much_shared,
};
use crate::{
    context::{Bound, IdCache, Primary, Reclaimable},
    driver::api::{Address, FunctionHandle, ModuleHandle, function_attribute as attribute},
    graphs::{Prepared, Replies},
    streams::taken,
};

/// The modules of one backend.
pub(crate) struct Modules {
    primary: &'static Primary,
    table: RwLock<IdMap<ModuleId, Arc<ModuleSlot>>>,
    cache: IdCache,
}

/// The slot of a module. It exists before the module is loaded.
pub(crate) type ModuleSlot = Prepared<LoadedModule>;

/// A loaded module. Unloaded when it is dropped, by a helper thread.
pub(crate) struct LoadedModule {
    primary: &'static Primary,
    raw: ModuleHandle,
    functions: Box<[DriverFunction]>,
    /// The variables that the driver found in the module.
    variables: Vec<DriverVariable>,
    /// The kernels of a cubin. Empty for PTX.
    entries: Vec<EntryInfo>,
    /// Whether it was loaded from a cubin or a fatbin.
    is_machine_code: bool,
    log: String,
}

/// A variable of a module.
struct DriverVariable {
    name: String,
    address: Address,
    bytes: u64,
}

/// A kernel, and the limits of its launches.
#[derive(Debug)]
pub(crate) struct DriverFunction {
    pub(crate) raw: FunctionHandle,
    pub(crate) name: String,
    pub(crate) param_bytes: u32,
    pub(crate) max_threads: u32,
    pub(crate) static_shared: u32,
    /// Whether a launch may have effects besides those on the memory of its arguments.
    pub(crate) has_other_effects: bool,
    /// Dynamic shared memory that it may be launched with at present. The first launch that needs more raises it.
    pub(crate) dynamic_shared: AtomicU32,
    /// Whether it may be launched with clusters of more than eight blocks. The first such launch sets it.
    pub(crate) has_large_clusters: AtomicBool,
}

impl Modules {
    pub(crate) fn new(primary: &'static Primary) -> Self {
        Self { primary, table: RwLock::default(), cache: IdCache::default() }
    }

    /// Starts to load a module on the helper thread. Never blocks.
    pub(crate) fn load(
        &self,
        id: ModuleId,
        image: ModuleImage,
        helper: &HelperThread,
    ) -> Result<()> {
        let (primary, slot) = (self.primary, Arc::new(ModuleSlot::pending()));
        {
            let mut table = self.table.write();
            if table.contains_key(&id) {
                return Err(taken("module", id.0));
            }
            table.insert(id, slot.clone());
        }
        helper.run(move || load(&slot, primary, image)).map_err(|error| {
            self.table.write().remove(&id);
            Error::host("failed to start the helper thread that loads modules", &error)
        })
    }

    /// Answers when the module is loaded, or has failed. Never blocks.
    pub(crate) fn answer_loaded(&self, id: ModuleId, answer: Answer) {
        let found = self.table.read().get(&id).cloned();
        match found {
            Some(slot) => slot.answer(answer),
            None => answer.give(Err(Error::no_such_object("module", id.0))),
        }
    }

    /// Returns a handle that keeps a module loaded.
    pub(crate) fn hold(&self, id: ModuleId) -> Result<Arc<ModuleSlot>> {
        self.table.read().get(&id).cloned().ok_or_else(|| Error::no_such_object("module", id.0))
    }

    /// Unloads a module that no launch uses. Later launches do not find it.
    pub(crate) fn unload(&self, id: ModuleId) -> Result<()> {
        let removed = self.table.write().remove(&id);
        let slot = removed.ok_or_else(|| Error::no_such_object("module", id.0))?;
        let entries = slot.ready().map_or(0, |module| module.functions.len() as u64);
        for entry in 0..entries {
            self.cache.evict([id.0, entry]);
        }
        Ok(())
    }

    /// The address of a variable of a loaded module, which has `bytes` bytes or more.
    pub(crate) fn variable(&self, id: ModuleId, name: &str, bytes: u64) -> Result<Address> {
        let slot = self.hold(id)?;
        let missing = || Error::NoSuchVariable {
            name: name.to_owned(),
            available: format!("none of this name with {bytes} bytes on the device"),
        };
        let module = slot.ready().ok_or_else(missing)?;
        let found = match module.variable(name) {
            // The variables of a cubin cannot be listed, so they are looked up by the names that the client has.
            None if module.is_machine_code => {
                let found = module.locate(name.to_owned(), &self.primary.bind()?);
                found.map(|found| (found.address, found.bytes))
            }
            found => found,
        };
        let found = found.filter(|(_, size)| *size >= bytes);
        found.map(|(address, _)| address).ok_or_else(missing)
    }

    /// A kernel. Blocks while its module is loading.
    ///
    /// # Safety
    /// No thread unloads the module while the result is used.
    #[inline]
    pub(crate) unsafe fn find(&self, id: FunctionId) -> Result<&DriverFunction> {
        let found = match self.cache.get([id.module.0, id.entry.into()]) {
            Some([address, _]) => std::ptr::with_exposed_provenance(address as usize),
            None => self.look_up(id)?,
        };
        // SAFETY: it stands in the list of a loaded module, which never changes and stays loaded, as the caller
        // promises. An unloaded module is evicted from the cache (rule 4).
        Ok(unsafe { &*found })
    }

    #[cold]
    fn look_up(&self, id: FunctionId) -> Result<*const DriverFunction> {
        let slot = self.hold(id.module)?;
        let module = slot.wait()?;
        let function = module.function_at(id)?;
        let function = std::ptr::from_ref(function);
        let address = function.expose_provenance() as u64;
        self.cache.insert([id.module.0, id.entry.into()], [address, 0]);
        Ok(function)
    }

    /// Whether a launch of a kernel may have effects besides those on the memory of its arguments.
    pub(crate) fn may_have_other_effects(&self, id: FunctionId) -> bool {
        let slot = self.hold(id.module);
        let module = slot.as_ref().ok().and_then(|slot| slot.ready());
        let function = module.as_ref().and_then(|module| module.function_at(id).ok());
        function.is_none_or(|function| function.has_other_effects)
    }

    /// Takes out every module, for a backend that is dropped.
    pub(crate) fn take(&mut self) -> Vec<Arc<ModuleSlot>> {
        std::mem::take(self.table.get_mut()).into_values().collect()
    }
}

/// Loads a module into its slot. Runs on the helper thread.
fn load(slot: &Arc<ModuleSlot>, primary: &'static Primary, image: ModuleImage) {
    // If this task is the last owner, the module was unloaded before it was loaded.
    slot.end(if Arc::strong_count(slot) == 1 {
        Err(Misuse::UnloadedModule.into())
    } else {
        LoadedModule::load(primary, image)
    });
}

impl Replies for LoadedModule {
    fn reply(&self) -> Reply {
        let max_threads = self.functions.iter().map(|function| function.max_threads).collect();
        Reply::Loaded { max_threads, log: self.log.clone(), entries: self.entries.clone() }
    }
}

impl LoadedModule {
    /// Loads a module, and moves the code of every kernel to the device. Blocks: the driver waits for running kernels,
    /// and launches of other threads wait with it.
    fn load(primary: &'static Primary, image: ModuleImage) -> Result<Self> {
        primary.alive()?;
        match image {
            ModuleImage::Ptx(text) => Self::compile(primary, text),
            ModuleImage::Cubin(image) => Self::load_cubin(primary, &image),
            _ => Err(Error::unsupported(Feature::ModuleImage, &primary.info.address)),
        }
    }

    fn compile(primary: &'static Primary, text: String) -> Result<Self> {
        let info = module_info(&text)?;
        // A text that cuda-ptx cannot parse is left to the driver.
        let parsed = cuda_ptx::parse(&text).ok();
        refuse_too_much_shared(primary, parsed.as_ref())?;
        let version = ptx_version(&text);
        let text = CString::new(text).map_err(|error| Error::InvalidPtx {
            detail: format!("there is a NUL character at byte {}", error.nul_position()),
        })?;
        let bound = primary.bind_own_thread()?;
        let (raw, log) = compile(primary, &text, version, &bound)?;
        let mut module = Self::new(primary, raw, log);
        let functions = info.entries.iter().map(|kernel| {
            let effects = has_other_effects(parsed.as_ref(), &kernel.name);
            let name = CString::new(kernel.name.as_str())
                .map_err(|error| Error::InvalidPtx { detail: error.to_string() })?;
            let mut function = FunctionHandle::NULL;
            // SAFETY: writes one handle; the module is loaded, and the name ends with a NUL.
            unsafe { primary.api.module_function(&mut function, raw, name.as_ptr()) }
                .map_err(|failed| primary.error(failed))?;
            module.function(function, kernel, effects, &bound)
        });
        module.functions = functions.collect::<Result<_>>()?;
        let variables = info.variables.into_iter();
        module.variables =
            variables.filter_map(|variable| module.locate(variable.name, &bound)).collect();
        Ok(module)
    }

    fn load_cubin(primary: &'static Primary, image: &[u8]) -> Result<Self> {
        let bound = primary.bind_own_thread()?;
        let raw = load_machine_code(primary, image, &bound)?;
        let mut module = Self::new(primary, raw, String::new());
        let kernels = kernels_of(primary, raw, &bound)?;
        let functions =
            kernels.iter().map(|(raw, kernel)| module.function(*raw, kernel, true, &bound));
        module.functions = functions.collect::<Result<_>>()?;
        module.entries = kernels.into_iter().map(|(_, kernel)| kernel).collect();
        module.is_machine_code = true;
        Ok(module)
    }

    /// Wraps a module that the driver has loaded. Dropping the result unloads the module.
    fn new(primary: &'static Primary, raw: ModuleHandle, log: String) -> Self {
        let (functions, variables, entries) = Default::default();
        Self { primary, raw, functions, variables, entries, is_machine_code: false, log }
    }

    /// Returns the address and size of a variable, or `None` if the driver does not have it.
    fn locate(&self, name: String, _: &Bound) -> Option<DriverVariable> {
        let (mut address, mut bytes) = (0, 0);
        let symbol = CString::new(name.as_str()).ok()?;
        // SAFETY: writes an address and an integer; the module is loaded, and the name ends with a NUL.
        unsafe {
            self.primary.api.module_global(&mut address, &mut bytes, self.raw, symbol.as_ptr())
        }
        .ok()?;
        Some(DriverVariable { name, address, bytes: bytes as u64 })
    }

    /// A kernel of this module.
    pub(crate) fn function_at(&self, id: FunctionId) -> Result<&DriverFunction> {
        self.functions.get(id.entry as usize).ok_or_else(|| {
            Error::no_such_object(format!("kernel in module {}", id.module.0), id.entry.into())
        })
    }

    fn variable(&self, name: &str) -> Option<(Address, u64)> {
        let found = self.variables.iter().find(|variable| variable.name == name);
        found.map(|variable| (variable.address, variable.bytes))
    }

    fn function(
        &self,
        raw: FunctionHandle,
        entry: &EntryInfo,
        has_other_effects: bool,
        _: &Bound,
    ) -> Result<DriverFunction> {
        let (primary, api) = (self.primary, self.primary.api);
        let failed = |failed| primary.error(failed);
        let ask = |attribute| -> Result<u32> {
            let mut value = 0;
            // SAFETY: writes one integer; the function is one of the module's.
            unsafe { api.function_get(&mut value, attribute, raw) }.map_err(failed)?;
            Ok(value.max(0).unsigned_abs())
        };
        // Moves the code to the device now: at the first launch that could wait for every running kernel.
        // SAFETY: the function is one of the module's.
        unsafe { api.function_load(raw) }.map_err(failed)?;
        let static_shared = ask(attribute::STATIC_SHARED)?;
        check_shared(&entry.name, static_shared.into(), primary.limits.shared)?;
        Ok(DriverFunction {
            raw,
            name: entry.name.clone(),
            param_bytes: entry.param_bytes(),
            max_threads: ask(attribute::MAX_THREADS_PER_BLOCK)?.min(primary.limits.threads),
            static_shared,
            has_other_effects,
            dynamic_shared: AtomicU32::new(ask(attribute::MAX_DYNAMIC_SHARED)?),
            has_large_clusters: AtomicBool::new(false),
        })
    }
}

/// Whether a kernel of a PTX text may have effects besides those on the memory of its arguments.
fn has_other_effects(module: Option<&cuda_ptx::Module>, kernel: &str) -> bool {
    let Some(module) = module else { return true };
    let named = (0..).zip(&module.functions).find(|(_, function)| function.name == kernel);
    named.is_none_or(|(index, _)| module.has_other_effects(index))
}

impl Drop for LoadedModule {
    fn drop(&mut self) {
        self.primary.reclaim.put(Box::new(Unloaded(self.raw)));
    }
}

/// The handle of a module that was dropped.
struct Unloaded(ModuleHandle);

impl Reclaimable for Unloaded {
    fn reclaim(
        self: Box<Self>,
        primary: &'static Primary,
        _: &Bound,
    ) -> Option<Box<dyn Reclaimable>> {
        // SAFETY: its slot was dropped, so no launch uses it (rule 4).
        _ = unsafe { primary.api.module_unload(self.0) };
        None
    }

    fn waits_for_device(&self, _: &Primary) -> bool {
        true
    }
}
