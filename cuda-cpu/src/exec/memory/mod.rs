//! Loads, stores and atomics.
//!
//! [`locate`] translates the addresses of all lanes to checked host pointers, with a fast check in [`shape`].
//! [`single_lane`] does so for single lanes. `decode::memory` selects the handlers. `sync` and `tensor` use this folder.

pub(crate) mod atomics;
pub(crate) mod load_store;
pub(crate) mod locate;
pub(crate) mod shape;
pub(crate) mod single_lane;
pub(crate) mod wide;
