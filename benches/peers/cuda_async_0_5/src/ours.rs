//! This library's replays, for a comparison in one process.

use std::{ffi::c_void, ops::ControlFlow, ptr};

use benches::raw::{ADDRESS, Address, LEN};
use cuda_core_ours::RawStream;
use ours::{
    Device, DeviceBuffer, Function, LaunchConfig, Result, Stream, graph::CudaGraph, iterate, launch,
    prelude::*,
};

pub struct Ours {
    pub stream: Stream,
    device: Device,
    scale: Function,
}

/// A recorded chain, and the address of its buffer.
pub struct Chain {
    pub graph: CudaGraph<DeviceBuffer<f32>>,
    pub x: Address,
}

impl Ours {
    pub fn new() -> Result<Self> {
        let device = ours::open_blocking("cuda:0")?;
        let scale = device.load_ptx_blocking(include_str!("../../../../kernels/basic.ptx"))?.function("scale")?;
        Ok(Self { stream: device.new_stream()?, device, scale })
    }

    /// The driver's stream behind [`stream`](Self::stream).
    pub fn raw_stream(&self) -> Result<*mut c_void> {
        let mut raw = ptr::null_mut();
        let take = &mut |stream: RawStream| {
            raw = stream.stream;
            Ok(())
        };
        // SAFETY: enqueues nothing.
        unsafe { self.stream.submit_foreign(take) }?;
        Ok(raw)
    }

    /// Records launches of `scale` in sequence, and launches them once.
    pub fn chain(&self, launches: usize) -> Result<Chain> {
        let config = LaunchConfig::for_num_elems(LEN as u32);
        let x = zeros::<f32>(LEN).sync_on(&self.stream)?;
        let chain = iterate((x, launches), |(x, left)| {
            // SAFETY: the kernel reads and writes x, of `LEN` elements.
            let scaled = unsafe { launch(&self.scale, config, (x, 1.0f32, LEN as u32)) };
            scaled.map(move |x| match left {
                1 => ControlFlow::Break(x),
                _ => ControlFlow::Continue((x, left - 1)),
            })
        });
        let graph = chain.graph_on(&self.stream)?;
        graph.upload()?;
        let x = self.address(&*graph.launch().sync_on(&self.stream)?)?;
        Ok(Chain { graph, x })
    }

    fn address(&self, x: &DeviceBuffer<f32>) -> Result<Address> {
        let address = self.device.load_ptx_blocking(ADDRESS)?.function("address")?;
        let out = zeros::<u64>(1).sync_on(&self.stream)?;
        // SAFETY: the kernel writes the element of `out`, and does not access `x`.
        let stored = unsafe { launch(&address, LaunchConfig::new(1, 1), (x, out)) };
        Ok(stored.then(|(_, out)| to_host(out)).sync_on(&self.stream)?[0])
    }
}
