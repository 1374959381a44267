//! The library's operations that the blocks measure.

use std::{hint::black_box, sync::Arc, time::Duration};

use benches::raw::LEN;
use cuda_async::{
    Device, DeviceBuffer, Element, Error, Function, LaunchConfig, Result, Stream,
    kernel::LaunchOp,
    launch,
    policy::StreamPoolRoundRobin,
    prelude::*,
    runtime::{max_spin, set_default_policy},
    value,
};

pub type Floats = DeviceBuffer<f32>;
pub type Words = DeviceBuffer<u64>;

#[derive(Clone)]
pub struct Ours {
    pub device: Device,
    pub stream: Stream,
    /// The default of `set_max_spin`.
    pub spin: Duration,
    scale: Function,
    timed: Function,
}

impl Ours {
    /// Makes `device` the default device.
    pub fn new(device: &Device) -> Result<Self> {
        set_default_policy(Arc::new(StreamPoolRoundRobin::new(device)?));
        let load = |ptx, entry| device.load_ptx_blocking(ptx)?.function(entry);
        Ok(Self {
            stream: device.new_stream()?,
            spin: max_spin(),
            scale: load(include_str!("../../kernels/basic.ptx"), "scale")?,
            timed: load(include_str!("../../kernels/timed.ptx"), "timed")?,
            device: device.clone(),
        })
    }

    pub fn floats(&self) -> Result<Floats> {
        zeros(LEN).sync_on(&self.stream)
    }

    pub fn words(&self, len: usize) -> Result<Words> {
        zeros(len).sync_on(&self.stream)
    }

    /// The kernel `scale`.
    pub fn scale_function(&self) -> &Function {
        &self.scale
    }

    /// Scales `x`, of `LEN` elements, by 1.
    pub fn scale(&self, x: Floats) -> Op<LaunchOp<(Floats, f32, u32)>> {
        scale(&self.scale, x)
    }

    /// Three launches in sequence.
    pub fn pipeline(&self, x: Floats) -> impl DeviceOp<Output = Floats> + 'static {
        let [second, third] = [self.scale.clone(), self.scale.clone()];
        self.scale(x).then(move |x| scale(&second, x)).then(move |x| scale(&third, x))
    }

    /// Runs one warp for `nanos`.
    pub fn timed(&self, x: Words, nanos: u32) -> Op<LaunchOp<(Words, u32)>> {
        // SAFETY: the kernel writes the first element of x, and no caller's buffer is empty.
        unsafe { launch(&self.timed, LaunchConfig::new(1, 32), (x, nanos)) }
    }
}

fn scale(function: &Function, x: Floats) -> Op<LaunchOp<(Floats, f32, u32)>> {
    let config = LaunchConfig::for_num_elems(LEN as u32);
    // SAFETY: the kernel reads and writes x, of `LEN` elements.
    unsafe { launch(function, config, (x, 1.0f32, LEN as u32)) }
}

/// Reads `x` back and returns it.
pub fn read_back<T: Element>(x: DeviceBuffer<T>) -> impl DeviceOp<Output = DeviceBuffer<T>> {
    let x = Arc::new(x);
    to_host(x.clone()).then(move |host| {
        black_box(host);
        Arc::try_unwrap(x).map(value).map_err(|_| Error::AlreadyEnded)
    })
}
