//! Modules: loading, compiling and caching.

pub(super) mod cache;
pub(super) mod code;
#[cfg(feature = "nvrtc")]
pub(super) mod compile;
#[cfg(feature = "nvrtc")]
pub(super) mod cuda_source;
pub(super) mod device_module;
pub(super) mod image;
pub(super) mod load;
pub(super) mod store;
