//! Loaded code and its kernels.

use std::sync::Arc;

use crate::{Device, EntryInfo, Error, FunctionId, ModuleId, ModuleInfo, Result};

/// Code on a device; unloaded after its last use when the last clone and the last [`Function`] go.
#[derive(Clone)]
pub struct Module(Arc<Loaded>);

struct Loaded {
    device: Device,
    id: ModuleId,
    info: ModuleInfo,
}

impl Module {
    pub(crate) fn new(device: Device, id: ModuleId, info: ModuleInfo) -> Self {
        Self(Arc::new(Loaded { device, id, info }))
    }

    /// The device it is on.
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
    pub fn device(&self) -> &Device {
        self.module.device()
    }

    pub(crate) fn id(&self) -> FunctionId {
        FunctionId { module: self.module.0.id, entry: self.entry }
    }
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Function({})", self.name())
    }
}
