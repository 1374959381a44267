//! The library's operations that the blocks are made of.

use std::{hint::black_box, ops::ControlFlow, sync::Arc};

use benches::{Place, raw::LEN};
use cuda_async::{
    Device, DeviceBuffer, Error, Function, LaunchConfig, Result, SchedulingPolicy, Stream, iterate,
    kernel::LaunchOp,
    launch,
    policy::{SingleStream, StreamPoolRoundRobin},
    prelude::*,
    runtime::set_default_policy,
    value,
};

type Floats = DeviceBuffer<f32>;

pub struct Ours {
    scale: Function,
    x: Place<Floats>,
    stream: Stream,
    pub single: SingleStream,
    pub default: Arc<StreamPoolRoundRobin>,
    runtime: tokio::runtime::Runtime,
}

impl Ours {
    pub fn new(device: &Device) -> Result<Self> {
        let stream = device.new_stream()?;
        let default = Arc::new(StreamPoolRoundRobin::new(device)?);
        set_default_policy(default.clone());
        let ptx = include_str!("../../kernels/basic.ptx");
        Ok(Self {
            scale: device.load_ptx(ptx)?.function("scale")?,
            x: Place::new(h2d(vec![1.0f32; LEN]).sync_on(&stream)?),
            stream,
            single: SingleStream::new(device)?,
            default,
            runtime: tokio::runtime::Builder::new_current_thread().build().map_err(|error| {
                cuda_async::Error::Host { what: "tokio".into(), detail: error.to_string() }
            })?,
        })
    }

    /// Scales the buffer by 1.
    fn op(&self, x: Floats) -> Op<LaunchOp<(Floats, f32, u32)>> {
        let config = LaunchConfig::for_num_elems(LEN as u32);
        // SAFETY: the kernel reads and writes x, of `LEN` elements.
        unsafe { launch(&self.scale, config, (x, 1.0f32, LEN as u32)) }
    }

    /// Passes the buffer to `run`, which returns it.
    fn with_buffer(&self, run: impl FnOnce(Floats) -> Result<Floats>) {
        self.x.lend(run);
    }

    pub fn sync_on(&self) {
        self.with_buffer(|x| Ok(self.op(x).sync_on(&self.stream)?.0));
    }

    pub fn sync(&self) {
        self.with_buffer(|x| Ok(self.op(x).sync()?.0));
    }

    pub fn awaited(&self, policy: &dyn SchedulingPolicy) {
        self.with_buffer(|x| {
            let launched = async { self.op(x).schedule(policy).await };
            Ok(self.runtime.block_on(launched)?.0)
        });
    }

    /// A chain of `launches` launches.
    fn chain(&self, x: Floats, launches: usize) -> impl DeviceOp<Output = Floats> + '_ {
        iterate((x, launches), |(x, left)| {
            self.op(x).map(move |(x, ..)| match left {
                1 => ControlFlow::Break(x),
                _ => ControlFlow::Continue((x, left - 1)),
            })
        })
    }

    pub fn chain_sync(&self, launches: usize) {
        self.with_buffer(|x| self.chain(x, launches).sync_on(&self.stream));
    }

    pub fn chain_await(&self, launches: usize) {
        self.with_buffer(|x| {
            let launched = async { self.chain(x, launches).schedule(&self.single).await };
            self.runtime.block_on(launched)
        });
    }

    /// A launch and the read-back of its result.
    fn launch_and_read(&self, x: Floats) -> impl DeviceOp<Output = Floats> + '_ {
        self.op(x).map(|(x, ..)| Arc::new(x)).then(|x| {
            to_host(x.clone()).then(move |host| {
                black_box(host);
                Arc::try_unwrap(x).map(value).map_err(|_| Error::AlreadyEnded)
            })
        })
    }

    pub fn read_back_sync(&self) {
        self.with_buffer(|x| self.launch_and_read(x).sync_on(&self.stream));
    }

    pub fn read_back_await(&self) {
        self.with_buffer(|x| {
            let read = async { self.launch_and_read(x).schedule(&self.single).await };
            self.runtime.block_on(read)
        });
    }

    pub fn build(&self, ops: usize) {
        let config = LaunchConfig::for_num_elems(LEN as u32);
        let args = (0u64, 1.0f32, LEN as u32);
        // SAFETY: never run.
        (0..ops).for_each(|_| drop(black_box(unsafe { launch(&self.scale, config, args) })));
    }
}
