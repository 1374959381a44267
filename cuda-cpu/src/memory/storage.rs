//! The host memory of one allocation, and its initial contents.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;

use super::written::Written;

/// The alignment of an allocation's host bytes, and the least alignment of its address.
pub(super) const ALIGN: u64 = 256;

/// The alignment that is requested from the system's allocator. Up to this alignment, the allocator takes fresh pages
/// for large zeroed memory; above it, the allocator writes zeros. The bytes to align to [`ALIGN`] are added by hand.
const ASKED_ALIGN: usize = 16;

/// The initial contents of new allocations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// This byte in the first [`Contents::MARKED`] bytes of every allocation, and zeros after them. A small buffer
    /// without initialization is detected in its whole length, and a large buffer takes no host memory until it is
    /// accessed.
    Byte(u8),
}

impl Contents {
    /// The number of bytes at the start of an allocation that [`Contents::Byte`] sets: 64 KiB.
    pub const MARKED: u64 = 64 << 10;
}

impl Default for Contents {
    fn default() -> Self {
        Self::Byte(0xFF)
    }
}

/// An allocation: an address range and its host memory, which is freed when the last holder drops it.
#[derive(Debug)]
pub(crate) struct Allocation {
    pub(crate) base: u64,
    pub(crate) size: u64,
    /// The first aligned byte of the block.
    host: NonNull<u8>,
    /// Shared by an allocation that has [grown](Allocation::grown) and the one before.
    block: Arc<Block>,
    /// The record of written bytes, if the memory tracks them.
    pub(crate) written: Option<Arc<Written>>,
}

/// A block from the system's allocator.
#[derive(Debug)]
struct Block {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the pointer owns its bytes, which are touched only through an allocation.
unsafe impl Send for Block {}
// SAFETY: the pointer owns its bytes, which are touched only through an allocation.
unsafe impl Sync for Block {}

// SAFETY: the pointer owns its bytes; they are touched only through `access` (module rules 2, 3).
unsafe impl Send for Allocation {}
// SAFETY: the pointer owns its bytes, and shared access goes through atomics or assembly (module rules 2, 3).
unsafe impl Sync for Allocation {}

impl Allocation {
    /// Allocates host memory, without an address yet. Returns `None` if the host is out of memory.
    pub(super) fn new(size: u64, contents: Contents, track: bool) -> Option<Self> {
        let written = if track { Some(Arc::new(Written::new(size)?)) } else { None };
        let len = usize::try_from(size).ok()?;
        let layout = Layout::from_size_align(len.checked_add(ALIGN as usize)?, ASKED_ALIGN).ok()?;
        // SAFETY: the layout's size is at least `ALIGN`.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let skipped = start.as_ptr().addr().wrapping_neg() % ALIGN as usize;
        // SAFETY: less than `ALIGN` bytes are skipped, so `len` bytes are left behind them.
        let host = unsafe { start.add(skipped) };
        let Contents::Byte(byte) = contents;
        if byte != 0 {
            let marked = size.min(Contents::MARKED) as usize;
            // SAFETY: `host` is a new block of `len` bytes that is not shared yet, and `marked` is at most `len`.
            unsafe { host.as_ptr().write_bytes(byte, marked) };
        }
        Some(Self { base: 0, size, host, block: Arc::new(Block { start, layout }), written })
    }

    /// The same memory at an address.
    pub(super) fn at(self, base: u64) -> Self {
        Self { base, ..self }
    }

    /// The same memory, of which the first `size` bytes may be used. The host memory of all bytes with which the first
    /// one was allocated exists, but the system provides its pages only when they are used.
    ///
    /// Returns `None` if there are not that many.
    pub(super) fn grown(&self, size: u64) -> Option<Self> {
        let skipped = self.host.as_ptr().addr() - self.block.start.as_ptr().addr();
        let most = (self.block.layout.size() - skipped) as u64;
        let Self { base, host, .. } = *self;
        let (block, written) = (self.block.clone(), self.written.clone());
        (size <= most).then_some(Self { base, size, host, block, written })
    }

    pub(crate) fn host(&self) -> *mut u8 {
        self.host.as_ptr()
    }

    /// Marks bytes inside the allocation as written.
    pub(crate) fn mark(&self, address: u64, bytes: u64) {
        if let Some(written) = &self.written {
            written.mark(address - self.base, bytes);
        }
    }

    /// Whether the range is inside the allocation.
    pub(crate) fn holds(&self, address: u64, bytes: u64) -> bool {
        address.checked_sub(self.base).is_some_and(|at| at <= self.size && bytes <= self.size - at)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated in `Allocation::new` with this layout, and this is the last holder.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}
