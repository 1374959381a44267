//! A kernel of a loaded module.

use std::sync::Arc;

use super::module::{Module, Shape};
use crate::{
    handle::{
        device::Device,
        stream::{Allocation, Stream},
    },
    protocol::{Access, AllocId, EntryInfo, Error, FunctionId, Result},
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
    /// [`Error::NoSuchKernel`], which names the mangled C++ functions of that name, or lists the kernels of the module.
    pub fn function(&self, name: &str) -> Result<Function> {
        let found = self.entries().iter().position(|entry| entry.name == name);
        let entry = found.and_then(|at| u32::try_from(at).ok());
        let entry = entry.ok_or_else(|| self.no_such_kernel(name))?;
        Ok(Function { module: self.clone(), entry })
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
        // The index was found in a list of the same length.
        &self.module.0.parts.shapes[self.entry as usize]
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
                Err(Error::OutOfRange { .. }) => {}
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
        FunctionId { module: self.module.0.parts.id, entry: self.entry }
    }
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Function({})", self.name())
    }
}
