//! Mbarriers, asynchronous copies, and the barrier of a cluster: instructions that wait for other threads or for copies.

pub(crate) mod barrier_word;
pub(crate) mod cluster;
pub(crate) mod copy_async;
pub(crate) mod copy_bulk;
pub(crate) mod mbarrier;
pub(crate) mod suspend;
pub(crate) mod transfer;
