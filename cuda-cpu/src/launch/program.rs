//! A decoded PTX module.

use std::sync::atomic::{AtomicU64, Ordering};

use cuda_ptx::Module;

use super::description::{Invalid, Launch, LaunchDims, LaunchError};
use super::grid::{Grid, Spares};
use crate::decode::{Layout, LoadError, decode, reachable};
use crate::isa::{MAX_CLUSTER_BLOCKS, MAX_SHARED_BYTES};
use crate::lanes::LANES;
use crate::machine::budget::Budget;
use crate::machine::code::Code;
use crate::machine::place::Place;
use crate::memory::Memory;
use crate::observe::{Checks, Input, ReadOnly};
use crate::schedule::block::BlockSize;

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
    /// `.reqnctapercluster`.
    pub required_cluster: Option<[u32; 3]>,
    /// End of its shared variables, without the padding before dynamic shared memory.
    shared_end: u32,
    function: u32,
    /// Whether it may have effects besides those on the memory of its operands.
    pub(crate) has_other_effects: bool,
}

/// A parameter of an [`Entry`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryParam {
    /// Its name in the PTX.
    pub name: String,
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
        let functions = (0..).zip(&module.functions);
        let entries = functions
            .filter(|(_, f)| f.is_entry && f.body.is_some())
            .map(|(index, f)| Entry {
                name: f.name.clone(),
                params: f
                    .params
                    .iter()
                    .map(|p| EntryParam {
                        name: p.name.clone(),
                        size: p.size,
                        align: p.align,
                        offset: p.offset,
                    })
                    .collect(),
                param_bytes: f.params.iter().map(|p| p.offset + p.size).max().unwrap_or(0),
                static_shared: layout.shared_bytes(index),
                shared_end: layout.shared_end(index),
                max_threads: f.max_threads,
                required_threads: f.required_threads,
                required_cluster: f.required_cluster,
                function: index,
                has_other_effects: module.has_other_effects(index),
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
        let cluster = kernel.cluster(launch);
        let bytes = block.needed(&self.code).saturating_mul(count_in(cluster));
        if bytes > budget.limit {
            return Err(Invalid::Memory { bytes, most: budget.limit }.into());
        }
        let (grid_id, workspace) = (self.launches.fetch_add(1, Ordering::Relaxed), 0);
        let mut place = Place {
            grid: launch.dims.grid,
            block: launch.dims.block,
            grid_id,
            static_shared: kernel.static_shared,
            dynamic_shared: launch.dims.dynamic_shared,
            cluster,
            is_explicit_cluster: launch.cluster.or(kernel.required_cluster).is_some(),
            workspace,
            ..Place::default()
        };
        let room = (budget, &self.spares);
        if !launch.cooperative {
            let read_only = kernel.read_only(launch, block.checks);
            let grid = Grid::new(&self.code, memory, block, launch, place, room, read_only);
            return grid.run().map_err(LaunchError::Fault);
        }
        let (blocks, most) = (count_in(launch.dims.grid), room.0.limit / bytes.max(1));
        if blocks > most {
            return Err(Invalid::Cooperative { blocks, most }.into());
        }
        let workspace = memory.alloc_zeroed(WORKSPACE_BYTES, WORKSPACE_BYTES);
        let no_memory = Invalid::Memory { bytes: WORKSPACE_BYTES, most: 0 };
        place.workspace = workspace.map_err(|_| no_memory)?;
        let read_only = kernel.read_only(launch, block.checks);
        let ran = Grid::new(&self.code, memory, block, launch, place, room, read_only).run();
        // The kernel itself may have freed it.
        _ = memory.free(place.workspace);
        ran.map_err(LaunchError::Fault)
    }

    /// Returns the resources of a kernel, and the blocks with these dimensions that one multiprocessor runs at the same
    /// time. The grid of `dims` does not matter.
    pub fn resources(&self, entry: usize, dims: LaunchDims) -> Option<Resources> {
        let kernel = self.entries.get(entry)?;
        let function = self.code.functions.get(kernel.function as usize)?;
        Some(Resources {
            // A register of the decoded form has 32 lanes of four bytes.
            registers: function.frame_bytes / (LANES as u32 * 4),
            local_bytes: function.local_bytes,
            blocks: kernel.blocks_of_multiprocessor(dims),
        })
    }
}

/// Bytes of the memory in which the blocks of a cooperative launch count their arrivals: CUDA's `grid_workspace`.
const WORKSPACE_BYTES: u64 = 256;

/// The blocks, threads and shared memory of a multiprocessor with compute capability 9.0. A block takes another 1 KiB
/// of shared memory for the system.
const MULTIPROCESSOR: (u32, u32, u32, u32) = (32, 2048, 228 << 10, 1 << 10);

/// The resources of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resources {
    /// 32-bit registers of a thread, in the decoded form.
    pub registers: u32,
    /// Bytes of local memory of a thread.
    pub local_bytes: u32,
    /// Blocks that one multiprocessor runs at the same time.
    pub blocks: u32,
}

/// Returns the number of blocks or threads in `dims`. Saturates, because the dimensions of directives are unchecked.
pub(crate) fn count_in(dims: [u32; 3]) -> u64 {
    dims.iter().fold(1, |all: u64, &d| all.saturating_mul(d.into()))
}

impl Entry {
    /// Returns the cluster of a launch.
    fn cluster(&self, launch: &Launch<'_>) -> [u32; 3] {
        launch.cluster.or(self.required_cluster).unwrap_or([1; 3])
    }

    /// Returns the number of blocks that run at the same time on a multiprocessor with compute capability 9.0.
    fn blocks_of_multiprocessor(&self, dims: LaunchDims) -> u32 {
        let (blocks, threads, shared, reserved) = MULTIPROCESSOR;
        let of_block = dims.block.iter().fold(1, |all: u32, &d| all.saturating_mul(d)).max(1);
        let by_threads = threads / of_block.div_ceil(LANES as u32).saturating_mul(LANES as u32);
        let bytes = self.static_shared.saturating_add(dims.dynamic_shared).saturating_add(reserved);
        blocks.min(by_threads).min(shared / bytes)
    }

    fn check_cluster(&self, launch: &Launch<'_>) -> Result<(), Invalid> {
        let (cluster, grid) = (self.cluster(launch), launch.dims.grid);
        if let Some(required) = self.required_cluster.filter(|&r| r != cluster) {
            return Err(Invalid::RequiredCluster { cluster, required });
        }
        let fits = (1..=u64::from(MAX_CLUSTER_BLOCKS)).contains(&count_in(cluster))
            && grid.iter().zip(cluster).all(|(g, c)| g.is_multiple_of(c));
        if !fits {
            return Err(Invalid::Cluster { grid, cluster });
        }
        let (blocks, each) = (count_in(grid), self.blocks_of_multiprocessor(launch.dims));
        let most = u64::from(each) * u64::from(launch.multiprocessors);
        if launch.cooperative && blocks > most {
            return Err(Invalid::Cooperative { blocks, most });
        }
        Ok(())
    }

    /// Returns the block size for dimensions that were checked.
    fn block_size(&self, launch: &Launch<'_>) -> BlockSize {
        let LaunchDims { block, dynamic_shared, .. } = launch.dims;
        let threads = block.iter().product();
        let shared = match dynamic_shared {
            // Without dynamic shared memory, the padding that would align it is not part of the block.
            0 => self.shared_end,
            dynamic => self.static_shared + dynamic,
        };
        // The checks know the accesses of one block alone.
        let is_alone = count_in(self.cluster(launch)) == 1;
        let checks = if is_alone { launch.checks } else { Checks::default() };
        BlockSize { function: self.function, threads, shared, checks }
    }

    /// Returns the memory that [`Checks::read_only`] protects, if the check is on.
    fn read_only(&self, launch: &Launch<'_>, checks: Checks) -> Option<ReadOnly> {
        if !checks.read_only {
            return None;
        }
        let inputs = launch.operands.iter().filter(|operand| !operand.writes);
        let inputs = inputs.filter_map(|operand| {
            let at = operand.at?;
            // The address may be a part of a struct.
            let index = self.params.iter().rposition(|param| param.offset <= at)?;
            let name = self.params[index].name.as_str().into();
            Some(Input { range: operand.range.clone(), parameter: index as u32, name })
        });
        let outputs = launch.operands.iter().filter(|operand| operand.writes);
        let outputs = outputs.map(|operand| operand.range.clone());
        Some(ReadOnly::new(inputs.collect(), outputs.collect()))
    }

    fn check(&self, launch: &Launch<'_>) -> Result<(), Invalid> {
        let dims = launch.dims;
        dims.check()?;
        let block = dims.block;
        if let Some(required) = self.required_threads.filter(|&r| r != block) {
            return Err(Invalid::RequiredBlock { block, required });
        }
        if let Some(most) = self.max_threads.map(count_in).filter(|&most| count_in(block) > most) {
            return Err(Invalid::MaxThreads { block, most });
        }
        let bytes = u64::from(self.static_shared) + u64::from(dims.dynamic_shared);
        if bytes > u64::from(MAX_SHARED_BYTES) {
            return Err(Invalid::Shared { bytes, most: MAX_SHARED_BYTES });
        }
        self.check_cluster(launch)?;
        let (given, needed) = (launch.params.len(), self.param_bytes as usize);
        if given != needed {
            return Err(Invalid::Params { given, needed });
        }
        Ok(())
    }
}
