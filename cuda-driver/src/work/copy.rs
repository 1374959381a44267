//! Copies and fills within a device, and between it and the host.

use std::sync::Arc;

use cuda_core::protocol::{HostBlock, HostRegion, Limit, Pattern, Quantity, Region, Result};

use super::place::{Names, Place};
use crate::{context::Bound, driver::api::Address};

/// Copies from the host to the device.
///
/// # Safety
/// Until the stream has passed the copy, the block in `host` is alive, and its bytes do not change.
pub(super) unsafe fn upload(
    place: Place<'_>,
    from: HostRegion,
    to: Region,
    bytes: u64,
    host: &[Arc<HostBlock>],
    _: &Bound,
) -> Result<()> {
    let Some(size) = size(bytes)? else { return Ok(()) };
    let (from, to) = (place.names.host(from, size, host)?, place.names.memory.locate(to, bytes)?);
    // SAFETY: `size` bytes from `from` are in a block that is alive and does not change until the stream has passed the
    // copy (rule 7). `to` is device memory of that size.
    place.check(unsafe { place.api().upload(to, from.cast(), size, place.stream.raw) })
}

/// Copies from the device to the host.
///
/// # Safety
/// Until the stream has passed the copy, the block in `host` is alive, and no thread accesses its bytes.
pub(super) unsafe fn download(
    place: Place<'_>,
    from: Region,
    to: HostRegion,
    bytes: u64,
    host: &[Arc<HostBlock>],
    _: &Bound,
) -> Result<()> {
    let Some(size) = size(bytes)? else { return Ok(()) };
    let (from, to) = (place.names.memory.locate(from, bytes)?, place.names.host(to, size, host)?);
    // SAFETY: `size` bytes at `to` are in a block that is alive and that no thread accesses until the stream has passed
    // the copy (rule 7). `from` is device memory of that size.
    place.check(unsafe { place.api().download(to.cast(), from, size, place.stream.raw) })
}

/// Copies within the device.
pub(super) fn copy(
    place: Place<'_>,
    from: Region,
    to: Region,
    bytes: u64,
    _: &Bound,
) -> Result<()> {
    let Some(size) = size(bytes)? else { return Ok(()) };
    let (from, to) =
        (place.names.memory.locate(from, bytes)?, place.names.memory.locate(to, bytes)?);
    // SAFETY: both are device memory of that size.
    place.check(unsafe { place.api().copy(to, from, size, place.stream.raw) })
}

/// Fills memory with a pattern, `count` times.
pub(super) fn fill(
    place: Place<'_>,
    to: Region,
    pattern: Pattern,
    count: u64,
    _: &Bound,
) -> Result<()> {
    let Some(times) = size(count)? else { return Ok(()) };
    let (to, _) = fill_target(place.names, to, pattern, count)?;
    let (api, stream) = (place.api(), place.stream.raw);
    // SAFETY: `times` patterns fit behind `to`, which is aligned to them.
    place.check(unsafe {
        match pattern {
            Pattern::Byte(value) => api.fill_8(to, value, times, stream),
            Pattern::Half(value) => api.fill_16(to, value, times, stream),
            Pattern::Word(value) => api.fill_32(to, value, times, stream),
        }
    })
}

/// The address of a fill's memory, which is aligned to the pattern, and its size in bytes.
pub(super) fn fill_target(
    names: Names<'_>,
    to: Region,
    pattern: Pattern,
    count: u64,
) -> Result<(Address, u64)> {
    // An overflow is outside of every allocation.
    let bytes = count.saturating_mul(pattern.bytes());
    let to = names.memory.locate(to, bytes)?;
    Limit::MultipleOf(pattern.bytes()).check("a fill", Quantity::Address, to)?;
    Ok((to, bytes))
}

/// A number of bytes or elements as the driver takes it; nothing for 0.
pub(super) fn size(count: u64) -> Result<Option<usize>> {
    Limit::AtMost(usize::MAX as u64).check("a transfer", Quantity::Bytes, count)?;
    Ok((count != 0).then_some(count as usize))
}
