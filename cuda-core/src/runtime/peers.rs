//! The known replies of a device to `Reach` requests, by the address of the other device.

use parking_lot::Mutex;

#[derive(Default)]
pub(crate) struct Peers(Mutex<Vec<(String, bool)>>);

impl Peers {
    /// Whether the device at `address` can be sent to, if that is known.
    pub(crate) fn known(&self, address: &str) -> Option<bool> {
        let peers = self.0.lock();
        peers.iter().find(|(known, _)| known == address).map(|(_, reached)| *reached)
    }

    pub(crate) fn learn(&self, address: String, reached: bool) {
        let mut peers = self.0.lock();
        if !peers.iter().any(|(known, _)| *known == address) {
            peers.push((address, reached));
        }
    }
}
