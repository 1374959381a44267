//! Copies to other GPUs of the process.

use cuda_core::protocol::{Error, Limit, Quantity, Region, Result, TransferId};

use super::place::Place;
use crate::{
    context::{Bound, Primary},
    driver::status::{self, Failed},
    objects::Transfers,
};

/// Enables copies from `primary` to the device at `address`. Returns false if the devices do not support it. May block.
pub(crate) fn reach(primary: &Primary, address: &str, bound: &Bound) -> Result<bool> {
    let ordinal = address.strip_prefix("cuda:").and_then(|number| number.parse().ok());
    let Some(peer) = ordinal.and_then(Primary::opened) else { return Ok(false) };
    if peer.ordinal == primary.ordinal {
        return Ok(true); // another backend of the same device
    }
    let failed = |failed| primary.error(failed);
    let mut can = 0;
    // SAFETY: writes one integer.
    unsafe { primary.api.peer_can_access(&mut can, primary.device, peer.device) }
        .map_err(failed)?;
    if can == 0 {
        return Ok(false);
    }
    // SAFETY: this device's context is current; the other one is never released (rule 2).
    match unsafe { primary.api.peer_enable(peer.context, 0) } {
        Ok(()) | Err(Failed { code: status::PEER_ACCESS_ALREADY_ENABLED, .. }) => {}
        Err(refused) => return Err(failed(refused)),
    }
    peer.grant_pools(primary.device, bound).map_err(failed)?;
    Ok(true)
}

/// Copies to the announced memory of another device. Removes the announcement, even if the copy is refused.
pub(super) fn send(
    place: Place<'_>,
    from: Region,
    transfer: TransferId,
    bytes: u64,
    _: &Bound,
) -> Result<()> {
    let primary = place.names.primary;
    let target = Transfers::get().take(transfer);
    let target = target.ok_or_else(|| Error::no_such_object("transfer", transfer.0))?;
    let limit = Limit::AtMost(target.bytes);
    limit.check("a copy to another device", Quantity::Bytes, bytes)?;
    let from = place.names.memory.locate(from, bytes)?;
    let peer = Primary::opened(target.ordinal)
        .ok_or_else(|| Error::no_such_object("device", target.ordinal.into()))?;
    if bytes == 0 {
        return Ok(());
    }
    // SAFETY: `from` has that many bytes. The peer's backend announced as many at `to`, and the caller keeps them alive
    // and uses them for nothing else (rule 6). Both contexts are never released.
    unsafe {
        primary.api.copy_to_peer(
            target.address,
            peer.context,
            from,
            primary.context,
            bytes as usize,
            place.stream.raw,
        )
    }
    .map_err(|failed| primary.error(failed))
}
