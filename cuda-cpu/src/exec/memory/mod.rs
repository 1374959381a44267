//! Loads, stores and atomics.
//!
//! [`locate`] translates the addresses of all lanes, or of single lanes, to checked host pointers. `decode::memory`
//! selects the handlers. `sync` and `tensor` use this folder.

pub(crate) mod atomics;
pub(crate) mod load_store;
pub(crate) mod locate;
