//! Pinned host memory, which a device copies from and to at full speed.

use std::ptr::NonNull;

use cuda_core::protocol::{Error, HostBlock, Result};

use crate::{
    context::{Bound, Primary, Reclaimable},
    driver::{
        api::{HOST_PORTABLE, HostPointer},
        status::{self, Failed},
    },
};

/// A zeroed, pinned block. May block. Dropping it does not call the driver: the helper thread frees the memory.
pub(crate) fn host_block(
    primary: &'static Primary,
    bytes: usize,
    bound: &Bound,
) -> Result<HostBlock> {
    let reserved = bytes.max(1); // the driver refuses 0 bytes
    let start = allocate(primary, reserved, bound).map_err(|failed| match failed {
        Failed { code: status::OUT_OF_MEMORY, .. } => {
            Error::OutOfHostMemory { requested: bytes as u64 }
        }
        failed => primary.error(failed),
    })?;
    let give_back = move || primary.reclaim.put(Box::new(Pinned(start)));
    let pointer = match NonNull::new(start.0.cast::<u8>()) {
        Some(pointer) if pointer.addr().get() % HostBlock::ALIGN == 0 => pointer,
        Some(_) => {
            // Drivers give whole pages, but do not document it.
            give_back();
            let detail =
                format!("the driver gave memory that is not aligned to {}", HostBlock::ALIGN);
            return Err(Error::Host { what: "pinning host memory".into(), detail });
        }
        None => return Err(Error::OutOfHostMemory { requested: bytes as u64 }),
    };
    // SAFETY: the driver gave `reserved` bytes from here, to no other owner.
    unsafe { pointer.write_bytes(0, reserved) };
    // SAFETY: `bytes` initialized, aligned bytes, which no other code uses until the block is dropped.
    Ok(unsafe { HostBlock::from_raw(pointer, bytes, move |_| give_back()) })
}

fn allocate(primary: &Primary, bytes: usize, bound: &Bound) -> Result<HostPointer, Failed> {
    if let Some(pool) = &primary.host_pool {
        return pool.allocate(primary.api, bytes, bound);
    }
    let mut start = HostPointer::NULL;
    // SAFETY: writes one pointer.
    unsafe { primary.api.host_alloc(&mut start, bytes, HOST_PORTABLE) }?;
    Ok(start)
}

/// The memory of a block that was dropped.
struct Pinned(HostPointer);

impl Reclaimable for Pinned {
    fn reclaim(
        self: Box<Self>,
        primary: &'static Primary,
        bound: &Bound,
    ) -> Option<Box<dyn Reclaimable>> {
        // Its block was dropped, so no submission in flight uses the memory (rule 7).
        match &primary.host_pool {
            // SAFETY: the memory came from the pool, and no submission in flight uses it.
            Some(pool) => unsafe { pool.give_back(primary.api, self.0, bound) },
            // SAFETY: the memory came from `host_alloc`, and no submission in flight uses it. A failure means that the
            // device is lost.
            None => _ = unsafe { primary.api.host_free(self.0) },
        }
        None
    }

    /// Without a pool, the driver waits for every running kernel.
    fn waits_for_device(&self, primary: &Primary) -> bool {
        primary.host_pool.is_none()
    }
}
