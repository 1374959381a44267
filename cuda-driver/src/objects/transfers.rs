//! Announced transfers between the devices of this process. The destination's backend announces a transfer, and the
//! source's backend takes it.

use cuda_core::protocol::{Limit, Quantity, Result, TransferId};
use parking_lot::Mutex;
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::driver::api::Address;

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
    pub(crate) fn take(&self, transfer: TransferId) -> Option<Target> {
        self.0.lock().remove(&transfer)
    }

    /// Removes the transfers to a backend that is dropped: their memory goes with it.
    pub(crate) fn forget(&self, backend: BackendId) {
        self.0.lock().retain(|_, target| target.backend != backend);
    }
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
