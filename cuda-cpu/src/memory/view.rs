//! What one worker of a running kernel sees of memory: the allocations it has touched so far.

use std::sync::Arc;

use super::error::AccessError;
use super::storage::Allocation;
use super::table::Memory;

/// A checked address range and where its bytes are on the host. Valid as long as the [`View`] it
/// came from lives.
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
}

impl<'m> View<'m> {
    pub(crate) fn new(memory: &'m Memory) -> Self {
        Self { memory, held: Vec::new() }
    }

    pub(crate) fn memory(&self) -> &'m Memory {
        self.memory
    }

    /// The allocation that holds these bytes.
    pub(crate) fn find(&mut self, address: u64, bytes: u64) -> Result<Range, AccessError> {
        let after = self.held.partition_point(|a| a.base <= address);
        let held = after.checked_sub(1).and_then(|i| self.held.get(i));
        if let Some(a) = held.filter(|a| a.holds(address, bytes)) {
            return Ok(range(a));
        }
        let found = self.memory.find(address, bytes)?;
        let range = range(&found);
        self.held.insert(after, found);
        Ok(range)
    }
}

fn range(a: &Allocation) -> Range {
    Range { base: a.base, size: a.size, host: a.host() }
}
