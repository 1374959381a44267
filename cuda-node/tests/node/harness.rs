//! Starts nodes and uses leases.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpStream, UdpSocket},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use cuda_async::{
    Device, DeviceBuffer, Function, LaunchConfig, Result, Stream, launch, prelude::*,
};
use cuda_lease::{Lease, LeaseBuilder};
pub use rustix::process::Signal;

/// The longest wait for a state. A test that waits longer has found a bug.
pub const LONG: Duration = Duration::from_secs(60);

/// An address that no socket has. Its port is none that the system gives to others, so that a node finds it free when it
/// starts again.
fn free_address() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = 131 * std::process::id() + NEXT.fetch_add(1, Ordering::Relaxed);
        let address = format!("127.0.0.1:{}", 10_000 + number % 20_000);
        if UdpSocket::bind(&address).is_ok() {
            return address;
        }
    }
}

/// A node in a process of its own. Dropping it kills the node.
pub struct Node {
    child: Child,
    pub address: String,
    /// The address of the status endpoints, with the argument `--metrics`.
    status: Option<String>,
    arguments: Vec<String>,
}

impl Node {
    /// Starts a node that verifies no clients, with these arguments too.
    pub fn start(arguments: &[&str]) -> Self {
        Self::start_with(&[&["--insecure"], arguments].concat())
    }

    /// Starts a node with these arguments.
    pub fn start_with(arguments: &[&str]) -> Self {
        let arguments: Vec<_> = arguments.iter().map(|text| (*text).to_owned()).collect();
        Self::launch(&free_address(), arguments)
    }

    fn launch(listen: &str, arguments: Vec<String>) -> Self {
        let mut child = Command::new(program())
            .args(["--listen", listen, "--device", &device()])
            .args(&arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut line = |prefix| {
            let line = lines.next().unwrap().unwrap();
            line.strip_prefix(prefix).unwrap().to_owned()
        };
        let address = line("listening on ");
        let has_status = arguments.iter().any(|argument| argument == "--metrics");
        let status = has_status.then(|| line("status on http://").trim_end_matches('/').to_owned());
        Self { child, address, status, arguments }
    }

    /// Ends the process with a signal, and starts another one with the same arguments on the same address.
    pub fn restart(&mut self, signal: Signal) {
        self.end(signal);
        self.start_again();
    }

    /// Starts another process with the same arguments on the same address, after the end of this one.
    pub fn start_again(&mut self) {
        *self = Self::launch(&self.address, self.arguments.clone());
    }

    /// Starts another process with these arguments besides the earlier ones, which is to fail. Returns its output.
    pub fn fail_to_start(&self, more: &[&str]) -> String {
        let output = Command::new(program())
            .args(["--listen", &self.address, "--device", &device()])
            .args(&self.arguments)
            .args(more)
            .output()
            .unwrap();
        assert!(!output.status.success(), "the node has started");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Starts another process with other arguments on the same address, after the end of this one.
    pub fn start_again_with(&mut self, arguments: &[&str]) {
        let arguments = arguments.iter().map(|text| (*text).to_owned()).collect();
        *self = Self::launch(&self.address, arguments);
    }

    /// Begins to start another process with the same arguments on the same address.
    pub fn begin_to_start(&self, stdout: impl Into<Stdio>) -> Child {
        Command::new(program())
            .args(["--listen", &self.address, "--device", &device()])
            .args(&self.arguments)
            .stdout(stdout)
            .spawn()
            .unwrap()
    }

    /// Ends the process with a signal.
    pub fn end(&mut self, signal: Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
        self.child.wait().unwrap();
    }

    pub fn lease(&self) -> LeaseBuilder {
        LeaseBuilder::new(&self.address).min_vram(64 << 20)
    }

    /// The address of the status endpoints.
    pub fn status_address(&self) -> &str {
        self.status.as_ref().unwrap()
    }

    /// The reply of a status endpoint, header and body.
    pub fn status(&self, path: &str) -> (String, String) {
        let mut stream = TcpStream::connect(self.status_address()).unwrap();
        let host = self.status_address();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        let (header, body) = reply.split_once("\r\n\r\n").unwrap();
        (header.to_ascii_lowercase(), body.to_owned())
    }

    /// The value of a metric, with its labels; 0 if it is absent.
    pub fn metric(&self, name: &str) -> f64 {
        let (_, text) = self.status("/metrics");
        let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        found.map_or(0.0, |value| value.parse().unwrap())
    }

    /// The state of the node.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.status("/status.json").1).unwrap()
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The process ids of the workers.
    pub fn workers(&self) -> Vec<u32> {
        children(self.child.id())
    }

    /// Waits until there are `count` workers, and returns their process ids. The first worker of a node without spare ones
    /// may end after the first lease has its own.
    pub fn wait_for_workers(&self, count: usize) -> Vec<u32> {
        let mut workers = Vec::new();
        wait_until("the workers of the leases are the only ones", || {
            workers = self.workers();
            workers.len() == count
        });
        workers
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// The program of the nodes.
pub fn program() -> String {
    setting("CUDA_NODE", env!("CARGO_BIN_EXE_cuda-node"))
}

/// The device of the nodes: the CPU, or the value of `NODE_DEVICE`.
pub fn device() -> String {
    setting("NODE_DEVICE", "cpu")
}

/// A setting for runs on machines with a GPU, where the tests are carried to.
pub fn setting(variable: &str, otherwise: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| otherwise.to_owned())
}

/// The children of a process that have not ended.
pub fn children(of: u32) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|pid| parent(*pid) == Some(of)).collect()
}

/// The status of a process, as the kernel writes it: its state, its parent and so on (`proc_pid_stat(5)`, without the first
/// two fields).
pub fn status_of(pid: u32) -> Option<Vec<String>> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(status.rsplit_once(") ")?.1.split(' ').map(str::to_owned).collect())
}

/// The processor time of a process.
pub fn processor_time(pid: u32) -> Duration {
    let ticks = &status_of(pid).unwrap()[11..13];
    ticks.iter().map(|ticks| Duration::from_millis(10 * ticks.parse::<u64>().unwrap())).sum()
}

/// The parent of a process that has not ended.
fn parent(pid: u32) -> Option<u32> {
    let status = status_of(pid)?;
    // The first thread of a process is a zombie while the others still end.
    let has_ended = status[0] == "Z"
        && std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count) <= 1;
    status[1].parse().ok().filter(|_| !has_ended)
}

/// Waits until `is_so`.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < LONG, "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Starts three kernels that do not end, with an upload of 60 MiB behind each: the uploads fill the way to the worker.
pub fn uploads_behind_kernels(lease: &Lease) -> impl Sized + use<> {
    let kernels = Kernels::new(lease).unwrap();
    let streams: Vec<_> = (0..3).map(|_| lease.new_stream().unwrap()).collect();
    let uploads: Vec<_> = streams
        .iter()
        .map(|stream| {
            kernels.start_forever(stream).unwrap();
            // SAFETY: no foreign code uses the output.
            unsafe { h2d(vec![1u8; 60 << 20]).async_on(stream) }
        })
        .collect();
    (uploads, streams, kernels)
}

/// A device with kernels.
pub struct Kernels {
    pub device: Device,
    scale: Function,
    run_forever: Function,
}

impl Kernels {
    pub fn new(lease: &Lease) -> Result<Self> {
        Self::on(lease.device())
    }

    pub fn on(device: &Device) -> Result<Self> {
        let device = device.clone();
        let load = |text: &str| device.load_ptx_blocking(text);
        let scale = load(include_str!("../../../kernels/basic.ptx"))?.function("scale")?;
        let faults = load(include_str!("../../../kernels/faults.ptx"))?;
        Ok(Self { device, scale, run_forever: faults.function("run_forever")? })
    }

    /// Uploads, doubles and reads back.
    pub fn double(&self, values: &[f32]) -> Result<Vec<f32>> {
        let (stream, config) =
            (self.device.new_stream()?, LaunchConfig::for_num_elems(values.len()));
        let double = |x: DeviceBuffer<f32>| {
            let count = values.len() as u32;
            // SAFETY: reads and writes `x`, of `count` elements.
            unsafe { launch(&self.scale, config, (x, 2.0f32, count)) }
        };
        h2d(values).then(double).then(to_host).sync_on(&stream)
    }

    /// Runs 1,000 kernels on this number of elements.
    pub fn run_many(&self, count: usize) -> Result<()> {
        let stream = self.device.new_stream()?;
        let mut x = zeros::<f32>(count).sync_on(&stream)?;
        for _ in 0..1000 {
            let config = LaunchConfig::for_num_elems(count);
            // SAFETY: reads and writes `x`, of `count` elements.
            let launch = unsafe { launch(&self.scale, config, (x, 1.0f32, count as u32)) };
            // SAFETY: the output goes to the next launch on the same stream.
            x = unsafe { launch.async_on(&stream) }?;
        }
        stream.synchronize()
    }

    /// Launches an endless kernel.
    pub fn start_forever(&self, stream: &Stream) -> Result<()> {
        let out = zeros::<u32>(32).sync_on(stream)?;
        // SAFETY: uses no memory but `out`.
        let endless = unsafe { launch(&self.run_forever, LaunchConfig::new(1, 1), (out,)) };
        // SAFETY: the output is dropped, so no foreign code uses it.
        drop(unsafe { endless.async_on(stream) }?);
        Ok(())
    }

    /// Runs an endless kernel.
    pub fn run_forever(&self) -> Result<()> {
        self.run_until(|| {})
    }

    /// Runs an endless kernel, and calls `end` when the node has received the launch.
    pub fn run_until(&self, end: impl FnOnce()) -> Result<()> {
        let stream = self.device.new_stream()?;
        self.start_forever(&stream)?;
        // A lease handles its commands in order: an answer to a later one shows that the launch was received.
        zeros::<u8>(1).then(to_host).sync_on(&self.device.new_stream()?)?;
        end();
        stream.synchronize()
    }
}

/// Whether a lease works.
pub fn check(lease: &Lease) {
    let values: Vec<f32> = (0..1000u16).map(f32::from).collect();
    let doubled: Vec<f32> = values.iter().map(|x| x * 2.0).collect();
    assert_eq!(Kernels::new(lease).unwrap().double(&values).unwrap(), doubled);
}
