//! `ForeignState`: the state that a stream keeps about foreign calls; see `foreign_call`.

use crate::windows::HeldFree;

/// Whether a foreign call runs, and the frees that wait for its end.
#[derive(Default)]
pub(crate) struct ForeignState {
    pub(super) active: bool,
    pub(super) held: Vec<HeldFree>,
}

impl ForeignState {
    /// Holds a free if a foreign call runs. Otherwise returns it, and the caller enqueues it while it has the lock.
    pub(crate) fn hold(&mut self, free: HeldFree) -> Option<HeldFree> {
        if !self.active {
            return Some(free);
        }
        self.held.push(free);
        None
    }
}
