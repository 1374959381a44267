//! Launches of kernels: their shape and attributes, the occupancy of a device, and the kernels of a module.

pub(super) mod kernels;
pub(super) mod launch_config;
pub(super) mod occupancy;
