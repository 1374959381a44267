//! The devices of this process, the default device and policy, and the options that hold for the whole process.

// This folder uses `wake`, `context` (for its options) and `policy`. `run` takes the default stream from here, and
// `DeviceOp::on` takes a device's policy. A typical call goes from `default_policy`
// to `SchedulingPolicy::place`.

pub(crate) mod defaults;
mod device_policy;
mod devices;

pub use crate::{
    context::spin::{MAX_SPIN_LIMIT, RETRY as SPIN_RETRY, max_spin, set_max_spin},
    wake::timer::LINGER as TIMER_LINGER,
};
pub use cuda_core::WeakDevice;
pub use defaults::{
    default_device, default_policy, fallback, require, set_default_device, set_default_policy,
};
pub use device_policy::{device_policy, set_device_policy};
pub use devices::{devices, open};
