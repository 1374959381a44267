//! Loads, stores, atomics and moves of matrices.
//!
//! `locate` translates the addresses of all lanes to checked host pointers, with a fast check in `shape`. `places` does so
//! for single lanes.

pub(crate) mod atomics;
pub(crate) mod load_store;
pub(crate) mod locate;
pub(crate) mod matrix;
pub(crate) mod places;
pub(crate) mod shape;
pub(crate) mod update;
pub(crate) mod wide;
