//! The operations of the library that the benchmark measures.

use std::{ffi::c_void, hint::black_box, ops::ControlFlow, ptr, sync::Arc};

use benches::{Place, done, raw::LEN};
use cuda_async::{
    Device, DeviceBuffer, Error, Function, LaunchConfig, Result, SchedulingPolicy, Stream,
    graph::CudaGraph,
    iterate,
    kernel::LaunchOp,
    launch,
    policy::{SingleStream, StreamPoolRoundRobin},
    prelude::*,
    runtime::set_default_policy,
    value,
};
use cuda_core::{Access, ArgumentKind, Arguments, RawStream};

type Floats = DeviceBuffer<f32>;

/// Arguments that a kernel only reads.
type Reads<'a> = (&'a Floats, &'a Floats, &'a Floats, u32);

pub struct Ours {
    scale: Function,
    read: Function,
    x: Place<Floats>,
    inputs: [Floats; 3],
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
        let basic = device.load_ptx_blocking(include_str!("../../kernels/basic.ptx"))?;
        let vectors = device.load_ptx_blocking(include_str!("../../kernels/vecadd.ptx"))?;
        let input = || h2d(vec![1.0f32; LEN]).sync_on(&stream);
        let inputs = [input()?, input()?, input()?];
        Ok(Self {
            scale: basic.function("scale")?,
            read: vectors.function("vecadd")?,
            inputs,
            x: Place::new(h2d(vec![1.0f32; LEN]).sync_on(&stream)?),
            single: SingleStream::from(stream.clone()),
            stream,
            default,
            runtime: tokio::runtime::Builder::new_current_thread().build().map_err(|error| {
                cuda_async::Error::Host { what: "tokio".into(), detail: error.to_string() }
            })?,
        })
    }

    /// The driver's stream behind the stream of `.sync_on`. Null where the device is not a GPU.
    pub fn raw_stream(&self) -> *mut c_void {
        raw_of(&self.stream)
    }

    /// The driver's stream behind the one that the default policy chooses while no work is in flight.
    pub fn raw_default_stream(&self) -> Result<*mut c_void> {
        Ok(raw_of(&self.default.place()?))
    }

    /// Polls `run` as a task of the runtime.
    pub fn inside_block_on(&self, run: impl FnOnce()) {
        self.runtime.block_on(async { run() });
    }

    /// Scales the buffer by 1.
    fn op(&self, x: Floats) -> Op<LaunchOp<(Floats, f32, u32)>> {
        let config = LaunchConfig::for_num_elems(LEN as u32);
        // SAFETY: reads and writes x, of `LEN` elements.
        unsafe { launch(&self.scale, config, (x, 1.0f32, LEN as u32)) }
    }

    /// Lends the buffer to `run`, which gives it back.
    fn with_buffer(&self, run: impl FnOnce(Floats) -> Result<Floats>) {
        self.x.lend(run);
    }

    pub fn sync_on(&self) {
        self.with_buffer(|x| self.op(x).sync_on(&self.stream));
    }

    pub fn sync(&self) {
        self.with_buffer(|x| self.op(x).sync());
    }

    pub fn awaited(&self, policy: &dyn SchedulingPolicy) {
        self.with_buffer(|x| {
            let launched = async { self.op(x).schedule(policy).await };
            self.runtime.block_on(launched)
        });
    }

    /// Runs `runs` launches, one after the other.
    pub fn sync_on_in_sequence(&self, runs: usize) {
        self.with_buffer(|x| (0..runs).try_fold(x, |x, _| self.op(x).sync_on(&self.stream)));
    }

    /// Runs `runs` launches on each of `threads` threads, one after the other. Each thread has a stream and a buffer.
    pub fn on_threads(&self, threads: usize, runs: usize) {
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| done(self.on_own_stream(runs)));
            }
        });
    }

    fn on_own_stream(&self, runs: usize) -> Result<()> {
        let stream = self.stream.device().new_stream()?;
        let x = zeros(LEN).sync_on(&stream)?;
        (0..runs).try_fold(x, |x, _| self.op(x).sync_on(&stream)).map(drop)
    }

    /// Awaits `runs` launches, one after the other, inside one `block_on`.
    pub fn awaited_in_sequence(&self, policy: &dyn SchedulingPolicy, runs: usize) {
        self.with_buffer(|x| {
            self.runtime.block_on(async {
                let mut x = x;
                for _ in 0..runs {
                    x = self.op(x).schedule(policy).await?;
                }
                Ok(x)
            })
        });
    }

    /// Awaits as [`awaited_in_sequence`](Self::awaited_in_sequence) does, by plain `.await` on the default policy.
    pub fn plainly_awaited(&self, runs: usize) {
        self.with_buffer(|x| {
            self.runtime.block_on(async {
                let mut x = x;
                for _ in 0..runs {
                    x = self.op(x).await?;
                }
                Ok(x)
            })
        });
    }

    /// A launch that only reads its buffers.
    fn read_op(&self) -> Op<LaunchOp<Reads<'_>>> {
        let (config, [x, y, z]) = (LaunchConfig::for_num_elems(LEN as u32), &self.inputs);
        // SAFETY: the null device runs nothing.
        unsafe { launch(&self.read, config, (x, y, z, LEN as u32)) }
    }

    /// Runs a launch that only reads.
    pub fn read_sync_on(&self) {
        done(self.read_op().sync_on(&self.stream));
    }

    /// Chains launches that only read.
    pub fn read_chain(&self, launches: usize) {
        let chain = iterate(launches, |left| {
            self.read_op().map(move |_| match left {
                1 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(left - 1),
            })
        });
        done(chain.sync_on(&self.stream));
    }

    /// Launches by `cuda-core` alone, and synchronizes after every `in_a_row`.
    pub fn core_alone(&self, launches: usize, in_a_row: usize) {
        self.with_buffer(|x| {
            for launch in 1..=launches {
                let mut arguments = Arguments::new();
                arguments.buffer(&x, Access::Write);
                arguments.number(&1.0f32, ArgumentKind::Float);
                arguments.number(&(LEN as u32), ArgumentKind::Integer);
                let config = LaunchConfig::for_num_elems(LEN as u32);
                // SAFETY: reads and writes x, of `LEN` elements, which no other code uses.
                unsafe { self.scale.launch(&self.stream, config, &arguments) }?;
                if launch % in_a_row == 0 {
                    self.stream.synchronize()?;
                }
            }
            Ok(x)
        });
    }

    /// An op of `launches` launches, one after the other.
    fn chain(&self, x: Floats, launches: usize) -> impl DeviceOp<Output = Floats> + '_ {
        iterate((x, launches), |(x, left)| {
            self.op(x).map(move |x| match left {
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

    /// An op that launches and copies the result to the host.
    fn launch_and_read(&self, x: Floats) -> impl DeviceOp<Output = Floats> + '_ {
        self.op(x).map(Arc::new).then(|x| {
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

    /// Records a graph of `launches` launches in sequence, and prepares it.
    pub fn graph(&self, launches: usize) -> Result<CudaGraph<Floats>> {
        let x = zeros(LEN).sync_on(&self.stream)?;
        let graph = self.chain(x, launches).graph_on(&self.stream)?;
        graph.upload()?;
        Ok(graph)
    }

    /// Launches a graph `runs` times, one after the other.
    pub fn launch_graph(&self, graph: &CudaGraph<Floats>, runs: usize) {
        for _ in 0..runs {
            done(graph.launch().sync_on(&self.stream));
        }
    }

    pub fn build(&self, ops: usize) {
        let config = LaunchConfig::for_num_elems(LEN as u32);
        let args = (0u64, 1.0f32, LEN as u32);
        // SAFETY: never run.
        (0..ops).for_each(|_| drop(black_box(unsafe { launch(&self.scale, config, args) })));
    }
}

fn raw_of(stream: &Stream) -> *mut c_void {
    let mut raw = ptr::null_mut();
    let take = &mut |stream: RawStream| {
        raw = stream.stream;
        Ok(())
    };
    // SAFETY: enqueues nothing.
    _ = unsafe { stream.submit_foreign(take) };
    raw
}
