//! The names that most programs use: `use cuda_async::prelude::*;`.
//!
//! No name here is also a name of the preludes of `std` and `futures`, or one that programs usually import from
//! `tokio`, `futures` or `anyhow`. So `Error`, `Result`, `join_all`, `race` and `retry` are imported by name:
//! `use cuda_async::{Error, join_all, prelude::*};`.

pub use crate::{
    Device, DeviceBuffer, DeviceOp, IntoDeviceOp, LaunchConfig, Op,
    graph::{GraphExt, PlanExt},
    h2d, launch,
    memory::BufferSource,
    run::OpStreamExt,
    script, to_device, to_host, uninitialized, value, zeros, zip,
};
