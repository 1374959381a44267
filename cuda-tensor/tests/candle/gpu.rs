//! The GPU of the tests, and helper functions.

use std::sync::Arc;

use candle_core::{
    Storage, WithDType,
    cuda_backend::{CudaDType, CudaDevice},
};
use cuda_async::{
    Device, DeviceBuffer, Stream,
    interop::cudarc::driver::{CudaSlice, CudaStream, DevicePtr},
    memory::copy,
    open_blocking,
    prelude::*,
};

/// The first GPU, once with each kind of candle device: per-thread default streams, and a stream of its own. Empty on a
/// machine without a GPU, after a message.
pub fn gpus() -> Vec<(Device, Stream, candle_core::Device)> {
    match open_blocking("cuda:0") {
        Ok(device) => {
            let kinds =
                [candle_core::Device::new_cuda(0), candle_core::Device::new_cuda_with_stream(0)];
            let with = |theirs: candle_core::Result<_>| {
                (device.clone(), device.new_stream().unwrap(), theirs.unwrap())
            };
            kinds.into_iter().map(with).collect()
        }
        Err(error) => {
            println!("not run: {error}");
            Vec::new()
        }
    }
}

/// Returns the device address of the first element of a tensor of candle.
pub fn address<T: CudaDType + WithDType>(tensor: &candle_core::Tensor) -> u64 {
    let (storage, layout) = tensor.storage_and_layout();
    let Storage::Cuda(storage) = &*storage else { panic!("{tensor:?} is not on a GPU") };
    let slice = storage.as_cuda_slice::<T>().unwrap();
    slice.device_ptr(slice.stream()).0 + (layout.start_offset() * size_of::<T>()) as u64
}

/// Returns candle's device as a GPU.
pub fn cuda(device: &candle_core::Device) -> &CudaDevice {
    device.as_cuda_device().unwrap()
}

/// Returns the elements of a tensor of candle in row-major order, without a kernel of candle.
pub fn elements<T: WithDType>(tensor: &candle_core::Tensor) -> Vec<T> {
    let host = tensor.to_device(&candle_core::Device::Cpu).unwrap();
    host.flatten_all().unwrap().to_vec1().unwrap()
}

/// The number of copies of a delay. Together they occupy a stream for more than ten milliseconds.
const COPIES: usize = 80;
/// The number of bytes of each copy.
const BYTES: usize = 256 << 20;

/// Copies that occupy a stream of candle.
pub struct Delay {
    stream: Arc<CudaStream>,
    from: CudaSlice<u8>,
    into: CudaSlice<u8>,
}

impl Delay {
    pub fn new(stream: &Arc<CudaStream>) -> Self {
        let [from, into] = [(); 2].map(|()| stream.alloc_zeros(BYTES).unwrap());
        stream.synchronize().unwrap();
        Self { stream: stream.clone(), from, into }
    }

    /// Enqueues the copies.
    pub fn enqueue(&mut self) {
        for _ in 0..COPIES {
            self.stream.memcpy_dtod(&self.from, &mut self.into).unwrap();
        }
    }
}

/// Copies that occupy a stream of this library.
pub struct OwnDelay {
    stream: Stream,
    buffers: Option<(DeviceBuffer<u8>, DeviceBuffer<u8>)>,
}

impl OwnDelay {
    pub fn new(stream: &Stream) -> Self {
        let [from, into] = [(); 2].map(|()| zeros(BYTES).sync_on(stream).unwrap());
        Self { stream: stream.clone(), buffers: Some((from, into)) }
    }

    /// Enqueues the copies.
    pub fn enqueue(&mut self) {
        for _ in 0..COPIES {
            let copied = self.buffers.take().map(|(from, into)| copy(from, into));
            // SAFETY: no foreign code uses the buffers.
            self.buffers = copied.map(|copied| unsafe { copied.async_on(&self.stream) }.unwrap());
        }
    }
}
