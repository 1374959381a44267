//! Other GPUs of the process: copying to their memory.

use super::{
    api::{PoolAccess, PoolHandle},
    context::{Bound, Primary},
    driver::Driver,
    memory::Memory,
    status::{self, Failed},
    streams::unknown,
};
use crate::{Error, PeerRegion, Region, Result, cuda::discard::Stream};

/// Lets `primary` write to the memory of the device at `address`.
pub(super) fn reach(primary: &Primary, address: &str, _: &Bound) -> Result<()> {
    let unsupported =
        || Error::unsupported(format!("copying to `{address}`"), &primary.info.address);
    let ordinal = address.strip_prefix("cuda:").and_then(|number| number.parse().ok());
    let peer = ordinal.and_then(Primary::opened).ok_or_else(unsupported)?;
    let driver = Driver::probe()?;
    let (this, other) = (driver.device(primary.ordinal)?, driver.device(peer.ordinal)?);
    let failed = |failed| primary.error(failed);
    let mut can = 0;
    // SAFETY: writes one integer.
    unsafe { primary.api.peer_can_access(&mut can, this, other) }.map_err(failed)?;
    if can == 0 {
        return Err(unsupported());
    }
    // SAFETY: this device's context is current; the other one lives as long as the process (rule 2).
    match unsafe { primary.api.peer_enable(peer.context, 0) } {
        Ok(()) | Err(Failed { code: status::PEER_ACCESS_ALREADY_ENABLED, .. }) => {}
        Err(refused) => return Err(failed(refused)),
    }
    if peer.pools {
        // Memory of pools is not covered by that.
        let (mut pool, access) = (PoolHandle::NULL, PoolAccess::of(this));
        // SAFETY: writes one handle; the device owns the pool; one description is read.
        unsafe {
            let got = primary.api.default_pool(&mut pool, other);
            got.and_then(|()| primary.api.pool_set_access(pool, &access, 1))
        }
        .map_err(failed)?;
    }
    Ok(())
}

/// Copies to the memory of a device that was reached.
pub(super) fn copy(
    primary: &Primary,
    memory: &Memory,
    stream: &Stream,
    (from, to, bytes): (Region, PeerRegion, u64),
    _: &Bound,
) -> Result<()> {
    let from = memory.locate(from, bytes)?;
    let peer = Primary::opened(to.ordinal)
        .ok_or_else(|| unknown(format!("device {}", to.ordinal), &primary.info.address))?;
    // SAFETY: `from` has that many bytes; `to` was given out by the peer's backend for as many, and the caller keeps it
    // alive and for itself. Both contexts live as long as the process.
    unsafe {
        let (to, bytes) = (to.address, bytes as usize);
        primary.api.copy_to_peer(to, peer.context, from, primary.context, bytes, stream.raw)
    }
    .map_err(|failed| primary.error(failed))
}
