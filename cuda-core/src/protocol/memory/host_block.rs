//! Host memory that devices copy from and to.
//!
//! # Rules
//! Either the host or the device accesses a block's bytes, never both at once. The owner of a block that is not shared
//! reads and writes it through safe methods. A shared block ([`Arc<HostBlock>`]) that a submission names belongs to the
//! device until that submission is complete, or accepted if it is an upload. The host accesses the bytes of a shared
//! block only through the unsafe methods, and their callers wait for the submission first.

use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::protocol::{Error, HostId, Result};

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
