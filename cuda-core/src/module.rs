//! Loaded code and its kernels.

use std::sync::Arc;

use crate::{Device, EntryInfo, Error, FunctionId, ModuleId, ModuleInfo, Result, arguments::Slot};

/// Code on a device; unloaded after its last use when the last clone and the last [`Function`] go.
#[derive(Clone)]
pub struct Module(Arc<Loaded>);

struct Loaded {
    device: Device,
    id: ModuleId,
    info: ModuleInfo,
    /// Of each entry.
    shapes: Vec<Shape>,
}

/// What a launch of a kernel has to fit, ready to be compared.
pub(crate) struct Shape {
    pub(crate) slots: Vec<Slot>,
    pub(crate) max_threads: u32,
    pub(crate) max_shared_bytes: u32,
}

impl Module {
    pub(crate) fn new(device: Device, id: ModuleId, info: ModuleInfo) -> Self {
        let max_shared_bytes = device.info().max_shared_bytes;
        let shape = |entry: &EntryInfo| Shape {
            slots: entry.params.iter().map(Slot::new).collect(),
            max_threads: entry.max_threads,
            max_shared_bytes,
        };
        let shapes = info.entries.iter().map(shape).collect();
        Self(Arc::new(Loaded { device, id, info, shapes }))
    }

    /// The device it is on.
    #[inline]
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Its kernels.
    pub fn entries(&self) -> &[EntryInfo] {
        &self.0.info.entries
    }

    /// What the device's compiler said, often nothing.
    pub fn log(&self) -> &str {
        &self.0.info.log
    }

    /// The kernel of this name.
    ///
    /// # Errors
    /// [`Error::NoSuchKernel`], naming those there are.
    pub fn function(&self, name: &str) -> Result<Function> {
        let found = self.entries().iter().position(|entry| entry.name == name);
        let entry = found.ok_or_else(|| self.no_such_kernel(name))?;
        Ok(Function { module: self.clone(), entry: entry as u32 })
    }

    fn no_such_kernel(&self, name: &str) -> Error {
        let names: Vec<_> =
            self.entries().iter().map(|entry| format!("`{}`", entry.name)).collect();
        let available = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        Error::NoSuchKernel { name: name.to_owned(), available }
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        self.device.inner().retire_module(self.id);
    }
}

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.entries().iter().map(|entry| &entry.name)).finish()
    }
}

/// A kernel of a loaded module. Clones are the same kernel.
#[derive(Clone)]
pub struct Function {
    module: Module,
    entry: u32,
}

impl Function {
    /// Name and parameters.
    pub fn info(&self) -> &EntryInfo {
        // The index was found in this list, which never changes.
        &self.module.entries()[self.entry as usize]
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.info().name
    }

    /// The device it is on.
    #[inline]
    pub fn device(&self) -> &Device {
        self.module.device()
    }

    #[inline]
    pub(crate) fn shape(&self) -> &Shape {
        // As for `info`.
        &self.module.0.shapes[self.entry as usize]
    }

    #[inline]
    pub(crate) fn id(&self) -> FunctionId {
        FunctionId { module: self.module.0.id, entry: self.entry }
    }
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Function({})", self.name())
    }
}
