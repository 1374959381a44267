//! What one worker of a running kernel sees of memory: the allocations it has touched so far.

use std::sync::Arc;

use super::error::AccessError;
use super::storage::Allocation;
use super::table::Memory;

/// A checked address range and where its bytes are on the host. Valid as long as the [`View`] it
/// came from lives and does not forget it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range {
    pub(crate) base: u64,
    pub(crate) size: u64,
    pub(crate) host: *mut u8,
}

impl Range {
    /// Holds no byte.
    pub(crate) const EMPTY: Self = Self { base: 0, size: 0, host: std::ptr::null_mut() };

    /// Host address of `bytes` from `address` on, if they are inside.
    #[inline(always)]
    pub(crate) fn locate(&self, address: u64, bytes: u64) -> Option<*mut u8> {
        let at = address.wrapping_sub(self.base);
        // `size` is below 2^63, so a wrapped `at` is too large too.
        (at.saturating_add(bytes) <= self.size).then(|| self.host.wrapping_add(at as usize))
    }
}

/// See the module. Keeps what it has found alive (rule 1).
#[derive(Debug)]
pub(crate) struct View<'m> {
    memory: &'m Memory,
    /// Sorted by base.
    held: Vec<Arc<Allocation>>,
    /// How many allocations kernels had freed when it was last looked whether what is held is still there.
    frees: u64,
}

impl<'m> View<'m> {
    pub(crate) fn new(memory: &'m Memory) -> Self {
        Self { memory, held: Vec::new(), frees: memory.frees_by_kernels() }
    }

    pub(crate) fn memory(&self) -> &'m Memory {
        self.memory
    }

    /// Lets go of the allocation that begins there, which the kernel has freed: kept, what a loop allocates and frees
    /// would take memory without bound. Ranges of it are no longer valid.
    pub(crate) fn forget(&mut self, address: u64) {
        if let Ok(index) = self.held.binary_search_by_key(&address, |a| a.base) {
            self.held.remove(index);
        }
    }

    /// Lets go of what other workers' threads have freed. True if there may have been something: then no range that
    /// it has given is valid any more.
    pub(crate) fn forget_freed(&mut self) -> bool {
        let frees = self.memory.frees_by_kernels();
        let some = std::mem::replace(&mut self.frees, frees) != frees;
        if some {
            self.memory.retain_live(&mut self.held);
        }
        some
    }

    /// Where these bytes are.
    pub(crate) fn find(&mut self, address: u64, bytes: u64) -> Result<Range, AccessError> {
        self.allocation(address, bytes).map(range)
    }

    /// The allocation that holds these bytes.
    pub(crate) fn allocation(
        &mut self,
        address: u64,
        bytes: u64,
    ) -> Result<&Allocation, AccessError> {
        let after = self.held.partition_point(|a| a.base <= address);
        let known = after.checked_sub(1).filter(|&i| self.held[i].holds(address, bytes));
        let index = match known {
            Some(index) => index,
            None => {
                let found = self.memory.find(address, bytes)?;
                self.held.insert(after, found);
                after
            }
        };
        Ok(&self.held[index])
    }
}

fn range(a: &Allocation) -> Range {
    Range { base: a.base, size: a.size, host: a.host() }
}
