//! The peer's operations that the blocks measure.
//!
//! Most launches take a plain address, which is the peer's fastest way. `tracked` launches register their buffer for
//! the peer's check of conflicting accesses, as its generated safe launches do.
//!
//! # Rules
//! Memory that a launch uses is never freed. Every kernel stays inside its buffer.

use std::{error::Error, sync::Arc};

use benches::raw::{Address, LEN};
use cuda_async::{
    device_context::with_device,
    device_operation::{DeviceOp, value, with_context},
    error::DeviceError,
    launch::{AsyncKernelLaunch, AsyncKernelLaunchBuilder},
    scheduling_policies::{SchedulingPolicy, SingleStream, StreamPoolRoundRobin},
};
use cuda_core::{
    Context, Function, LaunchConfig, RawDeviceBuffer, Stream, malloc_async, memcpy_dtoh_async,
    memset_d8_async, sys,
};

/// Elements of 8 bytes that are read back: 64 KiB.
pub const WORDS: usize = 8192;

pub type Policy = Arc<dyn SchedulingPolicy>;

pub type Launch = AsyncKernelLaunch<'static>;

#[derive(Clone)]
pub struct Peer {
    pub device: Arc<Context>,
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

    /// A pool of streams for all threads.
    pub fn pool(&self, streams: usize) -> Result<Policy, DeviceError> {
        Ok(Arc::new(StreamPoolRoundRobin::new(&self.device, streams)?))
    }

    /// Zeroed memory that is never freed.
    pub fn buffer(&self, bytes: usize) -> Result<Address, DeviceError> {
        // SAFETY: the memory has that many bytes, and the stream is synchronized before the address is known elsewhere.
        unsafe {
            let address = malloc_async(bytes, &self.stream)?;
            memset_d8_async(address, 0, bytes, &self.stream)?;
            self.stream.synchronize()?;
            Ok(address)
        }
    }

    /// A zeroed buffer whose accesses the peer tracks.
    pub fn tracked(&self, bytes: usize) -> Result<RawDeviceBuffer, DeviceError> {
        let address = self.buffer(bytes)?;
        // SAFETY: the memory is never freed, and only launches that register the buffer use it.
        Ok(unsafe { RawDeviceBuffer::borrowed_from_raw_parts(address, bytes, self.device.clone()) })
    }

    /// Scales `x`, of `LEN` floats, by 1.
    pub fn scale(&self, x: Address) -> Launch {
        let mut launch = launch(&self.scale, x);
        launch.push_arg(1.0f32).push_arg(LEN as u32);
        finalized(launch, LEN as u32 / 256, 256)
    }

    /// The same with a tracked buffer, which is registered for writing or for reading.
    pub fn scale_tracked(&self, x: &RawDeviceBuffer, write: bool) -> Launch {
        let mut launch = launch(&self.scale, x.cu_deviceptr());
        launch.push_arg(1.0f32).push_arg(LEN as u32).retain_buffer(x.clone(), write);
        finalized(launch, LEN as u32 / 256, 256)
    }

    /// Runs three launches in sequence.
    pub fn pipeline(&self, x: Address) -> impl DeviceOp<Output = (), IntoFuture: Send> + use<> {
        let [first, second, third] = [self.scale(x), self.scale(x), self.scale(x)];
        first.then(move |()| second).then(move |()| third)
    }

    /// One operation that enqueues `launches` launches, the cheapest chain that the peer has.
    pub fn chain(
        &self,
        launches: usize,
        launch: impl Fn(&Self) -> Launch + Send,
    ) -> impl DeviceOp<Output = ()> {
        let peer = self.clone();
        with_context(move |cx| {
            for _ in 0..launches {
                // SAFETY: the operation around this one holds `cx` until the stream has completed the launch.
                benches::done(unsafe { launch(&peer).execute(cx) });
            }
            value(())
        })
    }

    /// Runs one warp for `nanos`.
    pub fn timed(&self, x: Address, nanos: u32) -> Launch {
        let mut launch = launch(&self.timed, x);
        launch.push_arg(nanos);
        finalized(launch, 1, 32)
    }

    /// The same with a tracked buffer, which is registered for writing.
    pub fn timed_tracked(&self, x: &RawDeviceBuffer, nanos: u32) -> Launch {
        let mut launch = launch(&self.timed, x.cu_deviceptr());
        launch.push_arg(nanos).retain_buffer(x.clone(), true);
        finalized(launch, 1, 32)
    }
}

fn launch(function: &Arc<Function>, x: Address) -> AsyncKernelLaunchBuilder<'static> {
    let mut launch = AsyncKernelLaunchBuilder::new(function.clone());
    // SAFETY: the first parameter of both kernels is a pointer; the memory is never freed.
    unsafe { launch.push_device_ptr(x) };
    launch
}

fn finalized(launch: AsyncKernelLaunchBuilder<'static>, grid: u32, block: u32) -> Launch {
    let [grid_dim, block_dim] = [(grid, 1, 1), (block, 1, 1)];
    let config = LaunchConfig { grid_dim, block_dim, shared_mem_bytes: 0 };
    // SAFETY: arguments and shape are those of the two kernels; every policy selects streams of their context.
    unsafe { launch.finalize_unchecked(config) }
}

/// Reads `WORDS` elements into a `Vec` as cutile 0.4.0's `to_host_vec` does (`api.rs`): the stream is synchronized
/// inside `poll`. cuda-async itself has no operation that reads back.
pub fn to_host_vec(x: Address) -> impl DeviceOp<Output = Vec<u64>> {
    with_context(move |cx| {
        let mut host = Vec::<u64>::with_capacity(WORDS);
        let stream = cx.get_cuda_stream();
        // SAFETY: both have that many elements; the copy is complete before the length is set.
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

// SAFETY: an address that only the driver dereferences.
unsafe impl Send for Pinned {}

impl Pinned {
    pub fn new() -> Result<Self, DeviceError> {
        let mut block = std::ptr::null_mut();
        // SAFETY: `block` is valid for the address; the callers' context is current.
        let status = unsafe { sys::cuMemHostAlloc(&mut block, WORDS * 8, 0) };
        match status {
            0 => Ok(Self(block.cast())),
            code => Err(DeviceError::Internal(format!("cuMemHostAlloc: {code}"))),
        }
    }

    /// Reads `WORDS` elements without waiting inside `poll`, as a program's own operation can.
    pub fn read(self, x: Address) -> impl DeviceOp<Output = ()> {
        with_context(move |cx| {
            // Captures the whole struct: the pointer alone is not `Send`.
            let Pinned(host) = { self };
            // SAFETY: both have that many elements and are never freed.
            benches::done(unsafe { memcpy_dtoh_async(host, x, WORDS, cx.get_cuda_stream()) });
            value(())
        })
    }
}
