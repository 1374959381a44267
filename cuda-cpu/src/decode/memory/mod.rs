//! Decodes loads, stores, atomics, accesses of 128 bits and the instructions of the stack.

pub(super) mod atomic;
pub(super) mod load_store;
pub(super) mod stack;
pub(super) mod wide;
