//! Device and host memory in submissions: elements, regions and their uses, host blocks and pools.
//!
//! # Rules of host blocks
//! Either the host or the device accesses a block's bytes, never both at once. The owner of a block that is not shared
//! reads and writes it through safe methods. A shared block ([`Arc<HostBlock>`]) that a submission names belongs to the
//! device until that submission is complete, or accepted if it is an upload. The host accesses the bytes of a shared
//! block only through the unsafe methods, and their callers wait for the submission first.

use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    ops::Range,
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering},
};

use bytemuck::Pod;

use crate::protocol::{Access, AllocId, Error, HostId, Limit, Quantity, Result};

/// A position in a device allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// The allocation.
    pub alloc: AllocId,
    /// The offset in bytes from the start of the allocation.
    pub offset: u64,
}

impl Region {
    /// Returns the use of `bytes` bytes from this position on.
    pub fn used(self, bytes: u64, access: Access) -> Use {
        let range = self.offset..self.offset.saturating_add(bytes);
        Use { base: self.alloc, range, access }
    }

    /// Returns the error for `bytes` bytes from this position on, which are not all among the `size` bytes of the
    /// allocation.
    #[cold]
    pub fn outside(self, bytes: u64, size: u64) -> Error {
        let allocation = format!("a range of allocation {}", self.alloc.0);
        let (end, limit) = (self.offset.saturating_add(bytes), Limit::AtMost(size));
        Error::out_of_range(allocation, Quantity::End, end, limit)
    }
}

/// A position in a block of host memory. The block itself travels beside the submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostRegion {
    /// The block.
    pub block: HostId,
    /// The offset in bytes from the start of the block.
    pub offset: u64,
}

impl HostRegion {
    /// Returns the error for `bytes` bytes from this position on, which are not all among the `size` bytes of the
    /// block.
    #[cold]
    pub fn outside(self, bytes: u64, size: u64) -> Error {
        let (end, limit) = (self.offset.saturating_add(bytes), Limit::AtMost(size));
        Error::out_of_range("a range of a block of host memory", Quantity::End, end, limit)
    }

    /// Returns the error for a submission that does not carry the block.
    #[cold]
    pub fn missing(self) -> Error {
        Error::no_such_object("block of host memory", self.block.0)
    }
}

/// One operand of a submission: bytes of an allocation, and the access to them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Use {
    /// The allocation.
    pub base: AllocId,
    /// The range of bytes in the allocation.
    pub range: Range<u64>,
    /// The access of the submission to these bytes.
    pub access: Access,
}

/// A place in the launch parameters where the backend writes the device address of a region. The address has eight
/// bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relocation {
    /// Byte offset into the parameter block.
    pub at: u32,
    /// The region whose address is written.
    pub region: Region,
    /// The number of bytes that the kernel may access from there on.
    pub bytes: u64,
    /// The access of the kernel to these bytes.
    pub access: Access,
}

/// The value that a fill repeats: one, two or four bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// One byte.
    Byte(u8),
    /// Two bytes, in native order.
    Half(u16),
    /// Four bytes, in native order.
    Word(u32),
}

impl Pattern {
    /// Returns the size in bytes.
    pub const fn bytes(self) -> u64 {
        match self {
            Pattern::Byte(_) => 1,
            Pattern::Half(_) => 2,
            Pattern::Word(_) => 4,
        }
    }
}

/// A block of host memory with an id that submissions name. Its bytes are always initialized.
pub struct HostBlock {
    id: HostId,
    start: NonNull<u8>,
    bytes: usize,
    free: Box<dyn FnMut(NonNull<u8>) + Send + Sync>,
}

// SAFETY: the block owns its memory, and `free` takes the memory from any thread. Only unsafe methods access the bytes
// of a shared block, and while one of them does, no other thread and no device writes these bytes.
unsafe impl Send for HostBlock {}
// SAFETY: only unsafe methods access the bytes of a shared block, and while one of them does, no other thread and no
// device writes these bytes.
unsafe impl Sync for HostBlock {}

static NEXT: AtomicU64 = AtomicU64::new(1);

impl HostBlock {
    /// Alignment of every block, in bytes: a cache line, and more than any element needs.
    pub const ALIGN: usize = 64;

    /// Wraps memory that a backend has allocated.
    ///
    /// # Safety
    /// `start` points to `bytes` initialized bytes, aligned to [`HostBlock::ALIGN`], that stay valid
    /// and are not used otherwise until `free` is called with it, from any thread.
    pub unsafe fn from_raw(
        start: NonNull<u8>,
        bytes: usize,
        free: impl FnMut(NonNull<u8>) + Send + Sync + 'static,
    ) -> Self {
        let id = HostId(NEXT.fetch_add(1, Ordering::Relaxed));
        Self { id, start, bytes, free: Box::new(free) }
    }

    /// Allocates a zeroed block of ordinary memory.
    ///
    /// # Errors
    /// [`Error::OutOfHostMemory`].
    pub fn heap(bytes: usize) -> Result<Self> {
        let out_of_memory = || Error::OutOfHostMemory { requested: bytes as u64 };
        let layout =
            Layout::from_size_align(bytes.max(1), Self::ALIGN).map_err(|_| out_of_memory())?;
        // SAFETY: the layout's size is not zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(out_of_memory)?;
        // SAFETY: `start` was allocated just now with this layout, zeroed, and is freed only here.
        Ok(unsafe { Self::from_raw(start, bytes, move |start| dealloc(start.as_ptr(), layout)) })
    }

    /// Returns the id of the block.
    pub fn id(&self) -> HostId {
        self.id
    }

    /// Returns the size in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Returns whether the block has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Returns a pointer to the first byte, for a device to copy from or to.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Returns the bytes of an owned block, for reading.
    pub fn bytes(&mut self) -> &[u8] {
        self.bytes_mut()
    }

    /// Returns the bytes of an owned block, for writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: `start` is valid for `bytes` initialized bytes. `&mut self` means that no other owner holds the
        // block, and a submission in flight that names the block would be an owner.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }

    /// Returns the bytes of a shared block, for reading.
    ///
    /// # Safety
    /// No submission that writes to the block is in flight, and none is made while the slice lives.
    pub unsafe fn shared_bytes(&self) -> &[u8] {
        // SAFETY: the bytes are valid and initialized while the block lives. No submission writes to them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    /// Returns the bytes in `range` of a shared block, for a backend that writes a download to them.
    ///
    /// # Safety
    /// The caller is the backend, running a submission that writes `range` of this block, and no other submission in
    /// flight names these bytes.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn shared_bytes_mut(&self, range: std::ops::Range<usize>) -> Option<&mut [u8]> {
        if range.start > range.end || range.end > self.bytes {
            return None;
        }
        // SAFETY: the range lies inside the block. The caller runs the only submission that names these bytes.
        Some(unsafe {
            std::slice::from_raw_parts_mut(self.start.as_ptr().add(range.start), range.len())
        })
    }
}

impl Drop for HostBlock {
    fn drop(&mut self) {
        (self.free)(self.start);
    }
}

impl std::fmt::Debug for HostBlock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostBlock").field("id", &self.id).field("bytes", &self.bytes).finish()
    }
}

/// A type without padding for which every bit pattern is a valid value. Any bytes that a device wrote can be read back
/// as such values. Every [`bytemuck::Pod`] type is one: integers, floats, `f16`, `bf16`, arrays of them, and structs
/// that derive `Pod`.
///
/// A program that allocates memory for elements of size zero does not build.
pub trait Element: Pod + Send + Sync {}

impl<T: Pod + Send + Sync> Element for T {}

/// Fails while the program is built, if a value of the type has no bytes: the length of an allocation could not be
/// computed from its size. Call it in a `const` block.
pub(crate) const fn assert_has_bytes<T>() {
    assert!(
        size_of::<T>() > 0,
        "the elements of a buffer have no bytes; use a type of at least one byte"
    );
}

/// The properties of a new pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolSpec {
    /// The bytes that the pool keeps reserved from the system. See [`PoolChange::ReleaseThreshold`].
    pub release_threshold: u64,
    /// Whether the pool is of CUDA managed memory, whose pages may be on the host. A backend without
    /// [`managed_pools`](crate::protocol::Capabilities::managed_pools) ignores this and creates an ordinary pool.
    pub is_managed: bool,
}

impl PoolSpec {
    /// Returns the properties of an ordinary pool with this release threshold.
    pub const fn new(release_threshold: u64) -> Self {
        Self { release_threshold, is_managed: false }
    }

    /// Sets whether the pool is of managed memory.
    pub const fn managed(self, is_managed: bool) -> Self {
        Self { is_managed, ..self }
    }
}

/// A change to a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoolChange {
    /// Sets the bytes that the pool keeps reserved for later allocations. A backend returns freed memory beyond them to
    /// the system, at the latest at the next synchronization after the free has run.
    ReleaseThreshold(u64),
    /// Sets the peak of the reserved bytes to the bytes that are reserved now.
    ResetPeak,
}

/// The memory that a pool has reserved from the system, in bytes: in use, and free for its next allocations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolMemory {
    /// The bytes that are reserved now.
    pub reserved: u64,
    /// The largest number of reserved bytes since the pool was created, or since the last [`PoolChange::ResetPeak`].
    pub reserved_peak: u64,
    /// The bytes that the pool keeps reserved: see [`PoolChange::ReleaseThreshold`].
    pub release_threshold: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As in a backend that copies in parts.
    #[test]
    fn two_threads_write_disjoint_halves_of_a_block() -> Result<()> {
        let mut block = HostBlock::heap(256)?;
        std::thread::scope(|scope| {
            let halves = [0..128, 128..256].map(|half| {
                let block = &block;
                scope.spawn(move || {
                    let value = half.start as u8;
                    // SAFETY: each thread has a half of its own, and there is no device.
                    let bytes = unsafe { block.shared_bytes_mut(half) };
                    bytes.into_iter().for_each(|bytes| bytes.fill(value));
                })
            });
            // ThreadSanitizer sees this, and not the end of the scope.
            halves.into_iter().for_each(|half| half.join().unwrap());
        });
        assert!(block.bytes()[..128].iter().all(|byte| *byte == 0));
        assert!(block.bytes()[128..].iter().all(|byte| *byte == 128));
        Ok(())
    }
}

#[cfg(test)]
mod element_tests {
    use super::*;

    // A doctest cannot test this: rustdoc generates no code for a `compile_fail` program, and the assertion fails only
    // then.
    #[test]
    #[should_panic(expected = "at least one byte")]
    fn elements_of_size_zero_are_refused() {
        assert_has_bytes::<()>();
    }
}
