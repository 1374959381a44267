//! Fuel: the length of a warp's time slice, in back-edges.

use super::ctx::Ctx;

/// Fuel of an atomic. A loop around one is likely to wait for another thread.
const ATOMIC: i32 = 256;

/// Number of moved or printed bytes that cost as much as a back-edge.
const BYTES: usize = 64;

impl Ctx<'_> {
    /// Charges an atomic, or another instruction with which threads wait for each other, so that a loop around it ends its
    /// time slice sooner.
    pub(crate) fn charge_atomic(&mut self) {
        self.charge(ATOMIC);
        self.team.looks += 1;
    }

    /// Charges an instruction that moves many bytes. Otherwise a time slice with a loop of them would take very long.
    pub(crate) fn charge_bytes(&mut self, bytes: usize) {
        self.charge((bytes / BYTES) as i32);
    }

    /// Charges fuel. The lower bound keeps later decrements from overflowing.
    fn charge(&mut self, fuel: i32) {
        self.fuel = self.fuel.saturating_sub(fuel).max(i32::MIN / 2);
    }
}
