//! The pools of a device beside the default one, of all backends.

use std::{ffi::c_int, sync::Arc};

use parking_lot::Mutex;

use super::pool::MemoryPool;

/// The pools that exist, and the devices that may access them.
#[derive(Debug, Default)]
pub(crate) struct NamedPools(pub(super) Mutex<State>);

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) pools: Vec<Arc<MemoryPool>>,
    /// The devices that were granted access, also to later pools.
    pub(super) peers: Vec<c_int>,
}
