//! Reserved addresses and physical memory of the simulated driver. Misuse is refused.

use std::{collections::HashMap, ffi::c_int};

use crate::driver::{
    api::{Address, PhysicalHandle},
    status,
};

/// The unit of physical memory.
pub(super) const GRANULARITY: usize = 1 << 21;

/// The largest piece of physical memory that is not refused.
const LARGEST: usize = 1 << 32;

#[derive(Default)]
pub(super) struct Mappings {
    next: u64,
    reserved: HashMap<Address, usize>,
    mapped: HashMap<Address, (usize, PhysicalHandle)>,
    physical: HashMap<PhysicalHandle, usize>,
}

const fn status(done: bool) -> c_int {
    if done { 0 } else { status::INVALID_VALUE }
}

impl Mappings {
    pub(super) fn counts(&self) -> [usize; 3] {
        [self.reserved.len(), self.mapped.len(), self.physical.len()]
    }

    pub(super) fn create(&mut self, bytes: usize) -> Option<PhysicalHandle> {
        if bytes > LARGEST {
            return None;
        }
        self.next += 1;
        self.physical.insert(self.next, bytes);
        Some(self.next)
    }

    /// The memory stays while it is mapped, as in the driver.
    pub(super) fn release(&mut self, memory: PhysicalHandle) -> c_int {
        status(self.physical.remove(&memory).is_some())
    }

    pub(super) fn reserve(&mut self, bytes: usize) -> Address {
        let address = (1 << 40) + (self.next << 21);
        self.next += 1 + (bytes / GRANULARITY) as u64;
        self.reserved.insert(address, bytes);
        address
    }

    pub(super) fn map(&mut self, at: Address, bytes: usize, memory: PhysicalHandle) -> c_int {
        let inside = self
            .reserved
            .iter()
            .any(|(start, size)| *start <= at && at + bytes as u64 <= start + *size as u64);
        let fits = self.physical.get(&memory) == Some(&bytes) && bytes.is_multiple_of(GRANULARITY);
        let done = inside && fits && !self.mapped.contains_key(&at);
        if done {
            self.mapped.insert(at, (bytes, memory));
        }
        status(done)
    }

    pub(super) fn unmap(&mut self, at: Address, bytes: usize) -> c_int {
        status(self.mapped.remove(&at).is_some_and(|(size, _)| size == bytes))
    }

    pub(super) fn free(&mut self, at: Address, bytes: usize) -> c_int {
        let end = at + bytes as u64;
        let is_free = !self.mapped.keys().any(|address| (at..end).contains(address));
        status(is_free && self.reserved.remove(&at) == Some(bytes))
    }
}
