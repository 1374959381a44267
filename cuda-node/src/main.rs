//! Serves leases of this machine's devices: `cuda-node --device cuda:0 --insecure`.
//!
//! The process that a user starts is the supervisor. It starts itself again as `cuda-node worker` for every lease.

use std::{
    io::{Write, stdout},
    net::SocketAddr,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    thread::{self, available_parallelism},
    time::Duration,
};

use clap::{Args, Parser, Subcommand, ValueEnum};
use cuda_core::{Error, Limit, Misuse, Provider, Quantity, Result};
use cuda_cpu::{CpuOptions, CpuProvider};
use cuda_driver::{Completion, CudaProvider};
use cuda_lease::{authority::ServerTls, wire::parse_bytes};
use cuda_node::{
    gpu::{GpuMonitor, NvmlMonitor, select},
    leases::TableConfig,
    process::{
        Confinement, DEFAULT_UIDS, Sandbox, SandboxReport, Successors, WorkerEnds, WorkerLauncher,
        WorkerOutput, die_with_supervisor, hide_memory, log_to_stderr, raise_descriptor_limit,
        return_large_blocks,
    },
    supervisor::{DeviceOptions, JitCache, Node, NodeOptions, OperatorCommand},
    worker,
};
use tokio::{
    runtime::Runtime,
    signal::unix::{Signal, SignalKind, signal},
};

/// Serves leases of this machine's devices.
#[derive(Parser)]
#[command(
    name = "cuda-node",
    version,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
struct Options {
    #[command(subcommand)]
    role: Option<Role>,
    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Subcommand)]
enum Role {
    /// Serves one lease. The supervisor starts it.
    #[command(hide = true)]
    Worker {
        /// The device.
        #[arg(long)]
        device: String,
        /// The time for which it waits for a supervisor that follows the first one, in seconds.
        #[arg(long)]
        outlive_secs: Option<u64>,
        /// The sandbox, as the supervisor describes it.
        #[arg(long)]
        sandbox: Option<Confinement>,
    },
    /// Ends a lease after a notice period.
    Revoke {
        /// The number of the lease; the audit log and the status page have it.
        lease: u64,
        /// The reason, which the client of the lease gets.
        #[arg(long, default_value = "by the operator")]
        reason: String,
        /// The notice period in seconds.
        #[arg(long, default_value_t = 0)]
        notice_secs: u32,
        /// The value of the node's `--operator-socket`.
        #[arg(long)]
        socket: PathBuf,
    },
    /// Reads certificates, lists of revoked certificates and quotas again, and opens the audit log again, as SIGHUP
    /// does.
    Reload {
        /// The value of the node's `--operator-socket`.
        #[arg(long)]
        socket: PathBuf,
    },
    /// Puts a fenced device back into service. A device is fenced if the memory of an ended lease did not become free.
    /// Check first that no worker of an ended lease uses the device.
    Unfence {
        /// The device, such as cuda:0.
        device: String,
        /// The value of the node's `--operator-socket`.
        #[arg(long)]
        socket: PathBuf,
    },
}

#[derive(Args)]
struct NodeArgs {
    /// The address to listen on.
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:5701", value_parser = address)]
    listen: SocketAddr,
    /// A device: `cpu`, `cuda:N`, or the identifier of a GPU or MIG instance; `cuda` is `cuda:0`. A GPU that is divided
    /// into MIG instances means all of them. Repeat the option for several devices.
    #[arg(long = "device", value_name = "DEVICE", required = true, value_parser = device)]
    devices: Vec<String>,
    /// The memory of each device that leases may use, such as 8GiB. By default all of it, without the contexts of spare
    /// workers.
    #[arg(long, value_parser = bytes)]
    capacity: Option<u64>,
    /// The maximum number of leases of each device.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    max_leases: u32,
    /// The number of idle workers of each device, at most `--max-leases`. They are started in advance, so that a lease
    /// does not wait for a start.
    #[arg(long, default_value_t = 1)]
    spares: usize,
    /// The longest duration of one request or renewal of a lease, in seconds.
    #[arg(long, default_value_t = 3600, value_parser = clap::value_parser!(u32).range(1..))]
    max_lease_secs: u32,
    /// The time in which work in flight may complete when a lease ends, in milliseconds. Then its worker is killed.
    #[arg(long, default_value_t = 5000)]
    grace_ms: u64,
    /// The maximum number of submissions in flight on a stream.
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u64).range(1..))]
    submissions: u64,
    /// Lets waiting requests end leases of lower priority, after a notice period of 10 seconds.
    #[arg(long)]
    preempt: bool,
    /// The limits of tenants, a TOML file. It is read again on SIGHUP and by `cuda-node reload`.
    #[arg(long)]
    quotas: Option<PathBuf>,
    /// A file to which one line of JSON is appended for each decision about a lease. While it cannot be written, the
    /// node grants no lease. SIGHUP and `cuda-node reload` open it again, so rename it first to begin a new one.
    #[arg(long)]
    audit: Option<PathBuf>,
    /// A folder in which the node keeps its state, so that leases outlive it: after SIGTERM or a crash, workers wait 30
    /// seconds for the next node with this folder, and clients connect to it again. SIGINT ends the leases. By default
    /// leases end with the node.
    #[arg(long, value_name = "FOLDER")]
    state: Option<PathBuf>,
    /// The address of the status endpoints: metrics in the format of OpenMetrics at `/metrics`, and a page at `/`. They
    /// show the names of tenants to everyone who reaches the address.
    #[arg(long, value_name = "IP:PORT", value_parser = address)]
    metrics: Option<SocketAddr>,
    /// A host name of the status endpoints, besides localhost and the address: requests for other names are refused.
    /// Repeat the option for several names.
    #[arg(long = "metrics-name", value_name = "NAME", requires = "metrics")]
    metrics_names: Vec<String>,
    /// A Unix socket for `cuda-node revoke`, `cuda-node reload` and `cuda-node unfence`, in an existing folder. Only the
    /// user of the node can open it.
    #[arg(long)]
    operator_socket: Option<PathBuf>,
    /// A folder in which the driver keeps compiled kernels, with a subfolder for each tenant. It cannot be the folder of
    /// `--state`. By default the kernels last as long as the node.
    #[arg(long)]
    jit_cache: Option<PathBuf>,
    /// The sandbox of workers.
    #[arg(long, value_enum, default_value_t = SandboxMode::Auto)]
    sandbox: SandboxMode,
    /// The user ids of workers if the node runs as root, such as 700000-700999. Each worker has one of its own. No other
    /// program may use them [default: 1879048192-1879052287].
    #[arg(long, value_name = "FIRST-LAST", value_parser = uids)]
    worker_uids: Option<RangeInclusive<u32>>,
    /// Serves without client certificates, on a loopback address only.
    #[arg(long, conflicts_with_all = ["cert", "key", "client_ca", "crls"])]
    insecure: bool,
    /// The certificate of the node, a PEM file. Certificates, their key and the lists of `--crl` are read again on SIGHUP
    /// and by `cuda-node reload`.
    #[arg(long, requires_all = ["key", "client_ca"])]
    cert: Option<PathBuf>,
    /// The key of the certificate, a PEM file that group and others cannot access.
    #[arg(long)]
    key: Option<PathBuf>,
    /// The authority that signs the certificates of clients, a PEM file.
    #[arg(long)]
    client_ca: Option<PathBuf>,
    /// A list of revoked client certificates, a PEM or DER file. Repeat the option for several files. As soon as there
    /// is one list, every authority of clients needs one.
    #[arg(long = "crl", value_name = "FILE", requires = "client_ca")]
    crls: Vec<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SandboxMode {
    /// All parts that the machine gives. The log and the status page name the others.
    Auto,
    /// All parts. On a machine that does not give one, the node does not start.
    Required,
    /// None.
    Off,
}

fn main() -> ExitCode {
    let options = Options::parse();
    // A worker does not see the quotas of its cgroups in its sandbox.
    let processors = available_parallelism().map_or(1, usize::from);
    // A worker enters its sandbox while it has one thread.
    let entered = match &options.role {
        Some(Role::Worker { sandbox: Some(sandbox), .. }) => sandbox.clone().enter(),
        _ => Ok(SandboxReport::default()),
    };
    let sandbox = match entered {
        Ok(sandbox) => sandbox,
        Err(error) => {
            eprintln!("cuda-node: {error}");
            return ExitCode::from(2);
        }
    };
    if options.role.is_none() {
        // Before it has a thread: that of the log is the first one.
        return_large_blocks();
    }
    let _log = log_to_stderr();
    if options.role.is_none()
        && let Err(error) = raise_descriptor_limit()
    {
        tracing::warn!(%error, "the limit of open files was not raised");
    }
    let done = match options.role {
        Some(Role::Worker { device, outlive_secs, .. }) => {
            work((&device, processors), outlive_secs, &sandbox)
        }
        Some(Role::Revoke { lease, reason, notice_secs, socket }) => {
            revoke(lease, reason, notice_secs, &socket)
        }
        Some(Role::Reload { socket }) => reload(&socket),
        Some(Role::Unfence { device, socket }) => unfence(device, &socket),
        None => serve(options.node),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cuda-node: {error}");
            ExitCode::from(2)
        }
    }
}

/// Prints lines to stdout. A failure is logged: `println!` would panic, and end the leases of the node.
fn print(lines: &str) {
    let mut stdout = stdout().lock();
    if let Err(error) = writeln!(stdout, "{lines}").and_then(|()| stdout.flush()) {
        tracing::warn!(%error, lines, "stdout cannot be written");
    }
}

fn revoke(lease: u64, reason: String, notice_secs: u32, socket: &Path) -> Result<()> {
    let revoked = OperatorCommand::Revoke { lease, reason, notice_secs }.send(socket)?;
    let notice = u64::from(notice_secs);
    // An older node does not tell the end.
    let ends_in = revoked.ends_in.map_or(notice, |end| end.as_millis().div_ceil(1000) as u64);
    print(&match ends_in {
        0 => format!("lease {lease} is revoked"),
        secs if secs < notice => format!(
            "lease {lease} ends in {secs} s, before the notice period of {notice} s is over: it expires, or an earlier end was announced"
        ),
        secs => format!("lease {lease} is revoked, and ends in {secs} s"),
    });
    Ok(())
}

fn reload(socket: &Path) -> Result<()> {
    OperatorCommand::Reload {}.send(socket)?;
    print("certificates and quotas were read again, and the audit log was opened again");
    Ok(())
}

fn unfence(device: String, socket: &Path) -> Result<()> {
    let unfenced = OperatorCommand::Unfence { device: device.clone() }.send(socket)?;
    match unfenced.has_effect {
        true => print(&format!("device {device} is in service")),
        false => print(&format!("device {device} was not fenced")),
    }
    Ok(())
}

/// The worker: serves one lease, and ends. A CPU device has a thread for each of `processors`.
fn work(
    (device, processors): (&str, usize),
    outlive_secs: Option<u64>,
    sandbox: &SandboxReport,
) -> Result<()> {
    let failed = |error: cuda_node::process::Error| {
        Error::host(
            "a worker is started by its supervisor; start `cuda-node` without `worker`",
            &error,
        )
    };
    let ends = WorkerEnds::take().map_err(failed)?;
    let watch = die_with_supervisor().map_err(failed)?;
    let successors = outlive_secs.map(|secs| Successors::take(Duration::from_secs(secs), watch));
    let successors = successors.transpose().map_err(failed)?;
    let (provider, ordinal) = provider(device, processors)?;
    worker::run(provider, ordinal, ends, Some(sandbox), successors)
}

/// Queries of the completion thread delay launches of other threads, and the network takes longer than a sleep. So the
/// thread spins only for work that is about to end.
const COMPLETION: Completion = Completion::Polled { spin: Duration::from_micros(20) };

fn provider(device: &str, processors: usize) -> Result<(Arc<dyn Provider>, u32)> {
    let (scheme, ordinal) = device.split_once(':').unwrap_or((device, "0"));
    let unknown = || Error::NoDevice {
        address: device.to_owned(),
        available: "`cpu`, and `cuda:N` for each GPU".into(),
    };
    let ordinal = ordinal.parse().map_err(|_| unknown())?;
    match scheme {
        "cpu" => {
            let mut options = CpuOptions::default();
            options.workers = Some(processors);
            Ok((Arc::new(CpuProvider::new(options)), ordinal))
        }
        "cuda" => Ok((Arc::new(CudaProvider::new().completion(COMPLETION)), ordinal)),
        _ => Err(unknown()),
    }
}

/// The supervisor.
fn serve(args: NodeArgs) -> Result<()> {
    let hangups = Hangups::new()?;
    // Before the node has a key.
    hide_memory().map_err(|error| {
        Error::host("failed to hide the memory of the node from other processes", &error)
    })?;
    let mut options = NodeOptions::loopback(devices(&args)?);
    options.listen = args.listen;
    options.tls = tls(&args)?;
    options.table = TableConfig {
        max_lease_secs: args.max_lease_secs,
        default_lease_secs: args.max_lease_secs.min(60),
        grace: Duration::from_millis(args.grace_ms),
        preempt: args.preempt,
        ..TableConfig::default()
    };
    options.submissions_in_flight = args.submissions;
    options.audit = args.audit.clone();
    options.state = args.state.clone();
    options.metrics = args.metrics;
    options.metrics_names = args.metrics_names.clone();
    options.operator_socket = args.operator_socket.clone();
    options.quotas_file = args.quotas.clone();
    let node = Node::start(options)?;
    let signals = Signals::new(hangups)?;
    let mut addresses = format!("listening on {}", node.address());
    if let Some(address) = node.metrics_address() {
        addresses += &format!("\nstatus on http://{address}/");
    }
    // A pipe that no process reads must not keep the node from its signals.
    let printer = thread::Builder::new().name("lease-stdout".into());
    printer.spawn(move || print(&addresses)).map_err(|error| {
        Error::host("failed to start the thread that prints the addresses of the node", &error)
    })?;
    match signals.wait(&node)? {
        End::Interrupt => node.stop(),
        End::Terminate => node.leave(),
    }
    Ok(())
}

/// The signal that ends a node.
enum End {
    Terminate,
    Interrupt,
}

/// Checks options that limit each other.
fn check(args: &NodeArgs) -> Result<()> {
    let limit = Limit::AtMost(args.max_leases.into());
    limit.check("--spares, whose limit is --max-leases", Quantity::Workers, args.spares as u64)?;
    for (index, name) in args.devices.iter().enumerate() {
        if args.devices[..index].contains(name) {
            let (object, name) = ("--device".into(), name.clone());
            return Err(Misuse::NamedTwice { object, name }.into());
        }
    }
    let absolute = |folder: &Option<PathBuf>| std::path::absolute(folder.as_ref()?).ok();
    if let Some(folder) = absolute(&args.state)
        && absolute(&args.jit_cache).is_some_and(|cache| cache == folder)
    {
        return Err(Error::setting(
            "--jit-cache",
            "it names the folder of `--state`; choose another folder",
        ));
    }
    Ok(())
}

/// The devices with their workers.
fn devices(args: &NodeArgs) -> Result<Vec<DeviceOptions>> {
    check(args)?;
    // A folder that cannot be used is an error on a CPU too.
    let kernels = JitCache::open(args.jit_cache.as_deref()).map_err(|error| {
        let folder = args.jit_cache.clone().unwrap_or_else(std::env::temp_dir);
        let what = format!(
            "failed to create folders for compiled kernels in {}; choose a writable one with `--jit-cache`",
            folder.display()
        );
        Error::host(what, &error)
    })?;
    let own = std::env::current_exe();
    let own = own.map_err(|error| Error::host("failed to find the program itself", &error))?;
    let sandbox = Sandbox::new(args.worker_uids.clone().unwrap_or(DEFAULT_UIDS));
    let sandbox = match args.sandbox {
        SandboxMode::Auto => Some(sandbox),
        SandboxMode::Required => Some(sandbox.required()),
        SandboxMode::Off => None,
    };
    let launcher = |device: &str| {
        let launcher = WorkerLauncher::new(&own);
        let launcher = launcher.argument("worker").argument("--device").argument(device);
        // Kernels print to the output of their worker.
        let launcher = launcher.output(WorkerOutput::Trace);
        match &sandbox {
            Some(sandbox) => launcher.sandbox(sandbox.clone()),
            None => launcher,
        }
    };
    let mut devices = Vec::new();
    for name in &args.devices {
        if name == "cpu" {
            devices.push(DeviceOptions::process(launcher(name)));
            continue;
        }
        let monitor =
            NvmlMonitor::new().map_err(|error| {
                Error::host("failed to load NVML, which lists the GPUs; install NVIDIA's driver, or serve `--device cpu`", &error)
            })?;
        let failed = |error| Error::host(format!("failed to find {name}"), &error);
        let gpus = monitor.devices().map_err(failed)?;
        let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        let selected = select(&gpus, visible.as_deref(), name).map_err(failed)?;
        let monitor: Arc<dyn GpuMonitor> = Arc::new(monitor);
        for gpu in selected {
            // A worker sees one GPU.
            devices.push(DeviceOptions::gpu(launcher("cuda:0"), monitor.clone(), gpu, &kernels));
        }
    }
    let limited = devices.into_iter().map(|device| {
        let device = device.max_leases(args.max_leases).spares(args.spares);
        match args.capacity {
            Some(capacity) => device.capacity(capacity),
            None => device,
        }
    });
    Ok(limited.collect())
}

fn tls(args: &NodeArgs) -> Result<ServerTls> {
    match (&args.cert, &args.key, &args.client_ca) {
        (Some(cert), Some(key), Some(ca)) => {
            Ok(args.crls.iter().fold(ServerTls::mutual(cert, key, ca), ServerTls::revoked))
        }
        _ if args.insecure => Ok(ServerTls::insecure()),
        _ => Err(Error::setting(
            "the certificates of the node",
            "pass `--cert`, `--key` and `--client-ca`, or `--insecure` on a loopback address; `cuda-lease certs` makes certificates for tests",
        )),
    }
}

/// The requests to reload. From its creation on, SIGHUP does not end the process.
struct Hangups {
    runtime: Runtime,
    reload: Signal,
}

impl Hangups {
    fn new() -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(no_signals)?;
        let entered = runtime.enter();
        let reload = signal(SignalKind::hangup()).map_err(no_signals)?;
        drop(entered);
        Ok(Self { runtime, reload })
    }
}

fn no_signals(error: std::io::Error) -> Error {
    Error::host("failed to prepare the wait for signals", &error)
}

/// The signals of a node.
struct Signals {
    runtime: Runtime,
    end: Signal,
    interrupt: Signal,
    reload: Signal,
}

impl Signals {
    fn new(Hangups { runtime, reload }: Hangups) -> Result<Self> {
        let entered = runtime.enter();
        let end = signal(SignalKind::terminate()).map_err(no_signals)?;
        let interrupt = signal(SignalKind::interrupt()).map_err(no_signals)?;
        drop(entered);
        Ok(Self { runtime, end, interrupt, reload })
    }

    /// Serves until a signal ends the node.
    fn wait(mut self, node: &Node) -> Result<End> {
        self.runtime.block_on(async {
            loop {
                tokio::select! {
                    _ = self.end.recv() => return Ok(End::Terminate),
                    _ = self.interrupt.recv() => return Ok(End::Interrupt),
                    // A failure is in the log.
                    _ = self.reload.recv() => drop(node.reload()),
                }
            }
        })
    }
}

fn bytes(text: &str) -> std::result::Result<u64, String> {
    match parse_bytes(text) {
        Ok(0) => Err("write at least 1 byte, for example 8GiB".into()),
        bytes => bytes.map_err(|error| error.to_string()),
    }
}

fn address(text: &str) -> std::result::Result<SocketAddr, String> {
    text.parse().map_err(|_| "write IP:PORT, such as 127.0.0.1:5701 or 0.0.0.0:5701".into())
}

fn uids(text: &str) -> std::result::Result<RangeInclusive<u32>, String> {
    let parsed = text
        .split_once('-')
        .and_then(|(first, last)| Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?));
    match parsed {
        Some(uids) if *uids.start() > 0 && !uids.is_empty() && *uids.end() < u32::MAX => Ok(uids),
        _ => Err("write FIRST-LAST, such as 700000-700999, without user id 0".into()),
    }
}

fn device(text: &str) -> std::result::Result<String, String> {
    let is_numbered =
        text.strip_prefix("cuda:").is_some_and(|number| number.parse::<u32>().is_ok());
    let is_identified =
        ["GPU-", "MIG-"].iter().any(|prefix| text.starts_with(prefix) && text.len() > prefix.len());
    match text {
        "cuda" => Ok("cuda:0".into()),
        _ if text == "cpu" || is_numbered || is_identified => Ok(text.into()),
        _ => Err("the devices are cpu, cuda, cuda:N, GPU-IDENTIFIER and MIG-IDENTIFIER; `nvidia-smi -L` lists the identifiers".into()),
    }
}
