//! The CPU device with the functions that the cases use.

use cuda_async::{
    Device, DeviceBuffer, Element, Function, LaunchConfig, Result, Stream, kernel::KernelArgs,
    prelude::*,
};

pub struct Machine {
    pub name: String,
    device: Device,
    stream: Stream,
}

impl Machine {
    pub fn new() -> Result<Self> {
        let device = cuda_async::open_blocking("cpu")?;
        let stream = device.new_stream()?;
        Ok(Self { name: device.info().name.clone(), device, stream })
    }

    pub fn kernel(&self, ptx: &str, name: &str) -> Result<Function> {
        self.device.load_ptx_blocking(ptx)?.function(name)
    }

    pub fn upload<T: Element>(&self, values: &[T]) -> Result<DeviceBuffer<T>> {
        h2d(values.to_vec()).sync_on(&self.stream)
    }

    pub fn zeros<T: Element>(&self, count: usize) -> Result<DeviceBuffer<T>> {
        zeros(count).sync_on(&self.stream)
    }

    pub fn download<T: Element>(&self, buffer: &DeviceBuffer<T>) -> Result<Vec<T>> {
        to_host(buffer).sync_on(&self.stream)
    }

    /// Launches the kernel and waits for it.
    ///
    /// # Safety
    /// The arguments have the types and sizes that the kernel requires.
    pub unsafe fn run(&self, kernel: &Function, config: LaunchConfig, args: impl KernelArgs) {
        // SAFETY: the caller upholds the contract.
        let launched = unsafe { launch(kernel, config, args) }.sync_on(&self.stream);
        benches::done(launched.map(drop));
    }
}
