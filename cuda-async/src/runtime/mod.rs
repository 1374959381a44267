//! The devices of this process, the default device and policy, and the options that hold for the whole process.
//!
//! | to | use |
//! |---|---|
//! | open a device by its address | [`open`], [`open_blocking`]; [`devices`] lists the addresses |
//! | get or set the default device | [`default_device`], [`set_default_device`], [`require`] |
//! | learn why a GPU was not chosen | [`fallback`] |
//! | get or set the default policy, or that of one device | [`default_policy`], [`set_default_policy`], [`device_policy`], [`set_device_policy`] |
//! | set the time for which a poll may spin | [`set_max_spin`] |
//!
//! ```standalone_crate
//! use cuda_async::{prelude::*, runtime};
//! let device = runtime::require("cpu")?; // the default of this process from now on
//! assert_eq!(runtime::default_device()?, device);
//! assert_eq!(h2d([1u8]).then(to_host).sync()?, [1]);
//! # Ok::<(), cuda_async::Error>(())
//! ```

// This folder uses `wake`, `context` (for its options) and `policy`. `run` takes the default stream from here, and
// `DeviceOp::on` takes a device's policy. A typical call goes from `default_policy`
// to `SchedulingPolicy::place`.

pub(crate) mod defaults;
mod devices;

pub use crate::{
    context::wait::{MAX_SPIN_LIMIT, RETRY as SPIN_RETRY, max_spin, set_max_spin},
    wake::timer::LINGER as TIMER_LINGER,
};
pub use cuda_core::WeakDevice;
pub use defaults::{
    default_device, default_policy, device_policy, fallback, require, set_default_device,
    set_default_policy, set_device_policy,
};
pub use devices::{devices, open, open_blocking};
