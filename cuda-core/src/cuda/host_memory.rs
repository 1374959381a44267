//! Page-locked host memory, which a device copies from and to at full speed.

use std::ptr::NonNull;

use super::{
    api::{HOST_PORTABLE, HostPointer},
    context::{Bound, Primary},
    discard::Discarded,
    status::{self, Failed},
};
use crate::{Error, HostBlock, Result};

/// A zeroed, page-locked block.
///
/// Dropping it does not call the driver: the memory is given back by the next request, or when the
/// next block is made.
pub(super) fn host_block(primary: &'static Primary, bytes: usize, _: &Bound) -> Result<HostBlock> {
    let mut start = HostPointer::NULL;
    let reserved = bytes.max(1); // the driver refuses to allocate nothing
    // SAFETY: writes one pointer.
    unsafe { primary.api.host_alloc(&mut start, reserved, HOST_PORTABLE) }.map_err(|failed| {
        match failed {
            Failed { code: status::OUT_OF_MEMORY, .. } => {
                Error::OutOfHostMemory { requested: bytes as u64 }
            }
            failed => primary.error(failed),
        }
    })?;
    let give_back = move || primary.trash.put(Discarded::Host(start));
    let pointer = match NonNull::new(start.0.cast::<u8>()) {
        Some(pointer) if pointer.addr().get() % HostBlock::ALIGN == 0 => pointer,
        Some(_) => {
            // Whole pages, as far as anybody has seen; but nothing written promises it.
            give_back();
            let detail = "it is not aligned to a cache line".into();
            return Err(Error::Host { what: "page-locked memory".into(), detail });
        }
        None => return Err(Error::OutOfHostMemory { requested: bytes as u64 }),
    };
    // SAFETY: the driver gave `reserved` bytes from here, to nobody else.
    unsafe { pointer.write_bytes(0, reserved) };
    // SAFETY: `bytes` initialised bytes, aligned, which nobody uses until they are in the trash.
    Ok(unsafe { HostBlock::from_raw(pointer, bytes, move |_| give_back()) })
}
