//! The node: its socket, and the task that accepts connections.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    num::NonZeroU32,
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    thread,
    time::Duration,
};

use cuda_core::{Error, Limit, Provider, Quantity, Result, protocol::Status};
use cuda_lease::{
    authority::{ClientIdentity, ClientVerifier, IdentityError, ServerTls, TokenKey},
    internals::transport,
    wire::Limits,
};
use governor::{Quota, RateLimiter};
use parking_lot::Mutex;
use tokio::{
    runtime::{Builder, EnterGuard, Runtime},
    sync::watch,
};

use super::{
    audit::{self, Audit},
    connection,
    connection_memory::ConnectionMemory,
    handshakes::{Handshake, Handshakes},
    jit_cache::JitCache,
    leases::{Client, LeasedDevice, Leases, LeftLeases},
    operator::OperatorSocket,
    packet_parts,
    reload::{Reload, end_of_certificate},
    state_folder::{LeftState, StateFolder},
    workers::{FirstWorker, Gpu, Launcher, ProcessLauncher, Workers},
};
use crate::{
    gpu::{GpuInfo, GpuKind, GpuMonitor},
    leases::{LeaseTable, SlotConfig, TableConfig},
    process::{DeviceFiles, SandboxReport, WorkerLauncher},
    quotas::Quotas,
    status,
};

/// The maximum number of bytes of host copies in flight on a stream.
const HOST_BYTES: u64 = 64 << 20;

/// The maximum number of streams of a session.
const STREAMS: u32 = 1024;

/// The time in which clients acknowledge the end of the node.
const STOP: Duration = Duration::from_millis(500);

/// The time for which a worker waits for the next node.
const OUTLIVE: Duration = Duration::from_secs(30);

/// The maximum number of bytes of an image.
const MODULE_BYTES: u64 = 64 << 20;

/// The time for which a client can use the token of a Retry. A busy machine may take some time to read the packet.
const RETRY_TOKENS: Duration = Duration::from_secs(60);

/// The time of a handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// The lines of the log about refused clients, per second. Anyone who reaches the node can cause them.
const REFUSALS_LOGGED: NonZeroU32 = NonZeroU32::MIN;

/// The settings of a node. [`loopback`](Self::loopback) has the defaults.
pub struct NodeOptions {
    /// The address to listen on. Port 0 chooses a free one.
    pub listen: SocketAddr,
    /// The certificates of the node.
    pub tls: ServerTls,
    /// The devices.
    pub devices: Vec<DeviceOptions>,
    /// The limits of leases.
    pub table: TableConfig,
    /// The limits of tenants.
    pub quotas: Quotas,
    /// A TOML file with the limits of tenants, in the place of `quotas`. [`Node::reload`] reads it again.
    pub quotas_file: Option<PathBuf>,
    /// The maximum number of submissions of a client in flight on a stream.
    pub submissions_in_flight: u64,
    /// The file to which one line of JSON is appended for each decision about a lease. It is created with mode 0600. While
    /// it cannot be written, the node grants no lease.
    pub audit: Option<PathBuf>,
    /// The folder in which the node keeps its state. Leases then outlive the node: after [`Node::leave`], and after the
    /// end of the process, their workers wait 30 seconds for the next node with this folder, and their clients
    /// connect to it again. Only one node uses a folder at a time. `None`, the default: leases end with the node.
    pub state: Option<PathBuf>,
    /// The address of the [status endpoints](crate::status). Port 0 chooses a free one. They show the names of tenants,
    /// and no secrets. `None`, the default, starts no status endpoints.
    pub metrics: Option<SocketAddr>,
    /// The host names under which clients reach the status endpoints, besides `localhost` and the addresses of the
    /// node. Requests for other names are refused, because a page of a foreign site may have sent them (DNS rebinding).
    pub metrics_names: Vec<String>,
    /// The path of the Unix socket for [`OperatorCommand`](super::OperatorCommand)s. Only the user who runs the node
    /// can open it. `None`, the default, opens no socket.
    pub operator_socket: Option<PathBuf>,
}

/// A device of a node.
pub struct DeviceOptions {
    launcher: Launcher,
    name: Option<String>,
    capacity: Option<u64>,
    max_leases: u32,
    spares: usize,
}

/// The memory that a worker uses on a GPU besides the quota of its lease, if NVML does not report it. Measured on an
/// H200: 588 MiB.
const CONTEXT_BYTES: u64 = 588 << 20;

/// Memory of every worker for small variables of modules, the heap and the print buffer of the device. A lease that
/// needs more of that, or large stacks, takes it from its quota.
const OUTSIDE_BYTES: u64 = 64 << 20;

impl DeviceOptions {
    /// Creates the options for the first device of a provider, such as `CpuProvider::default()`, with workers that are
    /// threads of this process. The node cannot stop an endless kernel in such a worker, so use this only for tests and
    /// for your own programs.
    pub fn in_process(provider: impl Provider + 'static) -> Self {
        Self::new(Launcher::InProcess(Arc::new(provider)))
    }

    /// Creates the options for a device with workers that are processes.
    pub fn process(launcher: WorkerLauncher) -> Self {
        let launcher = ProcessLauncher::new(launcher, None, None);
        Self { spares: 1, ..Self::new(Launcher::Process(Box::new(launcher))) }
    }

    /// Creates the options for a GPU or a MIG instance with workers that are processes. A worker can use no other GPU.
    /// The node observes the memory of workers. It ends a lease that uses too much, and takes a device out of service
    /// (fences it) whose memory is not free after the end of a worker.
    pub fn gpu(
        launcher: WorkerLauncher,
        monitor: Arc<dyn GpuMonitor>,
        gpu: &GpuInfo,
        kernels: &JitCache,
    ) -> Self {
        let observed = Gpu { monitor, uuid: gpu.uuid.clone() };
        let jit_cache = Some(kernels.clone());
        let files = gpu.device_files.clone().map_or(DeviceFiles::AllGpus, DeviceFiles::These);
        let launcher = launcher.devices(files);
        let launcher = ProcessLauncher::new(launcher, Some(observed), jit_cache);
        let name = match gpu.kind {
            GpuKind::Whole => format!("cuda:{}", gpu.index),
            _ => gpu.uuid.to_string(),
        };
        let new = Self::new(Launcher::Process(Box::new(launcher)));
        Self { name: Some(name), spares: 1, ..new }
    }

    fn new(launcher: Launcher) -> Self {
        Self { launcher, name: None, capacity: None, max_leases: 64, spares: 0 }
    }

    /// Sets the memory that leases may use, in bytes. By default it is the memory of the device without the contexts of
    /// spare workers.
    pub fn capacity(mut self, bytes: u64) -> Self {
        self.capacity = Some(bytes);
        self
    }

    /// Sets the maximum number of leases. The default is 64.
    pub fn max_leases(mut self, leases: u32) -> Self {
        self.max_leases = leases;
        self
    }

    fn launcher(&self) -> Option<&WorkerLauncher> {
        match &self.launcher {
            Launcher::InProcess(_) => None,
            Launcher::Process(process) => Some(&process.launcher),
        }
    }

    /// Lets workers with a lease outlive the node.
    fn outlive_node(&mut self, folder: &StateFolder) {
        if let Launcher::Process(process) = &mut self.launcher {
            process.launcher = process.launcher.clone().successors(folder.workers(), OUTLIVE);
        }
    }

    /// Sets the number of idle workers that the node starts in advance, so that a lease does not wait for the start of
    /// a worker. The default is 1 for workers that are processes, and 0 for those that are threads.
    pub fn spares(mut self, workers: usize) -> Self {
        self.spares = workers;
        self
    }

    /// Starts a worker, and asks it for its device.
    async fn open(self) -> Result<(SlotConfig, LeasedDevice)> {
        let workers = Workers::new(self.launcher, self.spares);
        let FirstWorker { device: mut info, features, sandbox, used } = workers.open().await?;
        if let Some(name) = self.name {
            info.address = name;
        }
        let is_gpu = info.driver.is_some();
        let reserve = if is_gpu { used.unwrap_or(CONTEXT_BYTES) + OUTSIDE_BYTES } else { 0 };
        // Spare workers have contexts too.
        let spare = reserve * self.spares as u64;
        let capacity = self.capacity.unwrap_or(info.memory.saturating_sub(spare));
        // A worker on the CPU can use no more than the memory of the machine.
        if !is_gpu && capacity > info.memory {
            let device =
                format!("the capacity, whose limit is the memory of device {}", info.address);
            let limit = Limit::AtMost(info.memory);
            return Err(Error::out_of_range(device, Quantity::Bytes, capacity, limit));
        }
        let name = info.address.clone();
        let slot = SlotConfig { name, capacity, reserve, max_leases: self.max_leases };
        Ok((slot, LeasedDevice { info, features, sandbox, workers }))
    }
}

impl NodeOptions {
    /// Creates the settings of a node on a free port of the loopback address, with the default limits.
    pub fn loopback(devices: Vec<DeviceOptions>) -> Self {
        Self {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
            tls: ServerTls::insecure(),
            devices,
            table: TableConfig::default(),
            quotas: Quotas::default(),
            quotas_file: None,
            submissions_in_flight: 4096,
            audit: None,
            state: None,
            metrics: None,
            metrics_names: Vec::new(),
            operator_socket: None,
        }
    }
}

/// A node in this process. It stops when it is dropped.
pub struct Node {
    address: SocketAddr,
    metrics: Option<SocketAddr>,
    endpoint: quinn::Endpoint,
    leases: Arc<Leases>,
    reload: Arc<Reload>,
    /// `None` after the end.
    runtime: Option<Runtime>,
}

impl Node {
    /// Starts a node.
    ///
    /// # Errors
    /// A device cannot be opened, the settings contradict each other, or the address cannot be listened on.
    pub fn start(options: NodeOptions) -> Result<Self> {
        let runtime = runtime()
            .map_err(|error| Error::host("failed to start the runtime of the node", &error))?;
        let (folder, left) = match &options.state {
            None => (None, LeftState::default()),
            Some(path) => {
                let opened = StateFolder::open(path);
                let (folder, left) = opened.map_err(|error| state_error(path, &error))?;
                (Some(folder), left)
            }
        };
        let mut devices = options.devices;
        if let Some(folder) = &folder {
            devices.iter_mut().for_each(|device| device.outlive_node(folder));
        }
        let left_leases = {
            let _entered = runtime.enter();
            let launcher = devices.iter().find_map(DeviceOptions::launcher);
            launcher.map(|launcher| LeftLeases::new(left, |worker| launcher.take_over(worker)))
        };
        let (configs, slots) = open_all(&runtime, devices)?;
        log_sandbox(&slots);
        let quotas = options.quotas_file.as_deref().map(Quotas::read).transpose()?;
        let quotas = quotas.unwrap_or(options.quotas);
        let table = LeaseTable::new(options.table, configs, quotas).map_err(invalid)?;
        let limits = Limits {
            submissions_in_flight: options.submissions_in_flight,
            host_bytes_in_flight: HOST_BYTES,
            memory: 0,
            streams: STREAMS,
            module_bytes: MODULE_BYTES,
        };
        let key = match &folder {
            None => StateFolder::new_key(),
            Some(folder) => folder.key(),
        };
        let key = key.map_err(|error| Error::host("failed to get the key of the node", &error))?;
        let (key, reset) = (TokenKey::from_bytes(key), transport::ResetKey::derive(&key));
        let audit = match &options.audit {
            None => Audit::default(),
            Some(path) => {
                Audit::append_to(path).map_err(|error| audit::open_error(path, &error))?
            }
        };
        let leases = Leases::new(table, key, slots, limits, audit, folder);
        let (mut config, verifier) = options.tls.config_for(options.listen).map_err(invalid)?;
        config.transport_config(transport::narrow_connection());
        config.retry_token_lifetime(RETRY_TOKENS);
        Handshakes::limit(&mut config);
        config.crypto = packet_parts::limit(config.crypto);
        let endpoint = {
            let _entered = runtime.enter();
            transport::endpoint(options.listen, Some((config.clone(), reset)))
        };
        let failed = |error| Error::host(format!("failed to listen on {}", options.listen), &error);
        let endpoint = endpoint.map_err(failed)?;
        let address = endpoint.local_addr();
        let address = address.map_err(|error| Error::host("the socket has no address", &error))?;
        let reload = Arc::new(Reload {
            tls: options.tls.clone(),
            listen: options.listen,
            quotas: options.quotas_file,
            endpoint: endpoint.clone(),
            config: watch::Sender::new(config),
            verifier: watch::Sender::new(verifier),
            leases: leases.clone(),
            running: Mutex::default(),
        });
        let open_operator_socket = |path: &PathBuf| {
            let _entered = runtime.enter();
            OperatorSocket::open(path).map_err(|error| {
                let hint = match error.kind() {
                    std::io::ErrorKind::NotFound => "; create its folder first",
                    _ => "",
                };
                Error::host(format!("failed to open the socket {}{hint}", path.display()), &error)
            })
        };
        let operator_socket =
            options.operator_socket.as_ref().map(open_operator_socket).transpose()?;
        let metrics = match options.metrics {
            Some(address) => {
                Some(serve_status(&runtime, address, options.metrics_names, leases.clone())?)
            }
            None => None,
        };
        // Last, because it ends leases that have no place here. A start that fails before ends none.
        if let Some(left_leases) = left_leases {
            let leases = leases.clone();
            on_runtime(&runtime, async move { leases.restore(left_leases).await });
        }
        if let Some(socket) = operator_socket {
            runtime.spawn(socket.serve(leases.clone(), reload.clone()));
        }
        runtime.spawn(leases.clone().run());
        runtime.spawn(leases.clone().watch_memory());
        let settings = (reload.config.subscribe(), reload.verifier.subscribe());
        runtime.spawn(accept(endpoint.clone(), leases.clone(), options.tls, settings));
        Ok(Self { address, metrics, endpoint, leases, reload, runtime: Some(runtime) })
    }

    /// Returns the address that the node listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address of the status endpoints, if there are any.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// Replaces the quotas of tenants. Later requests and renewals have the new ones.
    pub fn set_quotas(&self, quotas: Quotas) {
        let _entered = self.enter();
        self.leases.set_quotas(quotas);
    }

    /// Reads the files of [`NodeOptions::tls`] and [`NodeOptions::quotas_file`] again, and puts all of them into force.
    /// Opens the file of [`NodeOptions::audit`] again, which may have been renamed.
    /// Leases go on, and so do connections, except those of clients whose certificates are no longer valid: their
    /// authority was removed, or they were revoked.
    ///
    /// # Errors
    /// The error names the file that cannot be used. Then nothing changes.
    pub fn reload(&self) -> Result<()> {
        let _entered = self.enter();
        self.reload.run()
    }

    /// Enters the runtime of the node: a change of the leases carries out what is due, in tasks.
    fn enter(&self) -> Option<EnterGuard<'_>> {
        self.runtime.as_ref().map(Runtime::enter)
    }
}

impl Node {
    /// Ends all leases, tells their clients, and frees the address of the node. Blocks the calling thread until the
    /// clients have acknowledged the end, at most half a second, as long again until the tasks of the node have ended,
    /// and as long again until the audit log is written.
    ///
    /// A client whose connection is congested may notice the end only when its connection times out, after 5 seconds.
    /// Dropping the node also ends its leases, without waiting for the clients.
    pub fn stop(mut self) {
        self.close();
        let Some(runtime) = self.runtime.take() else { return };
        let endpoint = self.endpoint.clone();
        on_runtime(&runtime, async move {
            _ = tokio::time::timeout(STOP, endpoint.wait_idle()).await;
        });
        thread::scope(|scope| _ = scope.spawn(|| runtime.shutdown_timeout(STOP)).join());
        self.leases.log_ends(STOP);
    }

    /// Ends the node and leaves its leases to the next one, if it has a [state folder](NodeOptions::state). Without
    /// one, ends the leases as [`stop`](Self::stop) does. Clients connect again. Blocks the calling thread until the
    /// clients have acknowledged the end of their connections, at most half a second, and as long again until the audit
    /// log is written.
    ///
    /// Requests that wait in the queue are repeated by their clients. Submits that run are answered with an error that
    /// says that they may have run.
    pub fn leave(self) {
        if !self.leases.outlive_node() {
            return self.stop();
        }
        tracing::info!(
            leases = self.leases.count(),
            "the node ends, and its leases wait for the next one"
        );
        self.endpoint.close(transport::CONNECT_AGAIN, b"the node restarts");
        if let Some(runtime) = &self.runtime {
            let endpoint = self.endpoint.clone();
            on_runtime(runtime, async move {
                _ = tokio::time::timeout(STOP, endpoint.wait_idle()).await;
            });
        }
        self.leases.flush(STOP);
        // Dropping the leases would end their workers.
        std::mem::forget(self.leases.clone());
    }

    fn close(&self) {
        self.endpoint.close(transport::STOPPED, b"the node stops");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.leases.has_left() {
            return self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
        }
        tracing::info!(leases = self.leases.count(), "the node stops, and its leases end");
        self.close();
        if let Some(runtime) = self.runtime.take() {
            // Workers end with their handles. A node may be dropped inside another runtime, so nothing waits here.
            runtime.shutdown_background();
            self.leases.log_ends(Duration::ZERO);
        }
    }
}

/// Builds the runtime of a node. Its threads for blocking calls never end, and the launch of a worker starts the first
/// one. Without such a thread, `spawn_blocking` panics while the machine gives no thread, also at the end of a lease.
fn runtime() -> std::io::Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(thread::available_parallelism().map_or(2, Into::into).min(4))
        .thread_name("lease-node")
        .thread_keep_alive(Duration::MAX)
        .enable_all()
        .build()
}

fn state_error(path: &Path, error: &std::io::Error) -> Error {
    Error::host(format!("failed to open the state folder {}", path.display()), error)
}

/// Waits for a future, on a thread of its own: the calling thread may be inside of another runtime.
fn on_runtime(runtime: &Runtime, future: impl Future<Output = ()> + Send) {
    thread::scope(|scope| _ = scope.spawn(|| runtime.block_on(future)).join());
}

/// Starts the status endpoints. Returns their address.
fn serve_status(
    runtime: &Runtime,
    address: SocketAddr,
    names: Vec<String>,
    leases: Arc<Leases>,
) -> Result<SocketAddr> {
    let failed = |error: std::io::Error| {
        Error::host(format!("failed to serve the status of the node on {address}"), &error)
    };
    let listener = TcpListener::bind(address).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let _entered = runtime.enter();
    let serving = status::serve(listener, names, move || leases.snapshot()).map_err(failed)?;
    runtime.spawn(serving);
    Ok(address)
}

/// Logs once which parts of the sandbox the machine does not give. The workers of GPUs may lack more than others.
fn log_sandbox(slots: &[LeasedDevice]) {
    let reports = || slots.iter().filter_map(|slot| slot.sandbox.as_ref());
    let limit = reports().find_map(SandboxReport::memory_limit).unwrap_or("nothing");
    match reports().find(|report| !report.is_complete()).or_else(|| reports().next()) {
        None => {}
        Some(report) if report.is_complete() => {
            tracing::info!(
                "every part of the sandbox of workers is in force; their host memory is limited by {limit}"
            );
        }
        Some(report) if report.parts().is_empty() => {
            tracing::warn!(
                "workers have no sandbox: a hostile tenant can act as the user of this node"
            );
        }
        Some(report) => tracing::warn!(
            "the sandbox of workers is incomplete: {report}; their host memory is limited by {limit}; with `--sandbox required` the node refuses to start"
        ),
    }
}

/// Opens the devices, on a thread of its own: the calling thread may be inside of another runtime.
fn open_all(
    runtime: &Runtime,
    devices: Vec<DeviceOptions>,
) -> Result<(Vec<SlotConfig>, Vec<LeasedDevice>)> {
    let open = || {
        let opened = devices.into_iter().map(|device| runtime.block_on(device.open()));
        opened.collect::<Result<Vec<_>>>().map(|opened| opened.into_iter().unzip())
    };
    let opened = thread::scope(|scope| scope.spawn(open).join());
    opened.unwrap_or_else(|_| Err(Error::Panicked { what: "the thread that opens devices".into() }))
}

fn invalid(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::setting("the settings of a node", cause)
}

async fn accept(
    endpoint: quinn::Endpoint,
    leases: Arc<Leases>,
    tls: ServerTls,
    (configs, verifiers): (watch::Receiver<quinn::ServerConfig>, watch::Receiver<ClientVerifier>),
) {
    let (tls, handshakes) = (Arc::new(tls), Arc::new(Handshakes::default()));
    let logged = Arc::new(RateLimiter::direct(Quota::per_second(REFUSALS_LOGGED)));
    let mut connections = 0;
    while let Some(incoming) = endpoint.accept().await {
        if handshakes.require_retry(incoming.remote_address().ip())
            && !incoming.remote_address_validated()
            && incoming.may_retry()
        {
            _ = incoming.retry();
            continue;
        }
        connections += 1;
        let Some(handshake) = handshakes.add(incoming.remote_address().ip()) else {
            incoming.refuse();
            continue;
        };
        let (leases, tls, connection) = (leases.clone(), tls.clone(), connections);
        let (logged, configs, handshakes) = (logged.clone(), configs.clone(), handshakes.clone());
        // Before the handshake begins, so that no reload is missed.
        let mut verifier = verifiers.clone();
        verifier.mark_unchanged();
        tokio::spawn(async move {
            let log = |error: String| {
                if logged.check().is_ok() {
                    tracing::info!(error, "a client was refused");
                }
            };
            let mut config = configs.borrow().clone();
            let memory = ConnectionMemory::observe(&mut config);
            match shake_hands(incoming, config, &handshake, &tls).await {
                Ok((connected, identity)) => {
                    drop(handshake);
                    let ClientIdentity { tenant, key, .. } = identity.clone();
                    let account = leases.tenants().account(&tenant);
                    let certificate_ends = identity.expires();
                    let client = Client { tenant, key, account, certificate_ends, connection };
                    let ended = end_of_certificate(&identity, verifier);
                    // Also while it waits to be served or refused.
                    let limited = ConnectionMemory::limit_ids(connected.clone());
                    let (connection, ended) = ((connected, memory), (ended, log));
                    tokio::join!(serve(leases, &handshakes, client, connection, ended), limited);
                }
                Err(error) => {
                    log(error);
                    handshake.fail(memory).await;
                }
            }
        });
    }
}

/// Completes a handshake. Returns the reason if the client is refused.
async fn shake_hands(
    incoming: quinn::Incoming,
    config: quinn::ServerConfig,
    handshake: &Handshake,
    tls: &ServerTls,
) -> Result<(quinn::Connection, ClientIdentity), String> {
    let accept = || incoming.accept_with(config.into());
    let connecting = async { handshake.begin(accept).await?.await };
    let connected = tokio::select! {
        connected = tokio::time::timeout(HANDSHAKE, connecting) => connected,
        () = handshake.displaced() => return Err("another handshake took the place of its own".into()),
    };
    let connected = connected.map_err(|_| "its handshake took too long")?;
    let connected = connected.map_err(|error| error.to_string())?;
    let identity = tls.identify(&connected).map_err(|error| {
        let reason = error.to_string();
        connected.close(transport::REFUSED, reason.as_bytes());
        reason
    })?;
    Ok((connected, identity))
}

/// Serves a client that is known, until the connection or the certificate of the client ends, or refuses it and calls
/// `refused` with the reason, because it has too many connections. Returns when the memory of the connection is free.
async fn serve(
    leases: Arc<Leases>,
    handshakes: &Handshakes,
    client: Client,
    (connected, memory): (quinn::Connection, ConnectionMemory),
    (certificate_ended, refused): (impl Future<Output = IdentityError>, impl FnOnce(String)),
) {
    // The account counts while its connections do.
    let account = client.account.clone();
    let place = leases.tenants().connect(&account, || leases.count_of(&client.tenant));
    match place {
        Ok(place) => {
            account.request().await;
            let closing = connected.clone();
            let tenant = client.tenant.clone();
            let mut serving = pin!(connection::serve(leases, client, connected));
            let wide = tokio::select! {
                wide = &mut serving => wide,
                reason = certificate_ended => {
                    tracing::info!(%tenant, %reason, "a client was disconnected");
                    closing.close(transport::CERTIFICATE_ENDED, reason.to_string().as_bytes());
                    serving.await
                }
            };
            drop(closing);
            let _places = (account.end_connection(place), wide.map(|wide| account.wide.end(wide)));
            memory.freed().await;
        }
        Err((status, reason)) => {
            let code = match status {
                Status::QuotaExceeded => transport::OVER_QUOTA,
                _ => transport::OVER_CAPACITY,
            };
            let place = account.refuse_connection().await;
            let address = connected.remote_address().ip();
            connected.close(code, reason.as_bytes());
            drop(connected);
            refused(reason);
            match place {
                Some(_place) => memory.freed().await,
                None => handshakes.ended(address, memory).await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_for_calls_that_block_stays() {
        let runtime = runtime().unwrap();
        let thread =
            || runtime.block_on(runtime.spawn_blocking(|| thread::current().id())).unwrap();
        let first = thread();
        // By default it ends after 10 seconds.
        thread::sleep(Duration::from_secs(12));
        assert_eq!(thread(), first);
    }
}
