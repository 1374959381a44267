//! The state of a device, and its errors.
//!
//! [`device_state::DeviceState`] has the memory, the modules and the notices. A fault is stored in [`lost::Lost`]: until the
//! device is reset, items are skipped and fail with the fault, and submissions are refused with `DeviceLost`, except frees.
//! A panic counts as a fault ([`panics`]). This folder uses `memory`, `launch`, `observe` and `fault`. `items` and `queues`
//! use it.

pub(crate) mod device_state;
pub(crate) mod errors;
pub(crate) mod launch_options;
pub(crate) mod lost;
pub(crate) mod modules;
pub(crate) mod notices;
pub(crate) mod panics;
