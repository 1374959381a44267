//! Code on the device.

use std::sync::Arc;

use crate::{Memory, Program};

/// A program whose variables go when it does: with the last launch that is queued, if it was unloaded before.
pub(crate) struct LoadedModule {
    program: Program,
    memory: Arc<Memory>,
}

impl LoadedModule {
    /// `memory` is what it was loaded with.
    pub(crate) fn new(program: Program, memory: Arc<Memory>) -> Self {
        Self { program, memory }
    }

    pub(crate) fn program(&self) -> &Program {
        &self.program
    }
}

impl Drop for LoadedModule {
    fn drop(&mut self) {
        self.program.free_variables(&self.memory);
    }
}
