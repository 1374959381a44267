//! A loaded module: how it is loaded, its kernels with their occupancy, and its variables as buffers.
//!
//! # Order of variables
//! Kernels use variables without an argument. A variable gets an allocation, with its own history, at the first call of
//! `Module::variable`, or when a launch that may use it is recorded. From then on, every launch of a kernel that may
//! use the variable claims it: a constant for reading, another variable for writing. Such a launch holds no handle of
//! the variable. Therefore submissions that use a variable take turns (`stream::submit`).
//!
//! The device keeps one id for the variable until the module is unloaded. The allocation lives as long as a buffer of
//! the variable, a recording, or a module handle that opened it. A later allocation has the same id. Its history begins
//! with a join behind everything that was submitted before.

use std::{
    any::Any,
    future::Future,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll, ready},
};

use crate::{
    handle::{
        device::{Device, WeakDevice},
        kernel::launch::ExpectedArgument,
        memory::DeviceBuffer,
        stream::{Allocation, Stream},
    },
    protocol::{
        Access, AllocId, Control, Element, EntryInfo, Error, FunctionId, LaunchConfig, Limit,
        ModuleId, ModuleImage, ModuleInfo, Occupancy, Quantity, Reply, Request, Result,
        VariableInfo, module_info,
    },
    runtime::{Pending, unexpected},
    sync::{
        Mutex, ShardedArc,
        atomic::{AtomicBool, Ordering},
    },
};

/// A module of kernels that is loaded on a device. It is unloaded after its last use, when the last clone, the last
/// [`Function`](super::Function), the last buffer of a variable and the last recording of its launches are dropped. On
/// a GPU, unloading waits for every running kernel, as loading does. Keep modules that are used again.
#[derive(Clone)]
pub struct Module(pub(super) ShardedArc<Loaded>);

/// A loaded module, as its handles share it.
pub(super) struct Loaded {
    device: Device,
    pub(super) parts: Parts,
    /// The variables that this handle opened. The handle keeps them, so that later uses are ordered after earlier ones.
    kept: Mutex<Vec<Arc<Allocation>>>,
}

/// The parts of a module without the device. Clones are the same module.
#[derive(Clone)]
pub(super) struct Parts {
    pub(super) id: ModuleId,
    /// Recordings hold it too.
    unloads: Arc<Unloads>,
    entries: Arc<[EntryInfo]>,
    log: Arc<str>,
    /// The limits of each entry, in the order of `entries`.
    pub(super) shapes: Arc<[Shape]>,
    pub(super) variables: Arc<Variables>,
}

/// The limits of launches of a kernel, ready to be compared.
pub(super) struct Shape {
    pub(super) expected: Vec<ExpectedArgument>,
    pub(super) max_threads: u32,
    pub(super) max_shared_bytes: u32,
    /// Whether the kernel may use variables of its module.
    pub(super) has_variables: bool,
}

/// Unloads a module when it is dropped.
#[derive(Debug)]
pub(super) struct Unloads {
    /// A device unloads its modules when it is closed.
    pub(super) device: WeakDevice,
    pub(super) id: ModuleId,
}

impl Drop for Unloads {
    fn drop(&mut self) {
        if let Some(device) = self.device.upgrade() {
            device.core().modules.remove(self.id);
            device.core().retire_module(self.id);
        }
    }
}

impl Module {
    pub(super) fn new(device: Device, unloads: Unloads, info: ModuleInfo, log: String) -> Self {
        let ModuleInfo { entries, variables, has_variables } = info;
        let id = unloads.id;
        let max_shared_bytes = device.info().max_shared_bytes;
        let shape = |entry: &EntryInfo| Shape {
            expected: entry.params.iter().map(ExpectedArgument::new).collect(),
            max_threads: entry.max_threads,
            max_shared_bytes,
            has_variables: !entry.variables.is_empty(),
        };
        let shapes = entries.iter().map(shape).collect();
        let unloads = Arc::new(unloads);
        let (entries, log): (Arc<[EntryInfo]>, _) = (entries.into(), log.into());
        let weak = Arc::downgrade(&unloads) as _;
        device.core().modules.insert(id, weak, has_variables, entries.clone());
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

    /// Returns the variables of this module: `__device__` and `__constant__` in CUDA C, `.global` and `.const` in PTX.
    /// Empty for a cubin.
    pub fn variables(&self) -> &[VariableInfo] {
        &self.0.parts.variables.infos
    }

    /// Returns the memory of a variable as a buffer of elements of type `T`. Every call returns the same memory.
    ///
    /// The memory belongs to the module. The buffer keeps the module loaded, and dropping the buffer frees nothing.
    ///
    /// From the first call for a variable on, every launch of a kernel that may use the variable claims it: for reading
    /// if it is `__constant__`, for writing if it is `__device__`. So kernels that share a `__device__` variable run
    /// one after the other, on all streams. Call this before other threads launch such kernels. The first call submits
    /// a join of all streams and may call wakers. A fault before it does not mark the contents of the variable as lost.
    ///
    /// Only the size of the elements is checked, not their type.
    ///
    /// ```
    /// use cuda_core::{Device, DeviceBuffer};
    /// # fn example(device: &Device) -> cuda_core::Result<()> {
    /// let ptx = ".version 7.0\n.target sm_50\n.visible .const .align 4 .b8 taps[20];\n.entry k() { ret; }";
    /// let module = device.load_ptx_blocking(ptx)?;
    /// let taps: DeviceBuffer<f32> = module.variable("taps")?;
    /// assert_eq!(taps.len(), 5);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`Error::NoSuchVariable`], which lists the variables of the module, also if the device's compiler removed the
    ///   variable.
    /// - [`Error::OutOfRange`] if the size of the variable is not a multiple of the size of `T`.
    /// - Or an error of the device.
    pub fn variable<T: Element>(&self, name: &str) -> Result<DeviceBuffer<T>> {
        let variables = &self.0.parts.variables;
        let mut numbered = (0..).zip(&variables.infos);
        let found = numbered.find(|(_, info)| info.name == name);
        let (index, info) = found.ok_or_else(|| self.no_such_variable(name))?;
        let len = elements::<T>(info)?;
        Ok(DeviceBuffer::of_allocation(self.open_variable(index)?, len))
    }

    /// Returns the allocation of a variable, and keeps it in this handle.
    pub(super) fn open_variable(&self, index: u32) -> Result<Arc<Allocation>> {
        let Parts { id, unloads, variables, .. } = &self.0.parts;
        let variable = variables.open(index, self.device(), *id, unloads.clone())?;
        let mut kept = self.0.kept.lock();
        if !kept.iter().any(|kept| Arc::ptr_eq(kept, &variable)) {
            kept.push(variable.clone());
        }
        drop(kept);
        Ok(variable)
    }

    pub(super) fn no_such_kernel(&self, name: &str) -> Error {
        let names = || self.entries().iter().map(|entry| &entry.name);
        let is_mangled = |entry: &&String| function_of_mangled(entry) == Some(name);
        let mangled: Vec<_> = names().filter(is_mangled).collect();
        let available = match &mangled[..] {
            [] => list(names()),
            [one] => format!(
                "`{one}`, a mangled C++ name: use that name, or declare the kernel extern \"C\""
            ),
            several => {
                format!("{}, mangled C++ names: use one of them", list(several.iter().copied()))
            }
        };
        Error::NoSuchKernel { name: name.to_owned(), available }
    }

    fn no_such_variable(&self, name: &str) -> Error {
        let available = match self.variables() {
            [] => "none (those of a cubin cannot be listed)".to_owned(),
            variables => list(variables.iter().map(|variable| &variable.name)),
        };
        Error::NoSuchVariable { name: name.to_owned(), available }
    }

    /// Returns the kernel with this name.
    ///
    /// # Errors
    /// [`Error::NoSuchKernel`], which names the mangled C++ functions of that name, or lists the kernels of the module.
    pub fn function(&self, name: &str) -> Result<Function> {
        let found = self.entries().iter().position(|entry| entry.name == name);
        let entry = found.filter(|at| u32::try_from(*at).is_ok());
        let entry = entry.ok_or_else(|| self.no_such_kernel(name))?;
        Ok(Function { module: self.clone(), entry })
    }
}

/// Returns the name of the function of a mangled C++ name, without namespaces (Itanium C++ ABI, 5.1).
fn function_of_mangled(mangled: &str) -> Option<&str> {
    let encoding = mangled.strip_prefix("_Z")?;
    // `N` begins a name with namespaces, and `L` a name with internal linkage.
    let is_nested = encoding.starts_with('N');
    let mut rest = encoding.trim_start_matches(['N', 'L']);
    let mut last = None;
    while let Some((identifier, after)) = split_identifier(rest) {
        (last, rest) = (Some(identifier), after.trim_start_matches('L'));
        if !is_nested {
            break;
        }
    }
    last
}

/// Splits off an identifier, which has its length in front of it.
fn split_identifier(text: &str) -> Option<(&str, &str)> {
    let rest = text.trim_start_matches(|char: char| char.is_ascii_digit());
    let len = text[..text.len() - rest.len()].parse().ok()?;
    rest.split_at_checked(len)
}

/// Lists names for a message, or returns `none`.
fn list<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let names: Vec<_> = names.map(|name| format!("`{name}`")).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Returns the number of elements of type `T` in a variable, or an error if they do not fill it.
fn elements<T>(variable: &VariableInfo) -> Result<usize> {
    let (bytes, size) = (variable.bytes, size_of::<T>() as u64);
    let elements = bytes.checked_div(size).filter(|elements| elements * size == bytes);
    elements.map(|elements| elements as usize).ok_or_else(|| {
        let ty = std::any::type_name::<T>();
        let variable = format!("variable `{}` as elements of type {ty}", variable.name);
        Error::out_of_range(variable, Quantity::Bytes, bytes, Limit::MultipleOf(size))
    })
}

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.entries().iter().map(|entry| &entry.name)).finish()
    }
}

/// A handle that keeps a [`Module`] loaded, but not its device open. It is for caches, whose entries should not outlive
/// their device.
#[derive(Clone)]
pub struct CachedModule {
    device: WeakDevice,
    parts: Parts,
}

impl CachedModule {
    /// Returns whether another handle of the module exists: a [`Module`], a function, a buffer of a variable, a
    /// recording, or another `CachedModule`.
    pub fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.parts.unloads) > 1
    }

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
    /// Fits in 32 bits. As wide as a pointer, because padding would be copied together with what follows it in a
    /// launch.
    entry: usize,
}

impl Function {
    /// Returns the name and the parameters of this kernel.
    pub fn info(&self) -> &EntryInfo {
        // The index was found in this list, which never changes.
        &self.module.entries()[self.entry]
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
        // The index was found in a list of the same length.
        &self.module.0.parts.shapes[self.entry]
    }

    /// Whether a launch on `stream` claims variables of the module.
    #[inline]
    pub(super) fn claims_variables(&self, stream: &Stream) -> bool {
        self.shape().has_variables
            && (self.module.0.parts.variables.any_named() || stream.is_recording())
    }

    /// Returns the variables that a launch on `stream` claims, with the access. A live launch claims those that have an
    /// id on the device. A recorded launch claims all that the kernel may use, because a replay cannot add claims.
    pub(super) fn variables(&self, stream: &Stream) -> Result<Vec<(Arc<Allocation>, Access)>> {
        let variables = &self.module.0.parts.variables;
        let mut claimed = Vec::new();
        for index in self.info().variables.iter().copied() {
            if !stream.is_recording() && !variables.is_named(index) {
                continue;
            }
            let is_constant = variables.infos[index as usize].is_constant;
            let access = if is_constant { Access::Read } else { Access::Write };
            match self.module.open_variable(index) {
                Ok(variable) => claimed.push((variable, access)),
                // The device's compiler has removed the variable.
                Err(Error::NoSuchVariable { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(claimed)
    }

    /// Returns the name of the variable with this id, if this kernel may write it.
    pub(super) fn writes_variable(&self, id: AllocId) -> Option<&str> {
        let variables = &self.module.0.parts.variables;
        let index = variables.index_of(id)?;
        let variable = variables.infos.get(index as usize)?;
        let is_used = self.info().variables.contains(&index);
        (is_used && !variable.is_constant).then_some(&variable.name)
    }

    #[inline]
    pub(super) fn id(&self) -> FunctionId {
        FunctionId { module: self.module.0.parts.id, entry: self.entry as u32 }
    }

    /// Asks how many blocks of this kernel run at the same time, for blocks with the shape and the shared memory of
    /// `config`. The grid and the attributes of `config` do not matter. Await the reply, or block on it with
    /// [`Pending::wait`]. On a lease, the reply takes a round trip.
    ///
    /// The reply also has the kernel's registers and memory, a suggested block, and the limits of cooperative grids and
    /// of clusters.
    ///
    /// A GPU's driver answers for the kernel's machine code. The CPU device answers with the limits of compute
    /// capability 9.0 (2,048 threads, 32 blocks and 228 KiB of shared memory per multiprocessor) for each of its
    /// threads, so its answer depends on the block, on the shared memory and on the number of threads alone.
    ///
    /// ```
    /// # fn example(function: &cuda_core::Function) -> cuda_core::Result<()> {
    /// use cuda_core::LaunchConfig;
    ///
    /// let occupancy = function.occupancy(LaunchConfig::new(1, 256)).wait()?;
    /// let all_at_once = LaunchConfig::new(occupancy.max_cooperative_blocks, 256).cooperative();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The reply is [`Error::Unsupported`](crate::Error::Unsupported) if the node of a lease is too old to answer, or
    /// an error of the device.
    pub fn occupancy(&self, config: LaunchConfig) -> Pending<Occupancy> {
        let request = Request::Occupancy { function: self.id(), config };
        // The reply keeps the module loaded, because the device looks the kernel up later.
        let module = self.module().clone();
        self.device().core().request(request, move |reply| {
            drop(module);
            match reply {
                Reply::Occupancy(occupancy) => Ok(occupancy),
                other => Err(unexpected(&other)),
            }
        })
    }

    /// Asks for the threads of a block that keep a multiprocessor busiest, for blocks with `shared_bytes` bytes of
    /// dynamic shared memory. [`Occupancy::launch_config`] makes a configuration of the reply.
    ///
    /// ```
    /// # fn example(function: &cuda_core::Function, n: usize) -> cuda_core::Result<()> {
    /// let config = function.suggested_block(0).wait()?.launch_config(n);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`occupancy`](Self::occupancy).
    pub fn suggested_block(&self, shared_bytes: u32) -> Pending<Occupancy> {
        self.occupancy(LaunchConfig::new(1, 32).shared_bytes(shared_bytes))
    }
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Function({})", self.name())
    }
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
    /// The maximum number of threads per block of each kernel.
    max_threads: Vec<u32>,
    /// The compiler's log.
    log: String,
    /// The kernels of a cubin.
    entries: Vec<EntryInfo>,
}

impl Device {
    /// Compiles and loads PTX. Blocks: a GPU's compiler may take a hundred milliseconds.
    ///
    /// Do not call it inside a waker: the thread that calls the waker may be the one that loads.
    ///
    /// Load modules before the work that uses them begins. While a GPU's driver loads a module, it waits for every
    /// running kernel, and launches, copies and polls of other threads wait with it.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// # let ptx = ".version 7.0 .target sm_70 .address_size 64 .visible .entry nothing() { ret; }";
    /// let module = device.load_ptx_blocking(ptx)?;
    /// let nothing = module.function("nothing")?;
    /// // SAFETY: the kernel uses no memory.
    /// unsafe { nothing.launch(&stream, LaunchConfig::new(1, 32), &Arguments::new()) }?;
    /// stream.synchronize()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidPtx`], [`Error::PtxTooNew`], or [`Error::LoadFailed`] with the compiler's log. [`Error::Misuse`]
    /// inside the [output function](Device::set_output), and inside a waker of a leased device.
    pub fn load_ptx_blocking(&self, ptx: &str) -> Result<Module> {
        self.core().streams.check_may_wait()?;
        self.start_loading(ptx)?.wait()
    }

    /// Starts to compile and load PTX, without blocking. The compiler runs on a thread of the device.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// # let ptx = ".version 7.0 .target sm_70 .address_size 64 .visible .entry nothing() { ret; }";
    /// let loading = device.start_loading(ptx)?; // a thread of the device compiles it
    /// let module = loading.wait()?; // or `poll` it in a task
    /// assert_eq!(module.entries()[0].name, "nothing");
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidPtx`], if the kernels of the text cannot be listed.
    pub fn start_loading(&self, ptx: &str) -> Result<Loading> {
        Loading::new(self, module_info(ptx)?, ModuleImage::Ptx(ptx.to_owned()))
    }

    /// Loads a cubin or a fatbin. Blocks, so do not call it inside a waker, and load before the work that uses the
    /// module begins: see [`load_ptx_blocking`](Self::load_ptx_blocking).
    ///
    /// The driver compiles nothing, unless a fatbin has only PTX for this GPU. The types of parameters are unknown, so
    /// launches check the number and the sizes of arguments, not their kinds. [`Module::variables`] is empty, and
    /// launches are not ordered by the variables that they use.
    ///
    /// ```no_run
    /// # use cuda_core::*;
    /// # fn load(device: &Device) -> Result<()> {
    /// let image = std::fs::read("kernels_sm_90.cubin").map_err(Error::other)?;
    /// // SAFETY: NVIDIA's compiler made the file, of a source whose kernels this program knows.
    /// let module = unsafe { device.load_cubin(&image) }?;
    /// # let _ = module;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`Error::LoadFailed`] if `image` is neither a cubin nor a fatbin, or has no code for this device. A CPU device
    ///   runs no machine code of GPUs.
    /// - [`Error::Unsupported`] if the driver is older than CUDA 12.4.
    /// - [`Error::Misuse`] where [`load_ptx_blocking`](Device::load_ptx_blocking) gives it.
    /// - Or an error of the device.
    ///
    /// # Safety
    /// `image` is complete and was made by NVIDIA's tools. The driver does not check the lengths inside the image.
    pub unsafe fn load_cubin(&self, image: &[u8]) -> Result<Module> {
        self.core().streams.check_may_wait()?;
        // SAFETY: the image is complete and made by NVIDIA's tools.
        unsafe { self.start_loading_cubin(image) }?.wait()
    }

    /// Starts to load a cubin or a fatbin, without blocking.
    ///
    /// ```no_run
    /// # use cuda_core::*;
    /// # fn load(device: &Device) -> Result<()> {
    /// let image = std::fs::read("kernels_sm_90.cubin").map_err(Error::other)?;
    /// // SAFETY: NVIDIA's compiler made the file, of a source whose kernels this program knows.
    /// let module = unsafe { device.start_loading_cubin(&image) }?.wait()?;
    /// # let _ = module;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::LoadFailed`] if `image` is neither a cubin nor a fatbin. The [`Loading`] returns the other errors of
    /// [`load_cubin`](Self::load_cubin).
    ///
    /// # Safety
    /// The requirements of [`load_cubin`](Self::load_cubin).
    pub unsafe fn start_loading_cubin(&self, image: &[u8]) -> Result<Loading> {
        check_machine_code(image)?;
        let (entries, variables) = Default::default();
        // The kernels may share variables.
        let info = ModuleInfo { entries, variables, has_variables: true };
        Loading::new(self, info, ModuleImage::Cubin(image.to_owned()))
    }

    /// Starts to load a cubin or a fatbin that was made from the same source as the text `ptx`, without blocking. The
    /// device runs the image, and the text describes the module. So launches check the kinds of arguments and claim the
    /// variables that they use, as launches of a module that was loaded from PTX do.
    ///
    /// ```no_run
    /// # use cuda_core::*;
    /// # fn load(device: &Device, ptx: &str, image: &[u8]) -> Result<()> {
    /// // SAFETY: NVIDIA's compiler made `ptx` and `image` of the same source.
    /// let loading = unsafe { device.start_loading_image(ptx, image) }?;
    /// let module = loading.wait()?;
    /// # let _ = module;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`start_loading_cubin`](Self::start_loading_cubin) and [`start_loading`](Self::start_loading). The
    /// [`Loading`] fails with [`Error::LoadFailed`] if the image has a kernel that the text does not have, or with
    /// other parameters.
    ///
    /// # Safety
    /// `image` is complete and was made by NVIDIA's tools, which made `ptx` of the same source. The text states which
    /// variables a kernel writes, and the library orders launches by that.
    pub unsafe fn start_loading_image(&self, ptx: &str, image: &[u8]) -> Result<Loading> {
        check_machine_code(image)?;
        Loading::new(self, module_info(ptx)?, ModuleImage::Cubin(image.to_owned()))
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
        _ if image.is_empty() => "the image is empty",
        true => "the image is PTX; load it with `load_ptx`",
        false => {
            "the image is neither a cubin nor a fatbin; make one with `nvcc -cubin` or `nvcc -fatbin`"
        }
    };
    Err(Error::LoadFailed { log: log.into() })
}

/// Returns the kernels of an image in its order, with the parameters and variables that a PTX text states for them.
/// Without a text, returns them as they are.
fn described(text: &[EntryInfo], image: Vec<EntryInfo>) -> Result<Vec<EntryInfo>> {
    if text.is_empty() {
        return Ok(image);
    }
    let describe = |entry: EntryInfo| {
        let places = |entry: &EntryInfo| -> Vec<_> {
            entry.params.iter().map(|param| (param.offset, param.size)).collect()
        };
        let same =
            text.iter().find(|other| other.name == entry.name && places(other) == places(&entry));
        same.cloned().ok_or_else(|| {
            let name = entry.name;
            let log = format!(
                "kernel `{name}` of the image is not in the PTX, or has other parameters there; make both from one source"
            );
            Error::LoadFailed { log }
        })
    };
    image.into_iter().map(describe).collect()
}

impl Loading {
    fn new(device: &Device, info: ModuleInfo, image: ModuleImage) -> Result<Self> {
        let core = device.core();
        core.reclaim_all();
        let id = ModuleId(core.next_id());
        // SAFETY: the control frees, retires, drops and unloads nothing.
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
    /// The errors of [`Device::load_ptx_blocking`].
    pub fn poll(&mut self, task: &mut Context<'_>) -> Poll<Result<Module>> {
        let reply = ready!(self.reply.poll(task));
        Poll::Ready(reply.and_then(|reply| self.take(reply)))
    }

    /// Blocks until the module is loaded.
    ///
    /// # Errors
    /// The errors of [`Device::load_ptx_blocking`].
    pub fn wait(mut self) -> Result<Module> {
        let taken = Pending::ready(Err(Error::AlreadyEnded));
        let reply = std::mem::replace(&mut self.reply, taken).wait()?;
        self.take(reply)
    }

    fn take(&mut self, reported: Reported) -> Result<Module> {
        let Reported { max_threads, log, entries } = reported;
        let (device, unloads, mut info) = self.module.take().ok_or(Error::AlreadyEnded)?;
        if !entries.is_empty() {
            info.entries = described(&info.entries, entries)?;
        }
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

/// The variables of a module, shared by all handles of the module.
pub(super) struct Variables {
    pub(super) infos: Vec<VariableInfo>,
    /// Whether one of them has an id on the device.
    any: AtomicBool,
    /// One for each variable, in the order of `infos`.
    on_device: Mutex<Vec<OnDevice>>,
}

#[derive(Default)]
struct OnDevice {
    /// The id on the device.
    id: Option<AllocId>,
    allocation: Weak<Allocation>,
}

impl Variables {
    pub(super) fn new(infos: Vec<VariableInfo>) -> Self {
        let on_device = Mutex::new(infos.iter().map(|_| OnDevice::default()).collect());
        Self { infos, any: AtomicBool::new(false), on_device }
    }

    /// Whether one of them has an id on the device. Relaxed: the caller orders launches after the first handle, or they
    /// are unordered.
    #[inline]
    pub(super) fn any_named(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Whether a variable has an id on the device.
    pub(super) fn is_named(&self, index: u32) -> bool {
        self.on_device.lock().get(index as usize).is_some_and(|own| own.id.is_some())
    }

    /// Returns the index of the variable with this id on the device.
    pub(super) fn index_of(&self, id: AllocId) -> Option<u32> {
        let found = self.on_device.lock().iter().position(|own| own.id == Some(id))?;
        u32::try_from(found).ok()
    }

    /// Returns the allocation of a variable. Names the variable on the device first, if it has no id.
    ///
    /// A new allocation needs a join of all streams. The join may call wakers, so no lock is held meanwhile.
    ///
    /// # Errors
    /// An error of the device. [`Error::NoSuchVariable`](crate::Error::NoSuchVariable) if the device has no such
    /// variable.
    pub(super) fn open(
        &self,
        index: u32,
        device: &Device,
        module: ModuleId,
        unloads: Arc<dyn Any + Send + Sync>,
    ) -> Result<Arc<Allocation>> {
        let VariableInfo { name, bytes, .. } = &self.infos[index as usize];
        let id = {
            let own = &mut self.on_device.lock()[index as usize];
            if let Some(allocation) = own.allocation.upgrade() {
                return Ok(allocation);
            }
            match own.id {
                Some(id) => id,
                None => {
                    let id = AllocId(device.core().next_id());
                    let (name, bytes) = (name.clone(), *bytes);
                    let control = Control::NameVariable { id, module, name, bytes };
                    // SAFETY: the control frees, retires, drops and unloads nothing.
                    unsafe { device.core().backend.control(control) }?;
                    *own.id.insert(id)
                }
            }
        };
        self.any.store(true, Ordering::Relaxed);
        // Behind everything that was submitted to the device.
        let named = device.lend_stream(0)?.join(&device.core().streams.last_tickets())?;
        let opened = Allocation::variable(device.clone(), id, *bytes, named, unloads);
        let own = &mut self.on_device.lock()[index as usize];
        // Another thread may have opened it meanwhile.
        Ok(own.allocation.upgrade().unwrap_or_else(|| {
            own.allocation = Arc::downgrade(&opened);
            opened
        }))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use cuda_ptx::ScalarType;

    use super::*;
    use crate::protocol::{ParamInfo, ParamType, entries};

    /// A kernel as a driver describes it: only offsets and sizes.
    fn of_image(name: &str, sizes: &[u32]) -> EntryInfo {
        let params = sizes.iter().enumerate().map(|(index, size)| ParamInfo {
            name: format!("p{index}"),
            ty: ParamType::Array { element: ScalarType::B8, count: *size },
            offset: index as u32 * 8,
            size: *size,
            align: 1,
        });
        EntryInfo {
            name: name.into(),
            params: params.collect(),
            variables: [].into(),
            max_threads: 0,
        }
    }

    #[test]
    fn image_keeps_its_order_and_takes_types_from_the_text() {
        let text = entries(
            ".version 7.0\n.target sm_50\n.entry a(.param .u64 p, .param .f32 x) { ret; }\n.entry b() { ret; }",
        )
        .unwrap();
        let image = vec![of_image("b", &[]), of_image("a", &[8, 4])];
        assert_eq!(described(&[], image.clone()).unwrap(), image);
        let found = described(&text, image).unwrap();
        let names: Vec<_> = found.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["b", "a"]);
        assert_eq!(found[1].params[1].ty.to_string(), "f32");
        for wrong in [of_image("c", &[]), of_image("a", &[8]), of_image("a", &[8, 8])] {
            let error = described(&text, vec![wrong]).unwrap_err();
            assert!(matches!(error, Error::LoadFailed { .. }), "{error}");
        }
    }
}
