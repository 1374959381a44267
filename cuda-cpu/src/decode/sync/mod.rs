//! Decodes fences, mbarriers and asynchronous copies.

pub(super) mod async_bulk;
pub(super) mod async_copy;
pub(super) mod cluster;
pub(super) mod fence;
pub(super) mod mbarrier;
pub(super) mod suspend;
