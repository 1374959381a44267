//! Modules: loading, compiling and caching.

pub(super) mod cache;
pub(super) mod code;
#[cfg(feature = "nvrtc")]
pub(super) mod compile;
pub(super) mod load;
pub(super) mod store;
