//! Device and host memory in submissions: elements, regions and their uses, host blocks and pools.

pub(super) mod element;
pub(super) mod host_block;
pub(super) mod operand;
pub(super) mod pool;
