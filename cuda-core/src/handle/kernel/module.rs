//! Loaded code and its kernels.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use super::{parameter::Slot, variables::Variables};
use crate::{
    handle::{
        device::{Device, WeakDevice},
        memory::DeviceBuffer,
        stream::Allocation,
    },
    protocol::{
        Access, Control, Element, EntryInfo, Error, FunctionId, ModuleId, ModuleImage, ModuleInfo,
        Reply, Request, Result, VariableInfo, module_info,
    },
    runtime::{Pending, unexpected},
    sync::{Mutex, ShardedArc},
};

/// A module of kernels that is loaded on a device. It is unloaded after its last use, when the last clone, the last
/// [`Function`] and the last recording of its launches are dropped. On a GPU, unloading waits for every running kernel,
/// as loading does. Keep modules that are used again.
#[derive(Clone)]
pub struct Module(ShardedArc<Loaded>);

struct Loaded {
    device: Device,
    parts: Parts,
    /// The variables that were requested or launched through this handle. It keeps them, so that later launches are
    /// ordered with earlier uses.
    kept: Mutex<Vec<Arc<Allocation>>>,
}

/// The parts of a module without the device. Clones are the same module.
#[derive(Clone)]
struct Parts {
    id: ModuleId,
    /// Recordings hold it too.
    unloads: Arc<Unloads>,
    entries: Arc<[EntryInfo]>,
    log: Arc<str>,
    /// The limits of each entry, in the order of `entries`.
    shapes: Arc<[Shape]>,
    variables: Arc<Variables>,
}

/// A handle that keeps a [`Module`] loaded, but not its device open. It is for caches, whose entries should not outlive
/// their device.
#[derive(Clone)]
pub struct CachedModule {
    device: WeakDevice,
    parts: Parts,
}

/// The limits of launches of a kernel, ready to be compared.
pub(super) struct Shape {
    pub(super) slots: Vec<Slot>,
    pub(super) max_threads: u32,
    pub(super) max_shared_bytes: u32,
}

/// A module that is being loaded. Dropping it unloads the module.
#[derive(Debug)]
pub struct Loading {
    /// The device, the module, and its contents. Taken when the module is loaded.
    module: Option<(Device, Unloads, ModuleInfo)>,
    reply: Pending<Reported>,
}

/// The part of a module that only the device knows.
struct Reported {
    /// The largest block of each kernel.
    max_threads: Vec<u32>,
    /// The compiler's log.
    log: String,
    /// The kernels of a cubin.
    entries: Vec<EntryInfo>,
}

/// Unloads a module when it is dropped.
#[derive(Debug)]
struct Unloads {
    /// A device unloads its modules when it is closed.
    device: WeakDevice,
    id: ModuleId,
}

impl Drop for Unloads {
    fn drop(&mut self) {
        if let Some(device) = self.device.upgrade() {
            device.core().modules.remove(self.id);
            device.core().retire_module(self.id);
        }
    }
}

impl Device {
    /// Compiles and loads PTX. Blocks: a GPU's compiler may take a hundred milliseconds.
    ///
    /// Do not call it inside a waker: the thread that calls the waker may be the one that loads.
    ///
    /// Load modules before the work that uses them begins. While a GPU's driver loads a module, it waits for every running
    /// kernel, and launches, copies and polls of other threads wait with it.
    ///
    /// # Errors
    /// [`Error::InvalidPtx`], [`Error::PtxTooNew`], or [`Error::LoadFailed`] with the compiler's log.
    pub fn load_ptx(&self, ptx: &str) -> Result<Module> {
        self.start_loading(ptx)?.wait()
    }

    /// Starts to compile and load PTX, without blocking. The compiler runs on a thread of the device.
    ///
    /// # Errors
    /// [`Error::InvalidPtx`], if the kernels of the text cannot be listed.
    pub fn start_loading(&self, ptx: &str) -> Result<Loading> {
        Loading::new(self, module_info(ptx)?, ModuleImage::Ptx(ptx.to_owned()))
    }

    /// Loads a cubin or a fatbin: machine code, which needs no compiler on this machine. Otherwise the same as
    /// [`load_ptx`](Self::load_ptx).
    ///
    /// The types of parameters are unknown, so launches check the number and the sizes of arguments, not their kinds.
    /// [`Module::variables`] is empty. The driver tells the parameters since CUDA 12.4.
    ///
    /// # Errors
    /// [`Error::LoadFailed`] if it is no such image or contains no code for this GPU, and [`Error::Unsupported`] with an
    /// older driver, or on a device that is no NVIDIA GPU.
    ///
    /// # Safety
    /// The image is complete and was made by NVIDIA's tools: the driver reads its lengths from the image itself.
    pub unsafe fn load_cubin(&self, image: &[u8]) -> Result<Module> {
        // SAFETY: the caller's promise.
        unsafe { self.start_loading_cubin(image) }?.wait()
    }

    /// Starts to load a cubin or a fatbin, without blocking.
    ///
    /// # Errors
    /// [`Error::LoadFailed`] if it is no such image.
    ///
    /// # Safety
    /// As for [`load_cubin`](Self::load_cubin).
    pub unsafe fn start_loading_cubin(&self, image: &[u8]) -> Result<Loading> {
        check_machine_code(image)?;
        let (entries, variables) = Default::default();
        // The kernels may share variables.
        let info = ModuleInfo { entries, variables, has_variables: true };
        Loading::new(self, info, ModuleImage::Cubin(image.to_owned()))
    }
}

/// Checks the first bytes of an image.
fn check_machine_code(image: &[u8]) -> Result<()> {
    const ELF: &[u8] = b"\x7fELF";
    const FATBIN: &[u8] = &0xBA55_ED50_u32.to_le_bytes();
    if image.starts_with(ELF) || image.starts_with(FATBIN) {
        return Ok(());
    }
    let is_text = std::str::from_utf8(image).is_ok_and(|text| text.contains(".version"));
    let log = match is_text {
        true => "the image is PTX; load it with `load_ptx`",
        false => {
            "the image is neither a cubin nor a fatbin; make one with `nvcc -cubin` or `nvcc -fatbin`"
        }
    };
    Err(Error::LoadFailed { log: log.into() })
}

impl Loading {
    fn new(device: &Device, info: ModuleInfo, image: ModuleImage) -> Result<Self> {
        let core = device.core();
        core.reclaim_all();
        let id = ModuleId(core.next_id());
        // SAFETY: the control frees, retires and unloads nothing.
        unsafe { core.backend.control(Control::LoadModule { id, image }) }?;
        let reply = core.request(Request::Loaded { module: id }, |reply| match reply {
            Reply::Loaded { max_threads, log, entries } => {
                Ok(Reported { max_threads, log, entries })
            }
            other => Err(unexpected(&other)),
        });
        let unloads = Unloads { device: device.downgrade(), id };
        Ok(Self { module: Some((device.clone(), unloads, info)), reply })
    }

    /// Polls for the loaded module.
    ///
    /// # Errors
    /// As [`Device::load_ptx`].
    pub fn poll(&mut self, task: &mut Context<'_>) -> Poll<Result<Module>> {
        let reply = ready!(self.reply.poll(task));
        Poll::Ready(reply.and_then(|reply| self.take(reply)))
    }

    /// Blocks until the module is loaded.
    ///
    /// # Errors
    /// As [`Device::load_ptx`].
    pub fn wait(mut self) -> Result<Module> {
        let taken = Pending::ready(Err(Error::AlreadyEnded));
        let reply = std::mem::replace(&mut self.reply, taken).wait()?;
        self.take(reply)
    }

    fn take(&mut self, reported: Reported) -> Result<Module> {
        let Reported { max_threads, log, entries } = reported;
        let (device, unloads, mut info) = self.module.take().ok_or(Error::AlreadyEnded)?;
        info.entries.extend(entries);
        info.entries.iter_mut().zip(max_threads).for_each(|(entry, most)| entry.max_threads = most);
        Ok(Module::new(device, unloads, info, log))
    }
}

impl Future for Loading {
    type Output = Result<Module>;

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Result<Module>> {
        Loading::poll(self.get_mut(), task)
    }
}

impl Module {
    fn new(device: Device, unloads: Unloads, info: ModuleInfo, log: String) -> Self {
        let ModuleInfo { entries, variables, has_variables } = info;
        let id = unloads.id;
        let max_shared_bytes = device.info().max_shared_bytes;
        let shape = |entry: &EntryInfo| Shape {
            slots: entry.params.iter().map(Slot::new).collect(),
            max_threads: entry.max_threads,
            max_shared_bytes,
        };
        let shapes = entries.iter().map(shape).collect();
        let unloads = Arc::new(unloads);
        device.core().modules.insert(id, Arc::downgrade(&unloads) as _, has_variables);
        let (entries, log) = (entries.into(), log.into());
        let variables = Arc::new(Variables::new(variables));
        let parts = Parts { id, unloads, entries, log, shapes, variables };
        Self::with_parts(device, parts)
    }

    fn with_parts(device: Device, parts: Parts) -> Self {
        Self(ShardedArc::new(Loaded { device, parts, kept: Mutex::default() }))
    }

    /// Returns a handle that keeps the module loaded, but not its device open.
    pub fn cached(&self) -> CachedModule {
        CachedModule { device: self.device().downgrade(), parts: self.0.parts.clone() }
    }

    /// Returns the device of this module.
    #[inline]
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Returns the kernels of this module.
    pub fn entries(&self) -> &[EntryInfo] {
        &self.0.parts.entries
    }

    /// Returns the output of the device's compiler, which is often empty.
    pub fn log(&self) -> &str {
        &self.0.parts.log
    }

    /// Returns the kernel with this name.
    ///
    /// # Errors
    /// [`Error::NoSuchKernel`], which lists the kernels of the module.
    pub fn function(&self, name: &str) -> Result<Function> {
        let found = self.entries().iter().position(|entry| entry.name == name);
        let entry = found.ok_or_else(|| self.no_such_kernel(name))?;
        Ok(Function { module: self.clone(), entry: entry as u32 })
    }

    /// Returns the variables of this module: `__device__` and `__constant__` in CUDA C, `.global` and `.const` in PTX.
    pub fn variables(&self) -> &[VariableInfo] {
        &self.0.parts.variables.infos
    }

    /// Returns the memory of a variable as a buffer of elements of type `T`, to be uploaded, read back, filled or sliced
    /// like any other buffer. The variable belongs to the module: the buffer keeps the module loaded, and dropping it
    /// frees nothing. Buffers of one variable are the same memory.
    ///
    /// From the first call for a variable on, the library orders every launch of a kernel that may use it with all other
    /// uses: as a read if the variable is `__constant__`, as a write if it is `__device__`. So kernels that share such a
    /// `__device__` variable run one after the other, on all streams. Call this before other threads launch such kernels.
    /// The order ends when the buffers of the variable and the handles of the module that used it are dropped.
    ///
    /// The type of the elements is not checked, only their size.
    ///
    /// ```
    /// use cuda_core::{Device, DeviceBuffer};
    /// # fn example(device: &Device) -> cuda_core::Result<()> {
    /// let ptx = ".version 7.0\n.target sm_50\n.visible .const .align 4 .b8 taps[20];\n.entry k() { ret; }";
    /// let module = device.load_ptx(ptx)?;
    /// let taps: DeviceBuffer<f32> = module.variable("taps")?;
    /// assert_eq!(taps.len(), 5);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchVariable`], which lists the variables of the module; [`Error::OutOfRange`] if the size of the
    /// variable is no multiple of the size of `T`; or an error of the device.
    pub fn variable<T: Element>(&self, name: &str) -> Result<DeviceBuffer<T>> {
        let Parts { id, unloads, variables, .. } = &self.0.parts;
        let found = variables.infos.iter().position(|it| it.name == name);
        let index = found.ok_or_else(|| self.no_such_variable(name))?;
        let len = elements::<T>(&variables.infos[index])?;
        let allocation = variables.open(index, self.device(), *id, unloads.clone())?;
        self.keep(&allocation);
        Ok(DeviceBuffer::of_variable(allocation, len))
    }

    fn keep(&self, variable: &Arc<Allocation>) {
        let mut kept = self.0.kept.lock();
        if !kept.iter().any(|it| it.id() == variable.id()) {
            kept.push(variable.clone());
        }
    }

    fn no_such_kernel(&self, name: &str) -> Error {
        let available = list(self.entries().iter().map(|entry| &entry.name));
        Error::NoSuchKernel { name: name.to_owned(), available }
    }

    fn no_such_variable(&self, name: &str) -> Error {
        let available = list(self.variables().iter().map(|variable| &variable.name));
        Error::NoSuchVariable { name: name.to_owned(), available }
    }
}

/// Names in words.
fn list<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let names: Vec<_> = names.map(|name| format!("`{name}`")).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// The number of elements of a variable.
fn elements<T>(variable: &VariableInfo) -> Result<usize> {
    let (bytes, size) = (variable.bytes, size_of::<T>() as u64);
    match bytes.checked_rem(size) {
        Some(0) => Ok((bytes / size) as usize),
        _ => {
            let (what, ty) = (format!("variable `{}`", variable.name), std::any::type_name::<T>());
            let detail = format!(
                "its {bytes} bytes are no whole number of {ty} of {size} bytes; use its own element type"
            );
            Err(Error::OutOfRange { what: what.into(), detail })
        }
    }
}

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.entries().iter().map(|entry| &entry.name)).finish()
    }
}

impl CachedModule {
    /// Returns the module, if its device is still open.
    pub fn get(&self) -> Option<Module> {
        let (device, parts) = (self.device.upgrade()?, self.parts.clone());
        Some(Module::with_parts(device, parts))
    }
}

impl std::fmt::Debug for CachedModule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CachedModule({:?})", self.device)
    }
}

/// A kernel of a loaded module. Clones are the same kernel.
#[derive(Clone)]
pub struct Function {
    module: Module,
    entry: u32,
}

impl Function {
    /// Returns the name and the parameters of this kernel.
    pub fn info(&self) -> &EntryInfo {
        // The index was found in this list, which never changes.
        &self.module.entries()[self.entry as usize]
    }

    /// Returns the name of this kernel.
    pub fn name(&self) -> &str {
        &self.info().name
    }

    /// Returns the module of this kernel.
    pub fn module(&self) -> &Module {
        &self.module
    }

    /// Returns the device of this kernel.
    #[inline]
    pub fn device(&self) -> &Device {
        self.module.device()
    }

    #[inline]
    pub(super) fn shape(&self) -> &Shape {
        // As for `info`.
        &self.module.0.parts.shapes[self.entry as usize]
    }

    /// Whether this kernel may use a variable that has an allocation.
    #[inline]
    pub(super) fn may_use_variables(&self) -> bool {
        self.module.0.parts.variables.any() && !self.info().variables.is_empty()
    }

    /// The allocations of the variables that this kernel may use, with its access to them.
    pub(super) fn variables(&self) -> Vec<(Arc<Allocation>, Access)> {
        let variables = &self.module.0.parts.variables;
        let used = self.info().variables.iter().filter_map(|index| {
            let allocation = variables.find(*index)?;
            self.module.keep(&allocation);
            let constant = variables.infos[*index as usize].is_constant;
            Some((allocation, if constant { Access::Read } else { Access::Write }))
        });
        used.collect()
    }

    #[inline]
    pub(super) fn id(&self) -> FunctionId {
        FunctionId { module: self.module.0.parts.id, entry: self.entry }
    }
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Function({})", self.name())
    }
}
