//! Instructions that wait for other threads or for copies: mbarriers, asynchronous copies and reductions, and the barrier of
//! a cluster, with cluster addresses.
//!
//! A copy waits in `machine` until [`transfer`] performs it. `decode::sync` selects the handlers. Uses `memory`.

pub(crate) mod async_bulk;
pub(crate) mod async_copy;
pub(crate) mod barrier_word;
pub(crate) mod cluster;
pub(crate) mod mbarrier;
pub(crate) mod suspend;
pub(crate) mod transfer;
pub(crate) mod update;
