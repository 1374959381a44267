//! Work of streams: its resolution, and its run.
//!
//! A submission is resolved when it is made: names become addresses, and bounds and shapes are checked ([`resolve`]). A
//! [`job::Job`] runs the resolved [`work::Work`] on the [`device_state::DeviceState`]. `queues` runs the jobs in order.
//!
//! A fault is stored in [`lost::Lost`]. Until the device is reset, jobs are then skipped and fail with the fault.
//! Submissions are refused with `DeviceLost`, except frees. A panic counts as a fault ([`panics`]).

pub(crate) mod device_state;
pub(crate) mod errors;
pub(crate) mod graph;
pub(crate) mod job;
pub(crate) mod launch_options;
pub(crate) mod lost;
pub(crate) mod modules;
pub(crate) mod notices;
pub(crate) mod panics;
pub(crate) mod resolve;
pub(crate) mod work;
