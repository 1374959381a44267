//! Resolves the names in submitted work to addresses and checks all bounds.

use std::{ops::Range, sync::Arc};

use cuda_core::{
    Access, Error, Result,
    internals::IdMap,
    protocol::{
        AllocId, HostBlock, HostRegion, Launch, Limit, Misuse, ModuleId, PoolId, Quantity, Region,
    },
};
use parking_lot::{Mutex, RwLock};
use smallvec::SmallVec;

use super::work::Kernel;
use crate::{LaunchDims, Operand, device::state::modules::LoadedModule};

/// The live allocations by name.
#[derive(Default)]
pub(crate) struct Names {
    allocations: RwLock<IdMap<AllocId, Allocation>>,
    /// The variables of each module: an unload does not look at all allocations. Locked after `allocations`.
    variables: Mutex<IdMap<ModuleId, Vec<AllocId>>>,
}

/// A live allocation.
#[derive(Clone, Copy)]
pub(crate) struct Allocation {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) pool: PoolId,
    /// The module, if this is a variable. The memory is freed with the module.
    pub(crate) module: Option<ModuleId>,
}

impl Names {
    /// # Errors
    /// The id is in use.
    pub(crate) fn check_unused(&self, id: AllocId) -> Result<()> {
        match self.allocations.read().contains_key(&id) {
            true => Err(Misuse::IdInUse { object: "allocation".into(), id: id.0 }.into()),
            false => Ok(()),
        }
    }

    /// Adds an allocation, whose id is [unused](Self::check_unused), or replaces it by itself with other bytes.
    pub(crate) fn add_allocation(&self, id: AllocId, allocation: Allocation) {
        let mut allocations = self.allocations.write();
        if let Some(module) = allocation.module {
            self.variables.lock().entry(module).or_default().push(id);
        }
        allocations.insert(id, allocation);
    }

    /// Removes the variables of a module that is unloaded. Returns their ids.
    pub(crate) fn forget_variables(&self, module: ModuleId) -> Vec<AllocId> {
        let mut allocations = self.allocations.write();
        let mut variables = self.variables.lock().remove(&module).unwrap_or_default();
        let is_of_module =
            |id: &mut AllocId| allocations.get(id).is_some_and(|of| of.module == Some(module));
        variables.retain_mut(is_of_module);
        for variable in &variables {
            allocations.remove(variable);
        }
        variables
    }

    /// Returns an allocation.
    pub(crate) fn find(&self, id: AllocId) -> Result<Allocation> {
        let found = self.allocations.read().get(&id).copied();
        found.ok_or_else(|| Error::no_such_object("allocation", id.0))
    }

    /// Removes an allocation.
    pub(crate) fn remove_allocation(&self, id: AllocId) -> Result<Allocation> {
        let removed = self.allocations.write().remove(&id);
        removed.ok_or_else(|| Error::no_such_object("allocation", id.0))
    }

    /// Returns the address of a region of `bytes` bytes.
    ///
    /// # Errors
    /// If the allocation is unknown or smaller than the region.
    pub(crate) fn address(&self, region: Region, bytes: u64) -> Result<u64> {
        let allocation = self.allocations.read().get(&region.alloc).copied();
        let Allocation { address, bytes: size, .. } =
            allocation.ok_or_else(|| Error::no_such_object("allocation", region.alloc.0))?;
        match region.offset.checked_add(bytes) {
            Some(end) if end <= size => Ok(address + region.offset),
            _ => Err(region.outside(bytes, size)),
        }
    }

    /// Resolves a launch: fills the addresses into its parameters. Lists its operands only if `lists_operands`.
    pub(crate) fn kernel(
        &self,
        launch: &Launch<'_>,
        module: Arc<LoadedModule>,
        lists_operands: bool,
    ) -> Result<Box<Kernel>> {
        let mut operands = Vec::new();
        let mut params: SmallVec<[u8; 64]> = SmallVec::from_slice(&launch.params);
        for relocation in launch.relocations.iter() {
            let address = self.address(relocation.region, relocation.bytes)?;
            let at = relocation.at as usize;
            let place = params.get_mut(at..at.saturating_add(8)).ok_or_else(|| {
                let (end, limit) = (at as u64 + 8, Limit::AtMost(launch.params.len() as u64));
                Error::out_of_range("an address in parameters", Quantity::End, end, limit)
            })?;
            place.copy_from_slice(&address.to_le_bytes());
            if lists_operands {
                let range = address..address.saturating_add(relocation.bytes);
                let writes = relocation.access == Access::Write;
                operands.push(Operand { range, writes, at: Some(relocation.at) });
            }
        }
        for variable in launch.variables.iter().filter(|_| lists_operands) {
            let start = self.find(variable.base)?.address;
            let range = start.saturating_add(variable.range.start)
                ..start.saturating_add(variable.range.end);
            let writes = variable.access == Access::Write;
            operands.push(Operand { range, writes, at: None });
        }
        let config = launch.config;
        let dims = LaunchDims {
            grid: config.grid,
            block: config.block,
            dynamic_shared: config.shared_bytes,
        };
        let (entry, attributes) = (module.entry(launch.function.entry)?, config.attributes);
        let operands = operands.into();
        Ok(Box::new(Kernel { entry, module, dims, attributes, params, operands }))
    }
}

/// Finds the host block of a region, and the range of the region's bytes.
pub(crate) fn host_range(
    region: HostRegion,
    bytes: u64,
    beside: &[Arc<HostBlock>],
) -> Result<(Arc<HostBlock>, Range<usize>)> {
    let block = beside.iter().find(|block| block.id() == region.block);
    let block = block.ok_or_else(|| region.missing())?;
    let start = usize::try_from(region.offset).ok();
    let end = region.offset.checked_add(bytes).and_then(|end| usize::try_from(end).ok());
    match (start, end) {
        (Some(start), Some(end)) if end <= block.len() => Ok((block.clone(), start..end)),
        _ => Err(region.outside(bytes, block.len() as u64)),
    }
}
