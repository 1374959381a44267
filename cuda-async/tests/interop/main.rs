//! cudarc and NVIDIA's libraries on the first GPU of this machine. Without a GPU, only the errors are tested.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod memory;
mod streams;

use std::sync::Arc;

use cuda_async::{Device, interop::cudarc::driver::CudaContext, open_blocking};

/// The first GPU and its context in cudarc. `None`, with a message, on a machine without one.
fn gpu() -> Option<(Device, Arc<CudaContext>)> {
    match open_blocking("cuda:0") {
        Ok(device) => Some((device, CudaContext::new(0).unwrap())),
        Err(error) => {
            println!("not run: {error}");
            None
        }
    }
}

#[test]
fn machine_without_a_gpu_gets_an_error() {
    if let Err(error) = open_blocking("cuda:0") {
        assert!(
            error.to_string().contains("cuda:0") || error.to_string().contains("driver"),
            "{error}"
        );
    }
}
