//! Copies to other GPUs of the process: peer access, the announced transfers, and the copies. The destination's backend
//! announces a transfer, and the source's backend takes it to copy there.

use cuda_core::protocol::{Error, Limit, Quantity, Region, Result, TransferId};
use parking_lot::Mutex;
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::place::Place;
use crate::{
    context::{Bound, Primary},
    driver::{
        api::Address,
        status::{self, Failed},
    },
};

/// The number of transfers that may be announced and not yet sent, in the whole process. A client sends a transfer
/// right after it is announced.
const MAX_ANNOUNCED: usize = 4096;

/// A backend of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BackendId(pub(crate) u64);

/// The destination of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) backend: BackendId,
    pub(crate) ordinal: u32,
    pub(crate) address: Address,
    pub(crate) bytes: u64,
}

/// Announced transfers between the devices of this process, by their ids.
pub(crate) struct Transfers(Mutex<FxHashMap<TransferId, Target>>);

impl Transfers {
    /// The table of the process.
    pub(crate) fn get() -> &'static Self {
        static TRANSFERS: Transfers = Transfers(Mutex::new(FxHashMap::with_hasher(FxBuildHasher)));
        &TRANSFERS
    }

    /// Announces a transfer.
    pub(crate) fn announce(&self, transfer: TransferId, target: Target) -> Result<()> {
        let mut table = self.0.lock();
        let (given, limit) = (table.len() as u64 + 1, Limit::AtMost(MAX_ANNOUNCED as u64));
        limit.check("the process", Quantity::Transfers, given)?;
        table.insert(transfer, target);
        Ok(())
    }

    /// Takes a transfer out, to be sent.
    fn take(&self, transfer: TransferId) -> Option<Target> {
        self.0.lock().remove(&transfer)
    }

    /// Removes the transfers to a backend that is dropped: their memory goes with it.
    pub(crate) fn forget(&self, backend: BackendId) {
        self.0.lock().retain(|_, target| target.backend != backend);
    }
}

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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn target(backend: u64) -> Target {
        Target { backend: BackendId(backend), ordinal: 0, address: 64, bytes: 4 }
    }

    #[test]
    fn transfer_is_taken_once_and_forgotten_with_its_backend() {
        let transfers = Transfers(Mutex::default());
        transfers.announce(TransferId(1), target(8)).unwrap();
        transfers.announce(TransferId(2), target(9)).unwrap();
        assert_eq!(transfers.take(TransferId(1)), Some(target(8)));
        assert_eq!(transfers.take(TransferId(1)), None);
        transfers.forget(BackendId(9));
        assert_eq!(transfers.take(TransferId(2)), None);
    }

    #[test]
    fn announced_transfers_are_bounded() {
        let transfers = Transfers(Mutex::default());
        for id in 0..MAX_ANNOUNCED as u64 {
            transfers.announce(TransferId(id), target(1)).unwrap();
        }
        assert!(transfers.announce(TransferId(u64::MAX), target(1)).is_err());
    }
}
