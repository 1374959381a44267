//! The view of device memory of one worker of a running kernel: the allocations that it has accessed so far.

use std::sync::Arc;

use super::error::AccessError;
use super::storage::Allocation;
use super::table::Memory;

/// A checked address range and its host address. It is valid as long as its [`View`] lives and does not forget it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range {
    pub(crate) base: u64,
    pub(crate) size: u64,
    pub(crate) host: *mut u8,
}

impl Range {
    /// The empty range.
    pub(crate) const EMPTY: Self = Self { base: 0, size: 0, host: std::ptr::null_mut() };

    /// Returns the host address of `bytes` bytes from `address` on, if they are inside the range.
    #[inline(always)]
    pub(crate) fn locate(&self, address: u64, bytes: u64) -> Option<*mut u8> {
        let at = address.wrapping_sub(self.base);
        // `size` is below 2^63, so a wrapped `at` fails the comparison too.
        (at.saturating_add(bytes) <= self.size).then(|| self.host.wrapping_add(at as usize))
    }
}

/// The allocations that a worker has accessed, which the view keeps alive (rule 1).
#[derive(Debug)]
pub(crate) struct View<'m> {
    memory: &'m Memory,
    /// Sorted by base.
    held: Vec<Arc<Allocation>>,
    /// The number of frees by kernels at the last check for freed allocations.
    frees: u64,
}

impl<'m> View<'m> {
    pub(crate) fn new(memory: &'m Memory) -> Self {
        Self { memory, held: Vec::new(), frees: memory.frees_by_kernels() }
    }

    pub(crate) fn memory(&self) -> &'m Memory {
        self.memory
    }

    /// Drops the allocation at `address`, which the kernel has freed. Otherwise a loop that allocates and frees would
    /// take unbounded memory. Ranges of the allocation become invalid.
    pub(crate) fn forget(&mut self, address: u64) {
        if let Ok(index) = self.held.binary_search_by_key(&address, |a| a.base) {
            self.held.remove(index);
        }
    }

    /// Drops allocations that the threads of other workers have freed. Returns whether there can be some. All ranges of
    /// this view are then invalid.
    pub(crate) fn forget_freed(&mut self) -> bool {
        let frees = self.memory.frees_by_kernels();
        let some = std::mem::replace(&mut self.frees, frees) != frees;
        if some {
            self.memory.retain_live(&mut self.held);
        }
        some
    }

    /// Returns the range that contains these bytes.
    pub(crate) fn find(&mut self, address: u64, bytes: u64) -> Result<Range, AccessError> {
        self.allocation(address, bytes).map(range)
    }

    /// Returns the allocation that contains these bytes.
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
