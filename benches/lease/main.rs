//! Compares a leased device with the same device opened locally: a stream of launches, a pipeline, graphs, copies, and
//! the time from the request of a lease to its first result.
//!
//! `cargo bench -p benches --bench lease [-- cpu|cuda] [HOST:PORT [HOST:PORT]]`. With an address the node is the
//! `cuda-node` that listens there, else one in this process. The copies have a plain copy through `quinn` beside them,
//! with the same certificates. With two addresses it compares the leases of these nodes instead.

mod plain_quinn;
mod two_nodes;

use std::{
    cell::RefCell,
    ops::ControlFlow,
    thread,
    time::{Duration, Instant},
};

use benches::{Effort, Place, Way, done, report, section};
use cuda_async::{
    Device, DeviceBuffer, Function, LaunchConfig, Result, Stream,
    graph::CudaGraph,
    iterate,
    kernel::LaunchOp,
    launch,
    memory::{to_pinned, upload_into},
    prelude::*,
};
use cuda_lease::{Lease, LeaseBuilder};
use cuda_node::supervisor::{DeviceOptions, Node, NodeOptions};

use crate::plain_quinn::PlainCopy;

/// Elements of the kernels' buffer.
const LEN: usize = 2048;

/// Launches of the stream of launches.
const MANY: usize = 20_000;

/// The numbers of replays before a wait for the last one. A stream of a local device has at most 768 submissions in
/// flight.
const REPLAYS: [usize; 3] = [1, 200, 700];

/// Launches of a graph. On an H200 a replay takes more than 200 us.
const NODES: usize = 250;

/// The graphs that are replayed in turn, each with a buffer of its own. The address of a buffer changes the time of a
/// replay by up to two percent, so one buffer on each side would distort the comparison.
const GRAPHS: usize = 8;

/// The largest datagram of a lease, as in `cuda_lease`'s `transport`.
const DATAGRAM: u16 = 6500;

/// Bytes of the copies.
const BYTES: usize = 256 << 20;

const STREAM: Effort = Effort { rounds: 7, in_a_row: 1 };

const PIPELINE: Effort = Effort { rounds: 11, in_a_row: 20 };

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut asked = std::env::args().skip(1).filter(|arg| !arg.starts_with('-'));
    let address = asked.next().unwrap_or_else(|| "cuda".to_owned());
    let external = asked.next();
    if let (Some(first), Some(second)) = (&external, asked.next()) {
        return Ok(two_nodes::compare(first, &second)?);
    }
    let local = cuda_async::open_blocking(&address)?;
    println!("# {} ({}), driver {:?}", local.info().name, address, local.info().driver);
    let (node, _in_process) = match external {
        Some(address) => (address, None),
        None => {
            let node = start(&address)?;
            (node.address().to_string(), Some(node))
        }
    };
    let lease = acquire(&node)?;
    let (local, leased) = (Side::new(&local)?, Side::new(lease.device())?);

    section("Launches", &["us", "to the first"]);
    let chain = Side::chain;
    let what = format!("a stream of {MANY} launches");
    report(&what, both(&local, &leased, move |side| chain(side, MANY)), STREAM);
    let flights = lease.flights();
    leased.pipeline()?;
    println!("flights of commands of one pipeline: {}", lease.flights() - flights);
    let pipeline = |side: &Side| done(side.pipeline());
    report("upload, 100 launches, read-back", both(&local, &leased, pipeline), PIPELINE);
    report("one launch, waited for", both(&local, &leased, move |side| chain(side, 1)), PIPELINE);

    section(&format!("Graphs of {NODES} launches"), &["us", "to the first"]);
    for len in [LEN, 16 * LEN] {
        let graphs = (Replay::new(&local, len)?, Replay::new(&leased, len)?);
        for count in REPLAYS {
            let near = Way::new("local", || done(graphs.0.run(count)));
            let ours = Way::new("leased", || done(graphs.1.run(count)));
            let what = format!("replays in a row: {count}, kernels of {len} elements");
            report(&what, vec![near, ours], STREAM);
        }
    }

    section("Copies", &["us", "to the first"]);
    let bulk = (Bulk::new(&local)?, Bulk::new(&leased)?);
    let plain = done(PlainCopy::new(BYTES, 1452));
    let large = done(PlainCopy::new(BYTES, DATAGRAM));
    let up = Way::new("plain `quinn` copy to the other side", || done(plain.upload()));
    let jumbo = Way::new("the same with the datagrams of a lease", || done(large.upload()));
    let ours = Way::new("leased, from a `Vec`", || done(bulk.1.upload()));
    let near = Way::new("local, from a `Vec`", || done(bulk.0.upload()));
    report(&format!("upload of {} MiB", BYTES >> 20), vec![up, jumbo, ours, near], STREAM);
    let down = Way::new("plain `quinn` copy from the other side", || done(plain.download()));
    let jumbo = Way::new("the same with the datagrams of a lease", || done(large.download()));
    let ours = Way::new("leased, into a `PinnedBuffer`", || done(bulk.1.download()));
    let near = Way::new("local, into a `PinnedBuffer`", || done(bulk.0.download()));
    report(&format!("download of {} MiB", BYTES >> 20), vec![down, jumbo, ours, near], STREAM);
    drop(bulk);

    println!();
    for _ in 0..5 {
        // A worker becomes a spare one within this time.
        thread::sleep(Duration::from_secs(1));
        let started = Instant::now();
        let lease = acquire(&node)?;
        let granted = started.elapsed();
        let side = Side::new(lease.device())?;
        let loaded = started.elapsed();
        side.pipeline()?;
        let first = started.elapsed();
        println!(
            "lease granted after {granted:?}, kernel loaded after {loaded:?}, first result after {first:?}"
        );
    }
    Ok(())
}

fn start(address: &str) -> Result<Node> {
    let device = match address.split(':').next() {
        Some("cpu") => DeviceOptions::in_process(cuda_cpu::CpuProvider::default()),
        _ => DeviceOptions::in_process(cuda_driver::CudaProvider::new()),
    };
    Node::start(NodeOptions::loopback(vec![device]))
}

fn acquire(node: &str) -> Result<Lease> {
    LeaseBuilder::new(node).min_vram(2 << 30).acquire_blocking()
}

fn both<'a>(local: &'a Side, leased: &'a Side, run: impl Fn(&Side) + Copy + 'a) -> Vec<Way<'a>> {
    vec![Way::new("local", move || run(local)), Way::new("leased", move || run(leased))]
}

/// A device with a kernel and a buffer.
struct Side {
    stream: Stream,
    scale: Function,
    x: Place<DeviceBuffer<f32>>,
    data: Vec<f32>,
}

impl Side {
    fn new(device: &Device) -> Result<Self> {
        let stream = device.new_stream()?;
        let scale =
            device.load_ptx_blocking(include_str!("../../kernels/basic.ptx"))?.function("scale")?;
        let data = vec![1.0; LEN];
        let x = Place::new(h2d(&*data).sync_on(&stream)?);
        Ok(Self { stream, scale, x, data })
    }

    fn step(&self, x: DeviceBuffer<f32>) -> Op<LaunchOp<(DeviceBuffer<f32>, f32, u32)>> {
        let config = LaunchConfig::for_num_elems(LEN);
        // SAFETY: reads and writes `x`, of `LEN` elements.
        unsafe { launch(&self.scale, config, (x, 1.0f32, LEN as u32)) }
    }

    /// One launch after the other.
    fn launches(
        &self,
        x: DeviceBuffer<f32>,
        count: usize,
    ) -> impl DeviceOp<Output = DeviceBuffer<f32>> + '_ {
        iterate((x, count), |(x, left)| {
            self.step(x).map(move |x| match left {
                1 => ControlFlow::Break(x),
                _ => ControlFlow::Continue((x, left - 1)),
            })
        })
    }

    /// Launches one kernel after the other, and waits for the last.
    fn chain(&self, count: usize) {
        self.x.lend(|x| self.launches(x, count).sync_on(&self.stream));
    }

    /// Records a graph of [`NODES`] launches on a buffer of `len` elements, and prepares it.
    fn graph(&self, len: usize) -> Result<CudaGraph<DeviceBuffer<f32>>> {
        let config = LaunchConfig::for_num_elems(len);
        let x = h2d(vec![1.0; len]).sync_on(&self.stream)?;
        let op = iterate((x, NODES), |(x, left)| {
            // SAFETY: reads and writes `x`, of `len` elements.
            let scaled = unsafe { launch(&self.scale, config, (x, 1.0f32, len as u32)) };
            scaled.map(move |x| match left {
                1 => ControlFlow::Break(x),
                _ => ControlFlow::Continue((x, left - 1)),
            })
        });
        let graph = op.graph_on(&self.stream)?;
        graph.upload()?;
        Ok(graph)
    }

    /// An upload, 100 launches and a read-back.
    fn pipeline(&self) -> Result<()> {
        let op = h2d(&*self.data).then(|x| self.launches(x, 100)).then(to_host);
        let read = op.sync_on(&self.stream)?;
        assert_eq!(read, self.data);
        Ok(())
    }
}

/// Graphs of launches of one kernel, each with its own buffer.
struct Replay<'a> {
    stream: &'a Stream,
    graphs: Vec<CudaGraph<DeviceBuffer<f32>>>,
}

impl<'a> Replay<'a> {
    fn new(side: &'a Side, len: usize) -> Result<Self> {
        let graphs = (0..GRAPHS).map(|_| side.graph(len)).collect::<Result<_>>()?;
        Ok(Self { stream: &side.stream, graphs })
    }

    /// Launches the graphs in turn, `count` launches in all, and waits for the last one.
    fn run(&self, count: usize) -> Result<()> {
        let mut graphs = self.graphs.iter().cycle();
        for graph in graphs.by_ref().take(count - 1) {
            // SAFETY: the output is not used.
            drop(unsafe { graph.launch().async_on(self.stream) }?);
        }
        graphs.take(1).try_for_each(|graph| graph.launch().sync_on(self.stream).map(drop))
    }
}

/// Buffers of large copies.
struct Bulk<'a> {
    stream: &'a Stream,
    host: Vec<u8>,
    device: RefCell<DeviceBuffer<u8>>,
}

impl<'a> Bulk<'a> {
    fn new(side: &'a Side) -> Result<Self> {
        let stream = &side.stream;
        let buffer = zeros::<u8>(BYTES).sync_on(stream)?;
        Ok(Self { stream, host: vec![7; BYTES], device: RefCell::new(buffer) })
    }

    fn upload(&self) -> Result<()> {
        upload_into(&mut *self.device.borrow_mut(), &*self.host).sync_on(self.stream).map(drop)
    }

    fn download(&self) -> Result<()> {
        to_pinned(&*self.device.borrow()).sync_on(self.stream).map(drop)
    }
}
