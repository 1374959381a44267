//! A loaded module, and its kernels.

use std::sync::Arc;

use crate::{
    handle::{
        device::{Device, WeakDevice},
        kernel::{arguments::ExpectedArgument, variables::Variables},
        memory::DeviceBuffer,
        stream::{Allocation, Stream},
    },
    protocol::{
        Access, AllocId, Element, EntryInfo, Error, FunctionId, Limit, ModuleId, ModuleInfo,
        Quantity, Result, VariableInfo,
    },
    sync::{Mutex, ShardedArc},
};

/// A module of kernels that is loaded on a device. It is unloaded after its last use, when the last clone, the last
/// [`Function`](super::Function), the last buffer of a variable and the last recording of its launches are dropped. On
/// a GPU, unloading waits for every running kernel, as loading does. Keep modules that are used again.
#[derive(Clone)]
pub struct Module(pub(super) ShardedArc<Loaded>);

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

/// A handle that keeps a [`Module`] loaded, but not its device open. It is for caches, whose entries should not outlive
/// their device.
#[derive(Clone)]
pub struct CachedModule {
    device: WeakDevice,
    parts: Parts,
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

impl Module {
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
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Function({})", self.name())
    }
}
