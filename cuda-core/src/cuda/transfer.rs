//! Copies and fills.

use std::sync::Arc;

use super::{
    api::Api,
    context::{Bound, Primary},
    discard::Stream,
    memory::{Memory, outside},
    streams::unknown,
};
use crate::{Error, HostBlock, HostRegion, Pattern, Region, Result};

/// Host to device.
pub(super) fn upload(
    on: On<'_>,
    from: HostRegion,
    to: Region,
    bytes: u64,
    host: &[Arc<HostBlock>],
    _: &Bound,
) -> Result<()> {
    let Some(size) = size(bytes)? else { return Ok(()) };
    let (from, to) = (on.host(from, size, host)?, on.memory.locate(to, bytes)?);
    // SAFETY: `size` bytes from `from` are in a block that the caller keeps (rule 7); `to` is device
    // memory of that size.
    on.check(unsafe { on.api().upload(to, from.cast(), size, on.stream.raw) })
}

/// Device to host.
pub(super) fn download(
    on: On<'_>,
    from: Region,
    to: HostRegion,
    bytes: u64,
    host: &[Arc<HostBlock>],
    _: &Bound,
) -> Result<()> {
    let Some(size) = size(bytes)? else { return Ok(()) };
    let (from, to) = (on.memory.locate(from, bytes)?, on.host(to, size, host)?);
    // SAFETY: as for an upload; nobody reads the bytes before the stream has passed this.
    on.check(unsafe { on.api().download(to.cast(), from, size, on.stream.raw) })
}

/// Device to the same device.
pub(super) fn copy(on: On<'_>, from: Region, to: Region, bytes: u64, _: &Bound) -> Result<()> {
    let Some(size) = size(bytes)? else { return Ok(()) };
    let (from, to) = (on.memory.locate(from, bytes)?, on.memory.locate(to, bytes)?);
    // SAFETY: both are device memory of that size.
    on.check(unsafe { on.api().copy(to, from, size, on.stream.raw) })
}

/// A pattern, again and again.
pub(super) fn fill(on: On<'_>, to: Region, pattern: Pattern, count: u64, _: &Bound) -> Result<()> {
    let Some(times) = size(count)? else { return Ok(()) };
    let bytes = count.checked_mul(pattern.bytes()).ok_or_else(too_large)?;
    let to = on.memory.locate(to, bytes)?;
    if to % pattern.bytes() != 0 {
        let detail = format!("it is not aligned to the pattern's {} bytes", pattern.bytes());
        return Err(Error::OutOfRange { what: "the start of a fill".into(), detail });
    }
    let (api, stream) = (on.api(), on.stream.raw);
    // SAFETY: `times` patterns fit behind `to`, which is aligned to them.
    on.check(unsafe {
        match pattern {
            Pattern::Byte(value) => api.fill_8(to, value, times, stream),
            Pattern::Half(value) => api.fill_16(to, value, times, stream),
            Pattern::Word(value) => api.fill_32(to, value, times, stream),
        }
    })
}

/// Where a transfer is enqueued: a held stream, and the memory of its backend.
#[derive(Clone, Copy)]
pub(super) struct On<'a> {
    pub(super) primary: &'static Primary,
    pub(super) memory: &'a Memory,
    pub(super) stream: &'a Stream,
}

impl On<'_> {
    fn api(&self) -> &'static Api {
        self.primary.api
    }

    fn check(&self, status: Result<(), super::status::Failed>) -> Result<()> {
        status.map_err(|failed| self.primary.error(failed))
    }

    /// Where `size` bytes of host memory are, if they are inside the block that is named.
    fn host(&self, region: HostRegion, size: usize, host: &[Arc<HostBlock>]) -> Result<*mut u8> {
        let block = host.iter().find(|block| block.id() == region.block).ok_or_else(|| {
            unknown(format!("host block {}", region.block.0), &self.primary.info.address)
        })?;
        let start = usize::try_from(region.offset)
            .ok()
            .filter(|start| start.checked_add(size).is_some_and(|end| end <= block.len()));
        let start = start.ok_or_else(|| {
            outside("host block", block.id().0, block.len() as u64, region.offset, size as u64)
        })?;
        // Stays in the block, so the pointer is good to be handed on.
        Ok(block.as_ptr().wrapping_add(start))
    }
}

/// A number of bytes or elements as the driver takes it; none for nothing to do.
fn size(count: u64) -> Result<Option<usize>> {
    usize::try_from(count).map(|count| (count != 0).then_some(count)).map_err(|_| too_large())
}

#[cold]
fn too_large() -> Error {
    let detail = "more bytes than an address can count".into();
    Error::OutOfRange { what: "a transfer".into(), detail }
}
