//! A decoded PTX module.

use std::sync::atomic::{AtomicU64, Ordering};

use cuda_ptx::Module;

use super::block::BlockSize;
use super::budget::Budget;
use super::code::Code;
use super::decode::{Layout, LoadError, decode, reachable};
use super::grid::Grid;
use super::launch::{Invalid, Launch, LaunchDims, LaunchError, MAX_SHARED_BYTES};
use super::spares::Spares;
use crate::memory::Memory;

/// A decoded PTX module. Its variables are stored in the memory it was loaded with. [`Program::unload`] frees them.
#[derive(Debug)]
pub struct Program {
    code: Code,
    entries: Vec<Entry>,
    allocations: Vec<u64>,
    globals: Vec<(String, u64, u64)>,
    launches: AtomicU64,
    spares: Spares,
}

/// A kernel of a [`Program`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its (mangled) name.
    pub name: String,
    /// Its parameters, in order.
    pub params: Vec<EntryParam>,
    /// Length of the parameter block in bytes.
    pub param_bytes: u32,
    /// Static shared memory of a block, in bytes.
    pub static_shared: u32,
    /// `.maxntid`.
    pub max_threads: Option<[u32; 3]>,
    /// `.reqntid`.
    pub required_threads: Option<[u32; 3]>,
    /// End of its shared variables, without the padding before dynamic shared memory.
    shared_end: u32,
    function: u32,
}

/// A parameter of an [`Entry`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryParam {
    /// Size in bytes.
    pub size: u32,
    /// Alignment in bytes.
    pub align: u32,
    /// Offset in the parameter block, in bytes.
    pub offset: u32,
}

impl Program {
    /// Decodes a module and allocates its variables in `memory`.
    ///
    /// # Errors
    /// Fails if the module contains instructions that the CPU device does not support (the error lists all of them), or
    /// if `memory` has no room for the variables.
    pub fn load(module: &Module, memory: &Memory) -> Result<Self, LoadError> {
        let reachable = reachable(module);
        let layout = Layout::place(module, &reachable, memory)?;
        let code = decode(module, &reachable, &layout).inspect_err(|_| {
            layout.allocations.iter().for_each(|&a| _ = memory.free(a));
        })?;
        let functions = module.functions.iter().enumerate();
        let entries = functions
            .filter(|(_, f)| f.is_entry && f.body.is_some())
            .map(|(index, f)| Entry {
                name: f.name.clone(),
                params: f
                    .params
                    .iter()
                    .map(|p| EntryParam { size: p.size, align: p.align, offset: p.offset })
                    .collect(),
                param_bytes: f.params.iter().map(|p| p.offset + p.size).max().unwrap_or(0),
                static_shared: layout.shared_bytes(index as u32),
                shared_end: layout.shared_end(index as u32),
                max_threads: f.max_threads,
                required_threads: f.required_threads,
                function: index as u32,
            })
            .collect();
        let globals = layout.globals(module);
        let allocations = layout.allocations;
        let launches = AtomicU64::new(0);
        Ok(Self { code, entries, allocations, globals, launches, spares: Spares::default() })
    }

    /// Returns the kernels in the order of the module.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the index of the entry with this name, for [`Program::launch`].
    pub fn entry(&self, name: &str) -> Option<usize> {
        self.entries.iter().position(|e| e.name == name)
    }

    /// Returns the address and size of a module-scope `.global` or `.const` variable.
    pub fn variable(&self, name: &str) -> Option<(u64, u64)> {
        let found = self.globals.iter().find(|(n, ..)| n == name);
        found.map(|&(_, address, size)| (address, size))
    }

    /// Frees the module's variables. `memory` must be the memory it was loaded with.
    pub fn unload(self, memory: &Memory) {
        self.free_variables(memory);
    }

    /// Does the work of [`Program::unload`] for owners that cannot move the program.
    pub(crate) fn free_variables(&self, memory: &Memory) {
        for &address in &self.allocations {
            // Fails if the allocation has been freed already, by a kernel or by the host. That is harmless.
            _ = memory.free(address);
        }
    }

    /// Checks whether a kernel can be launched with these parameters, and returns the kernel.
    ///
    /// # Errors
    /// Returns the error with which [`Program::launch`] would refuse the launch.
    pub fn check(&self, entry: usize, launch: &Launch<'_>) -> Result<&Entry, Invalid> {
        let kernel = self.entries.get(entry).ok_or(Invalid::Entry { index: entry })?;
        kernel.check(launch)?;
        Ok(kernel)
    }

    /// Runs a kernel to its end or to its first fault.
    ///
    /// # Errors
    /// Returns [`LaunchError::Invalid`] if the launch is invalid and nothing ran, and [`LaunchError::Fault`] if a
    /// thread faulted.
    pub fn launch(
        &self,
        memory: &Memory,
        entry: usize,
        launch: &Launch<'_>,
    ) -> Result<(), LaunchError> {
        let kernel = self.check(entry, launch)?;
        let budget = Budget::new(memory.usage().total);
        let block = kernel.block_size(launch);
        let bytes = block.needed(&self.code);
        if bytes > budget.limit {
            return Err(Invalid::Memory { bytes, most: budget.limit }.into());
        }
        let id = self.launches.fetch_add(1, Ordering::Relaxed);
        let room = (budget, &self.spares);
        let grid = Grid::new(&self.code, memory, kernel.static_shared, block, launch, id, room);
        grid.run().map_err(LaunchError::Fault)
    }
}

impl Entry {
    /// Returns the block size for dimensions that were checked.
    fn block_size(&self, launch: &Launch<'_>) -> BlockSize {
        let LaunchDims { block, dynamic_shared, .. } = launch.dims;
        let threads = block.iter().product();
        let shared = match dynamic_shared {
            // Without dynamic shared memory, the padding that would align it is not part of the block.
            0 => self.shared_end,
            dynamic => self.static_shared + dynamic,
        };
        BlockSize { function: self.function, threads, shared, checks: launch.checks }
    }

    fn check(&self, launch: &Launch<'_>) -> Result<(), Invalid> {
        let dims = launch.dims;
        dims.check()?;
        let block = dims.block;
        if let Some(required) = self.required_threads.filter(|&r| r != block) {
            return Err(Invalid::RequiredBlock { block, required });
        }
        let threads: u64 = block.iter().map(|&d| u64::from(d)).product();
        let most = self.max_threads.map(|m| m.iter().map(|&d| u64::from(d)).product());
        if let Some(most) = most.filter(|&most| threads > most) {
            return Err(Invalid::MaxThreads { block, most });
        }
        let bytes = u64::from(self.static_shared) + u64::from(dims.dynamic_shared);
        if bytes > u64::from(MAX_SHARED_BYTES) {
            return Err(Invalid::Shared { bytes, most: MAX_SHARED_BYTES });
        }
        let (given, needed) = (launch.params.len(), self.param_bytes as usize);
        if given < needed {
            return Err(Invalid::Params { given, needed });
        }
        Ok(())
    }
}
