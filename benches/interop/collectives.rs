//! Collectives of all GPUs of the machine with NCCL.

use std::{error::Error, ffi::c_void, sync::Arc};

use benches::{Effort, Way, done, medians};
use cuda_async::{Device, devices, open_blocking, prelude::*};
use cuda_tensor::{
    Tensor,
    collective::{Communicator, Reduction},
};
use cudarc::{
    driver::{CudaContext, CudaSlice, CudaStream, DevicePtr},
    nccl::{result, sys},
};

use crate::print;

const BYTES: usize = 256 << 20;
const EFFORT: Effort = Effort { rounds: 9, in_a_row: 5 };

/// Measures an all-reduce of 256 MiB of f32 on each GPU, and a chain of ten.
pub fn run() -> Result<(), Box<dyn Error>> {
    let gpus: Vec<_> =
        devices().into_iter().filter(|device| device.address.starts_with("cuda:")).collect();
    if gpus.len() < 2 {
        println!("\ncollectives were not measured: the machine has {} GPU", gpus.len());
        return Ok(());
    }
    let gpus = gpus
        .iter()
        .map(|gpu| open_blocking(&gpu.address))
        .collect::<cuda_async::Result<Vec<_>>>()?;
    let raw = Raw::new(gpus.len())?;
    let group = Communicator::new(&gpus)?;
    assert!(group.uses_nccl(), "NCCL was not found");
    let make = |gpu: &Device| Tensor::<f32>::ones(BYTES / 4).on(gpu).sync();
    let mut tensors = gpus.iter().map(make).collect::<cuda_async::Result<Vec<_>>>()?;
    for in_sequence in [1, 10] {
        let times = medians(
            &mut [
                Way::new("", || raw.all_reduce(in_sequence)),
                Way::new("", || {
                    for _ in 0..in_sequence {
                        let op = group.all_reduce(std::mem::take(&mut tensors), Reduction::Max);
                        tensors = done(op.sync());
                    }
                }),
            ],
            EFFORT,
        );
        let each: Vec<_> = times.iter().map(|time| time / in_sequence as f64).collect();
        let title =
            format!("all-reduce of 256 MiB on {} GPUs, {in_sequence} in sequence", gpus.len());
        print(&title, &["NCCL", "`all_reduce`, each awaited"], &each);
    }
    Ok(())
}

/// The raw calls.
struct Raw {
    ranks: Vec<(Arc<CudaStream>, CudaSlice<u8>, sys::ncclComm_t)>,
}

impl Raw {
    fn new(gpus: usize) -> Result<Self, Box<dyn Error>> {
        let ordinals: Vec<_> = (0..gpus as i32).collect();
        let mut comms = vec![std::ptr::null_mut(); gpus];
        // SAFETY: writes a communicator for each GPU.
        unsafe { result::comm_init_all(comms.as_mut_ptr(), gpus as i32, ordinals.as_ptr()) }
            .map_err(|error| format!("{:?}", error.0))?;
        let ranks = comms.into_iter().enumerate().map(|(gpu, comm)| {
            let stream = CudaContext::new(gpu)?.new_stream()?;
            let memory = stream.alloc_zeros(BYTES)?;
            Ok((stream, memory, comm))
        });
        Ok(Self { ranks: ranks.collect::<Result<_, cudarc::driver::DriverError>>()? })
    }

    /// Runs all-reduces in place and waits for them.
    fn all_reduce(&self, count: usize) {
        for _ in 0..count {
            _ = result::group_start();
            for (stream, memory, comm) in &self.ranks {
                let (at, _tracked) = memory.device_ptr(stream);
                let at = at as *mut c_void;
                let (of_type, max) = (sys::ncclDataType_t::ncclFloat32, sys::ncclRedOp_t::ncclMax);
                let stream = stream.cu_stream().cast();
                // SAFETY: the memory has this many elements.
                _ = unsafe { result::all_reduce(at, at, BYTES / 4, of_type, max, *comm, stream) };
            }
            _ = result::group_end();
        }
        for (stream, ..) in &self.ranks {
            done(stream.synchronize());
        }
    }
}
