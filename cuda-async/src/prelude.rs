//! What most programs use: `use cuda_async::prelude::*;`.

pub use crate::{
    BufferSource, Device, DeviceBuffer, DeviceOp, Error, IntoDeviceOp, LaunchConfig, Op, Retry,
    h2d, join_all, launch, race, retry, script, to_device, to_host, uninitialised, value, zeros,
    zip,
};
