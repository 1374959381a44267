//! Decodes loads, stores, atomics and `alloca`.

pub(super) mod atomic;
pub(super) mod load_store;
pub(super) mod stack;
pub(super) mod wide;
