//! A kernel of a loaded module.

use std::sync::Arc;

use super::module::{Module, Shape};
use crate::{
    handle::{device::Device, stream::Allocation},
    protocol::{Access, EntryInfo, FunctionId, Result},
};

/// A kernel of a loaded module. Clones are the same kernel.
#[derive(Clone)]
pub struct Function {
    module: Module,
    entry: u32,
}

impl Module {
    /// Returns the kernel with this name.
    ///
    /// # Errors
    /// [`Error::NoSuchKernel`](crate::Error::NoSuchKernel), which lists the kernels of the module.
    pub fn function(&self, name: &str) -> Result<Function> {
        let found = self.entries().iter().position(|entry| entry.name == name);
        let entry = found.ok_or_else(|| self.no_such_kernel(name))?;
        Ok(Function { module: self.clone(), entry: entry as u32 })
    }
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
