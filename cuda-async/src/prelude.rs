//! What most programs use: `use cuda_async::prelude::*;`.

pub use crate::{
    BufferSource, Device, DeviceBuffer, DeviceOp, Error, IntoDeviceOp, LaunchConfig, Op, h2d,
    launch, to_host, zeros, zip,
};
