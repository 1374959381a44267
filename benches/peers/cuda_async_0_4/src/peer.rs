//! The peer's side: the operations that the blocks are made of.
//!
//! # Rules
//! Device memory is plain addresses, as its launches take it; what is allocated lives as long as the process, and
//! every kernel stays inside it.

use std::{error::Error, sync::Arc};

use benches::raw::{Address, LEN};
use cuda_async::{
    device_context::{global_policy, with_device},
    device_operation::{DeviceOp, value, with_context},
    error::DeviceError,
    launch::AsyncKernelLaunch,
    scheduling_policies::{SchedulingPolicy, SingleStream, StreamPoolRoundRobin},
};
use cuda_core::{Device, Function, LaunchConfig, Stream, malloc_async, memcpy_dtoh_async, sys};

/// Elements of 8 bytes that are read back: 64 KiB.
pub const WORDS: usize = 8192;

pub type Policy = Arc<dyn SchedulingPolicy>;

#[derive(Clone)]
pub struct Peer {
    pub device: Arc<Device>,
    pub stream: Arc<Stream>,
    pub single: Policy,
    scale: Arc<Function>,
    timed: Arc<Function>,
}

impl Peer {
    pub fn new() -> Result<Self, Box<dyn Error>> {
        let device = with_device(0, Arc::clone)?;
        let load = |ptx, entry| -> Result<_, Box<dyn Error>> {
            Ok(Arc::new(device.load_module_from_ptx_src(ptx)?.load_function(entry)?))
        };
        Ok(Self {
            stream: device.new_stream()?,
            single: Arc::new(SingleStream::new(&device)?),
            scale: load(include_str!("../../../../kernels/basic.ptx"), "scale")?,
            timed: load(include_str!("../../../../kernels/timed.ptx"), "timed")?,
            device,
        })
    }

    /// What `.await` uses on the calling thread: each has four streams of its own.
    pub fn default_policy() -> Result<Policy, DeviceError> {
        global_policy(0)
    }

    /// Streams for all threads.
    pub fn pool(&self, streams: usize) -> Result<Policy, DeviceError> {
        Ok(Arc::new(StreamPoolRoundRobin::new(&self.device, streams)?))
    }

    /// Memory for `bytes` bytes.
    pub fn buffer(&self, bytes: usize) -> Result<Address, DeviceError> {
        self.device.bind_to_thread()?;
        // SAFETY: the stream lives; it is synchronised before anybody uses the memory.
        unsafe {
            let address = malloc_async(bytes, &self.stream)?;
            self.stream.synchronize()?;
            Ok(address)
        }
    }

    /// Scales `x`, of `LEN` floats, by 1.
    pub fn scale(&self, x: Address) -> AsyncKernelLaunch {
        let mut launch = launched(&self.scale, x, LEN as u32 / 256, 256);
        launch.push_arg(1.0f32).push_arg(LEN as u32);
        launch
    }

    /// Three launches, one behind the other.
    pub fn pipeline(&self, x: Address) -> impl DeviceOp<Output = (), IntoFuture: Send> + use<> {
        let [first, second, third] = [self.scale(x), self.scale(x), self.scale(x)];
        first.then(move |()| second).then(move |()| third)
    }

    /// One warp that runs for `nanos`.
    pub fn timed(&self, x: Address, nanos: u32) -> AsyncKernelLaunch {
        let mut launch = launched(&self.timed, x, 1, 32);
        launch.push_arg(nanos);
        launch
    }
}

fn launched(function: &Arc<Function>, x: Address, grid: u32, block: u32) -> AsyncKernelLaunch {
    let mut launch = AsyncKernelLaunch::new(function.clone());
    // SAFETY: the kernels' first parameter is a pointer; the memory lives as long as the process.
    unsafe { launch.push_device_ptr(x) };
    let [grid_dim, block_dim] = [(grid, 1, 1), (block, 1, 1)];
    launch.set_launch_config(LaunchConfig { grid_dim, block_dim, shared_mem_bytes: 0 });
    launch
}

/// Reads `WORDS` elements back in the way of `to_host_vec` of cutile 0.4.0 (`api.rs`): into a `Vec`, and the stream is
/// synchronised inside `poll`. cuda-async itself has no read-back.
pub fn to_host_vec(x: Address) -> impl DeviceOp<Output = Vec<u64>> {
    with_context(move |cx| {
        let mut host = Vec::<u64>::with_capacity(WORDS);
        let stream = cx.get_cuda_stream();
        // SAFETY: both have that many elements; the copy has ended before the length is set.
        unsafe {
            benches::done(memcpy_dtoh_async(host.as_mut_ptr(), x, WORDS, stream));
            benches::done(stream.synchronize());
            host.set_len(WORDS);
        }
        value(host)
    })
}

/// Pinned memory for `WORDS` elements.
#[derive(Clone, Copy)]
pub struct Pinned(*mut u64);

// SAFETY: an address; only the driver follows it.
unsafe impl Send for Pinned {}

impl Pinned {
    pub fn new() -> Result<Self, DeviceError> {
        let mut block = std::ptr::null_mut();
        // SAFETY: the place for the address is valid; the callers' context is current.
        let status = unsafe { sys::cuMemHostAlloc(&mut block, WORDS * 8, 0) };
        match status {
            0 => Ok(Self(block.cast())),
            code => Err(DeviceError::Internal(format!("cuMemHostAlloc: {code}"))),
        }
    }

    /// Reads `WORDS` elements back as a program can that writes its own operation: nothing waits in `poll`.
    pub fn read(self, x: Address) -> impl DeviceOp<Output = ()> {
        with_context(move |cx| {
            // Nothing but the whole: the closure has to be `Send`.
            let Pinned(host) = { self };
            // SAFETY: both have that many elements and live as long as the process.
            benches::done(unsafe { memcpy_dtoh_async(host, x, WORDS, cx.get_cuda_stream()) });
            value(())
        })
    }
}
