//! Pinned host memory, which a device copies from and to at full speed.

use std::ptr::NonNull;

use crate::{
    cuda::{
        context::{Bound, Primary, Reclaimable},
        driver::{
            api::{HOST_PORTABLE, HostPointer},
            status::{self, Failed},
        },
    },
    protocol::{Error, HostBlock, Result},
};

/// A zeroed, pinned block. May block. Dropping it does not call the driver: the helper thread frees the memory.
pub(crate) fn host_block(primary: &'static Primary, bytes: usize, _: &Bound) -> Result<HostBlock> {
    let mut start = HostPointer::NULL;
    let reserved = bytes.max(1); // the driver refuses 0 bytes
    // SAFETY: writes one pointer.
    unsafe { primary.api.host_alloc(&mut start, reserved, HOST_PORTABLE) }.map_err(|failed| {
        match failed {
            Failed { code: status::OUT_OF_MEMORY, .. } => {
                Error::OutOfHostMemory { requested: bytes as u64 }
            }
            failed => primary.error(failed),
        }
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
    // SAFETY: `bytes` initialised, aligned bytes, which no other code uses until the block is dropped.
    Ok(unsafe { HostBlock::from_raw(pointer, bytes, move |_| give_back()) })
}

/// The memory of a block that was dropped.
struct Pinned(HostPointer);

impl Reclaimable for Pinned {
    fn reclaim(
        self: Box<Self>,
        primary: &'static Primary,
        _: &Bound,
    ) -> Option<Box<dyn Reclaimable>> {
        // SAFETY: it came from `host_alloc`. Its block was dropped, so no submission in flight uses it (rule 7).
        _ = unsafe { primary.api.host_free(self.0) };
        None
    }

    fn waits_for_device(&self) -> bool {
        true
    }
}
