//! The library's operations that the blocks measure.

use std::{
    cell::Cell,
    ffi::c_void,
    ops::ControlFlow,
    ptr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use benches::{
    Place,
    raw::{ADDRESS, Address, DriverError, LEN, Lane, Raw},
};
use cuda_async::{
    Device, DeviceBuffer, Error, Function, LaunchConfig, Result, Stream, graph::CudaGraph, iterate,
    kernel::LaunchOp, launch, policy::StreamPoolRoundRobin, prelude::*,
    runtime::set_default_policy,
};
use cuda_core::RawStream;

pub type Floats = DeviceBuffer<f32>;
pub type Words = DeviceBuffer<u64>;

/// The arguments that differ from those of the run before.
#[derive(Clone, Copy, PartialEq)]
pub enum Changing {
    None,
    One,
    All,
}

pub struct Ours {
    pub device: Device,
    pub stream: Stream,
    pub x: Place<Floats>,
    pub word: Place<Words>,
    round: AtomicU32,
    scale: Function,
    timed: Function,
}

impl Ours {
    /// Makes `device` the default device.
    pub fn new(device: &Device) -> Result<Self> {
        set_default_policy(Arc::new(StreamPoolRoundRobin::new(device)?));
        let load = |ptx, entry| device.load_ptx_blocking(ptx)?.function(entry);
        let stream = device.new_stream()?;
        Ok(Self {
            scale: load(include_str!("../../kernels/basic.ptx"), "scale")?,
            timed: load(include_str!("../../kernels/timed.ptx"), "timed")?,
            x: Place::new(zeros(LEN).sync_on(&stream)?),
            word: Place::new(zeros(1).sync_on(&stream)?),
            round: AtomicU32::new(0),
            device: device.clone(),
            stream,
        })
    }

    /// The driver's stream behind [`stream`](Self::stream). Null where the device is not a GPU.
    pub fn raw_stream(&self) -> *mut c_void {
        let mut raw = ptr::null_mut();
        let take = &mut |stream: RawStream| {
            raw = stream.stream;
            Ok(())
        };
        // SAFETY: enqueues nothing.
        _ = unsafe { self.stream.submit_foreign(take) };
        raw
    }

    /// Returns a lane of raw driver calls on [`stream`](Self::stream) and the memory at `x`.
    ///
    /// # Safety
    /// `x` is memory of `LEN` floats that lives as long as the lane. Nothing else uses it while the lane does.
    pub unsafe fn lane<'a>(&'a self, raw: &'a Raw, x: Address) -> Result<Lane<'a>, DriverError> {
        // SAFETY: both use the primary context of the GPU, and `self` keeps the stream. `x` is memory that
        // nothing else uses while the lane lives.
        Ok(unsafe { raw.lane(LEN * 4)?.on(self.raw_stream()).with_memory(x) })
    }

    /// The address of a buffer.
    pub fn address(&self, x: &Floats) -> Result<Address> {
        let address = self.device.load_ptx_blocking(ADDRESS)?.function("address")?;
        let out = zeros::<u64>(1).sync_on(&self.stream)?;
        // SAFETY: the kernel writes the element of `out`, and does not access `x`.
        let stored = unsafe { launch(&address, LaunchConfig::new(1, 1), (x, out)) };
        Ok(stored.then(|(_, out)| to_host(out)).sync_on(&self.stream)?[0])
    }

    /// The address of [`x`](Self::x).
    pub fn address_of_x(&self) -> Result<Address> {
        let address = Cell::new(Ok(0));
        self.x.lend(|x| {
            address.set(self.address(&x));
            Ok::<_, Error>(x)
        });
        address.into_inner()
    }

    /// Scales `x` in a chain of launches.
    pub fn chain(
        &self,
        x: Floats,
        launches: usize,
        changing: Changing,
    ) -> impl DeviceOp<Output = Floats> + '_ {
        let round = self.round.fetch_add(1, Ordering::Relaxed) + 1;
        iterate((x, 0), move |(x, done)| {
            let changes = changing == Changing::All || (changing == Changing::One && done == 0);
            let factor = if changes { round as f32 } else { 1.0 };
            self.scale(x, factor).map(move |x| match launches - done {
                1 => ControlFlow::Break(x),
                _ => ControlFlow::Continue((x, done + 1)),
            })
        })
    }

    /// Runs a chain, with the graph cache or without it.
    pub fn run_chain(&self, launches: usize, changing: Changing, cache: bool) {
        self.device.set_graph_cache(cache);
        self.x.lend(|x| self.chain(x, launches, changing).sync_on(&self.stream));
    }

    /// Records a chain.
    pub fn graph(&self, launches: usize) -> Result<CudaGraph<Floats>> {
        let x = zeros(LEN).sync_on(&self.stream)?;
        let graph = self.chain(x, launches, Changing::None).graph_on(&self.stream)?;
        graph.upload()?;
        Ok(graph)
    }

    /// Scales `x`, of `LEN` elements.
    pub fn scale(&self, x: Floats, factor: f32) -> Op<LaunchOp<(Floats, f32, u32)>> {
        scale(&self.scale, x, factor)
    }

    /// The kernel `scale`.
    pub fn function(&self) -> Function {
        self.scale.clone()
    }

    /// Runs one warp for `nanos`.
    pub fn timed(&self, x: Words, nanos: u32) -> Op<LaunchOp<(Words, u32)>> {
        // SAFETY: the kernel writes the first element of x, and no caller's buffer is empty.
        unsafe { launch(&self.timed, LaunchConfig::new(1, 32), (x, nanos)) }
    }

    /// Kernels of `nanos` in sequence.
    pub fn timed_chain(
        &self,
        x: Words,
        kernels: usize,
        nanos: u32,
    ) -> impl DeviceOp<Output = Words> + '_ {
        iterate((x, kernels), move |(x, left)| {
            self.timed(x, nanos).map(move |x| match left {
                1 => ControlFlow::Break(x),
                _ => ControlFlow::Continue((x, left - 1)),
            })
        })
    }

    /// Runs kernels of `nanos` in sequence, with the graph cache or without it.
    pub fn run_timed(&self, kernels: usize, nanos: u32, cache: bool) {
        self.device.set_graph_cache(cache);
        self.word.lend(|x| self.timed_chain(x, kernels, nanos).sync_on(&self.stream));
    }
}

fn scale(function: &Function, x: Floats, factor: f32) -> Op<LaunchOp<(Floats, f32, u32)>> {
    let config = LaunchConfig::for_num_elems(LEN as u32);
    // SAFETY: the kernel reads and writes x, of `LEN` elements.
    unsafe { launch(function, config, (x, factor, LEN as u32)) }
}

/// Three launches in sequence.
pub fn pipeline(function: &Function, x: Floats) -> impl DeviceOp<Output = Floats> + use<> {
    let [second, third] = [function.clone(), function.clone()];
    scale(function, x, 1.0)
        .then(move |x| scale(&second, x, 1.0))
        .then(move |x| scale(&third, x, 1.0))
}
