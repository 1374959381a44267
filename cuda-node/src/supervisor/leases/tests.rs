//! Leases of a node in this process.

use std::{
    io,
    net::Ipv4Addr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use cuda_core::{
    Error, Result,
    protocol::{Backend, DeviceInfo, NoticeSink, Provider, Status},
};
use cuda_cpu::CpuProvider;
use cuda_lease::{
    LeaseBuilder,
    authority::{Claims, ClientTls, Fingerprint, ServerTls, Tenant, Token, TokenKey},
    internals::transport,
    wire::{Allocate, Exclusivity, Hello, Limits, VERSION, put_frame},
};
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::watch,
};
use tracing::{Dispatch, Subscriber, span};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

use super::{Client, LeasedDevice, Leases, LeftLeases, State};
use crate::{
    gpu::{self, GpuInfo, GpuMonitor, GpuUuid, ProcessMemory},
    leases::{
        LeaseId, LeaseRequest, LeaseState, LeaseTable, Placement, SlotConfig, SlotId, TableConfig,
    },
    process::{self, COMMANDS_DESCRIPTOR, WorkerLauncher, WorkerRecord},
    quotas::Quotas,
    supervisor::{
        DeviceOptions, Node, NodeOptions, OperatorCommand,
        audit::{Audit, Entry as Decision},
        connection,
        jit_cache::JitCache,
        operator::OperatorSocket,
        reload::Reload,
        state_folder::{LeaseRecord, LeftState, StateFolder},
        tenants::Tenants,
        workers::{Gpu, Launcher, LeftProcess, ProcessLauncher, Workers},
    },
    worker::{PROTOCOL, Ready},
};

/// The longest wait for a state. A test that waits longer has found a bug.
const LONG: Duration = Duration::from_secs(60);

/// A node with an audit log.
struct Place {
    node: Node,
    folder: TempDir,
}

impl Place {
    fn new(device: DeviceOptions) -> Self {
        Self::with(NodeOptions::loopback(vec![device]))
    }

    fn with(mut options: NodeOptions) -> Self {
        let folder = TempDir::new().unwrap();
        options.audit = Some(folder.path().join("audit"));
        Self { node: Node::start(options).unwrap(), folder }
    }

    fn request(&self) -> LeaseBuilder {
        LeaseBuilder::new(self.node.address().to_string()).min_vram(1 << 20)
    }

    fn audit(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("audit")).unwrap()
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < LONG, "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A CPU device that opens when a function has returned without an error.
struct Opening<F>(F, CpuProvider);

impl<F: Fn() -> Result<()>> Opening<F> {
    fn after(before: F) -> Self {
        Self(before, CpuProvider::default())
    }
}

// SAFETY: passes everything on, and opens no backend of its own.
unsafe impl<F: Fn() -> Result<()> + Send + Sync + 'static> Provider for Opening<F> {
    fn scheme(&self) -> &'static str {
        self.1.scheme()
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        self.1.devices()
    }

    fn open(&self, ordinal: u32, notices: Arc<dyn NoticeSink>) -> Result<Arc<dyn Backend>> {
        (self.0)()?;
        self.1.open(ordinal, notices)
    }
}

#[test]
fn worker_that_cannot_start_has_not_died() {
    let is_broken = Arc::new(AtomicBool::new(false));
    let is_so = is_broken.clone();
    let provider = Opening::after(move || match is_so.load(Ordering::Relaxed) {
        true => Err(Error::NoDriver { detail: "it was removed".into() }),
        false => Ok(()),
    });
    let place = Place::new(DeviceOptions::in_process(provider));
    is_broken.store(true, Ordering::Relaxed);
    let error = place.request().acquire_blocking().unwrap_err();
    assert_eq!(error.status(), Some(Status::Internal), "{error}");
    assert!(error.to_string().contains("it was removed"), "{error}");
    wait_until("the lease has ended", || place.audit().contains("\"ended\""));
    let audit = place.audit();
    assert!(audit.contains("its worker did not start: "), "{audit}");
    assert!(!audit.contains("died"), "{audit}");
    is_broken.store(false, Ordering::Relaxed);
    drop(place.request().acquire_blocking().unwrap());
}

/// A GPU that is lost after the first look at a process on it.
#[derive(Default)]
struct LostGpu(AtomicBool);

impl GpuMonitor for LostGpu {
    fn devices(&self) -> gpu::Result<Vec<GpuInfo>> {
        Ok(Vec::new())
    }

    fn memory_of(&self, gpu: &GpuUuid, _: u32) -> gpu::Result<ProcessMemory> {
        match self.0.swap(true, Ordering::Relaxed) {
            false => Ok(ProcessMemory::Used(1 << 30)),
            true => Err(lost(gpu)),
        }
    }

    fn used(&self, gpu: &GpuUuid) -> gpu::Result<u64> {
        match self.0.load(Ordering::Relaxed) {
            false => Ok(1 << 30),
            true => Err(lost(gpu)),
        }
    }
}

fn lost(gpu: &GpuUuid) -> gpu::Error {
    gpu::Error::GpuLost { gpu: gpu.clone(), detail: "in a test".into() }
}

/// A device whose workers are processes with a GPU.
fn gpu_device(
    monitor: impl GpuMonitor + 'static,
    launcher: WorkerLauncher,
    jit_cache: Option<JitCache>,
) -> LeasedDevice {
    let gpu = Gpu { monitor: Arc::new(monitor), uuid: GpuUuid::new("GPU-0") };
    let launcher = ProcessLauncher::new(launcher, Some(gpu), jit_cache);
    let mut device = device(CpuProvider::default());
    device.workers = Workers::new(Launcher::Process(Box::new(launcher)), 0);
    device
}

/// Requests a lease of a GPU whose workers fail to start, and whose memory does not come back. The next lease would get
/// memory that the failed worker still has.
async fn failed_start_fences_the_device(launcher: WorkerLauncher, jit_cache: Option<JitCache>) {
    let device = gpu_device(LostGpu::default(), launcher, jit_cache);
    let leases = Leases::new(table(), key(), vec![device], limits(), Audit::default(), None);
    let refused = leases.allocate(&client("alice"), request(), false).await.unwrap_err();
    assert_eq!(refused.0, Status::Internal, "{}", refused.1);
    tokio::time::timeout(LONG, ended(&leases)).await.expect("the lease does not end");
    assert!(leases.change(|state, _| is_fenced(state)), "the device is in service");
}

fn is_fenced(state: &State) -> bool {
    state.table.slots().any(|slot| slot.is_fenced)
}

/// The memory of such a worker, which is killed, is unknown.
#[tokio::test]
async fn worker_of_an_earlier_node_that_cannot_be_taken_over_fences_its_device() {
    let sleeping = WorkerLauncher::new("/bin/sleep").argument("1000");
    let device = gpu_device(LostGpu(AtomicBool::new(true)), sleeping.clone(), None);
    let leases = Leases::new(table(), key(), vec![device], limits(), Audit::default(), None);
    let left = LeftState { leases: vec![left_record(|_| {})], ..LeftState::default() };
    leases.restore(left_with(left, left_process(&sleeping))).await;
    assert!(leases.change(|state, _| is_fenced(state)), "the device is in service");
    tokio::time::timeout(LONG, ended(&leases)).await.expect("the lease goes on");
}

/// Each has memory of the device until it has ended: one that closes its listener, and one that is not found.
#[tokio::test]
async fn worker_of_an_earlier_node_that_cannot_be_used_has_not_ended() {
    let sleeping = WorkerLauncher::new("/bin/sleep").argument("1000");
    let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
    for is_found in [true, false] {
        for has_begun_to_end in [true, false] {
            let (process, _) = left_process(&sleeping).unwrap();
            let pid = process.pid();
            let worker = match is_found {
                true => Ok((process, Err(process::Error::Unreachable { pid, source: refused() }))),
                false => Err(process::Error::Unidentified { pid, source: refused() }),
            };
            let records = vec![left_record(|_| {})];
            let left = match has_begun_to_end {
                true => LeftState { ended: records, ..LeftState::default() },
                false => LeftState { leases: records, ..LeftState::default() },
            };
            // The memory of the worker does not come back.
            let device = gpu_device(LostGpu::default(), sleeping.clone(), None);
            let leases =
                Leases::new(table(), key(), vec![device], limits(), Audit::default(), None);
            leases.restore(left_with(left, worker)).await;
            tokio::time::timeout(LONG, ended(&leases)).await.expect("the lease goes on");
            assert!(leases.change(|state, _| is_fenced(state)), "the device is in service");
        }
    }
}

#[test]
fn socket_of_an_earlier_worker_that_has_ended_is_removed_unless_a_later_one_has_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("0");
    let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let record = |pid: u32| {
        left_record(|record| {
            record["worker"]["pid"] = pid.into();
            record["worker"]["socket"] = path.to_str().unwrap().into();
        })
    };
    let error = |pid| match pid {
        1 => process::Error::Gone { pid, source: io::ErrorKind::NotFound.into() },
        _ => process::Error::Unidentified { pid, source: io::ErrorKind::Other.into() },
    };
    for (later, is_kept) in [(2, true), (1, false)] {
        let (leases, ended) = (vec![record(later)], vec![record(1)]);
        let left = LeftState { leases, ended, ..LeftState::default() };
        drop(LeftLeases::new(left, |worker| Err(error(worker.pid))));
        assert_eq!(path.exists(), is_kept);
    }
}

fn left_process(launcher: &WorkerLauncher) -> process::Result<LeftProcess> {
    launcher.launch().map(|(process, ends)| (process, Ok(ends)))
}

/// The record of a lease of an earlier node, which `change` changes.
fn left_record(change: impl FnOnce(&mut serde_json::Value)) -> LeaseRecord {
    let mut earlier = table();
    let request = LeaseRequest::new(client("alice").tenant, [1; 16], 1 << 20);
    let Ok(Placement::Leased(lease)) = earlier.request(Duration::ZERO, request) else {
        panic!("the lease has no place")
    };
    while earlier.poll(Duration::ZERO).is_some() {}
    earlier.worker_ready(Duration::ZERO, lease);
    let process = WorkerRecord {
        pid: 1,
        started: 0,
        socket: "".into(),
        uid: None,
        cgroup: Vec::new(),
        memory_limit: None,
    };
    let kept = earlier.kept(lease).unwrap();
    let record = LeaseRecord::new(kept, process, (true, true), None, None);
    let mut record = serde_json::to_value(&record).unwrap();
    change(&mut record);
    serde_json::from_value(record).unwrap()
}

/// The leases of an earlier node: one, with this worker.
fn left_with(left: LeftState, worker: process::Result<LeftProcess>) -> LeftLeases {
    let worker = Mutex::new(Some(worker));
    LeftLeases::new(left, |_| worker.lock().take().unwrap())
}

/// Its worker is killed at once, in the call that restores it.
#[tokio::test]
async fn lease_that_expired_while_no_node_ran_ends() {
    let mut device = device(CpuProvider::default());
    let sleeping = WorkerLauncher::new("/bin/sleep").argument("1000");
    let launcher = ProcessLauncher::new(sleeping.clone(), None, None);
    device.workers = Workers::new(Launcher::Process(Box::new(launcher)), 0);
    let config = TableConfig { grace: Duration::ZERO, ..TableConfig::default() };
    let table = table_with(config);
    let leases = Leases::new(table, key(), vec![device], limits(), Audit::default(), None);
    let expired = |record: &mut serde_json::Value| {
        record["lease"]["remaining"] = serde_json::to_value(Duration::ZERO).unwrap();
    };
    let left = LeftState { leases: vec![left_record(expired)], ..LeftState::default() };
    leases.restore(left_with(left, left_process(&sleeping))).await;
    tokio::time::timeout(LONG, ended(&leases)).await.expect("the lease does not end");
    assert!(!leases.change(|state, _| is_fenced(state)), "the device is out of service");
}

/// Otherwise its messages mean something else, or nothing.
#[tokio::test]
async fn lease_whose_worker_has_another_version_ends() {
    for (version, goes_on) in [(PROTOCOL, true), (PROTOCOL + 1, false), (0, false)] {
        let device = device(CpuProvider::default());
        let leases = Leases::new(table(), key(), vec![device], limits(), Audit::default(), None);
        let of_version = |record: &mut serde_json::Value| record["protocol"] = version.into();
        let left = LeftState { leases: vec![left_record(of_version)], ..LeftState::default() };
        let sleeping = WorkerLauncher::new("/bin/sleep").argument("1000");
        leases.restore(left_with(left, left_process(&sleeping))).await;
        if goes_on {
            let states = leases
                .change(|state, _| state.table.leases().map(|of| of.state).collect::<Vec<_>>());
            assert_eq!(states, [LeaseState::Active]);
        } else {
            tokio::time::timeout(LONG, ended(&leases)).await.expect("the lease does not end");
        }
    }
}

/// The call ends the leases that have expired, and starts tasks for that.
#[test]
fn quotas_change_on_a_thread_without_a_runtime() {
    let device = DeviceOptions::in_process(CpuProvider::default());
    let mut options = NodeOptions::loopback(vec![device]);
    // The end of the lease kills its worker.
    options.table.grace = Duration::ZERO;
    let place = Place::with(options);
    let lease = place.request().lease_secs(1).without_renewal().acquire_blocking().unwrap();
    wait_until("the lease has ended", || {
        // Again and again, so that this thread is the first to see the end.
        (0..1000).for_each(|_| place.node.set_quotas(Quotas::default()));
        place.audit().contains("\"ended\"")
    });
    drop(lease);
}

/// The client has requested no number of seconds, so it cannot request fewer.
#[test]
fn lease_of_the_default_time_is_renewed_under_a_lower_limit() {
    let mut options =
        NodeOptions::loopback(vec![DeviceOptions::in_process(CpuProvider::default())]);
    options.table.default_lease_secs = 8;
    let place = Place::with(options);
    let _lease = place.request().lease_secs(0).acquire_blocking().unwrap();
    place.node.set_quotas(Quotas::parse("[defaults]\nmax_lease_secs = 4\n").unwrap());
    wait_until("the lease is renewed", || {
        let audit = place.audit();
        assert!(!audit.contains("\"ended\""), "{audit}");
        audit.contains("\"renewed\"")
    });
}

/// Waits until no lease is left.
async fn ended(leases: &Arc<Leases>) {
    while leases.count() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn worker_that_ends_while_it_starts_fences_its_device() {
    failed_start_fences_the_device(WorkerLauncher::new("/bin/false"), None).await;
}

#[tokio::test]
async fn worker_without_the_kernels_of_its_tenant_fences_its_device() {
    let folder = TempDir::new().unwrap();
    let kernels = JitCache::open(Some(folder.path())).unwrap();
    std::fs::remove_dir(folder.path().join("tenants")).unwrap();
    std::fs::write(folder.path().join("tenants"), "").unwrap();
    let launcher = ready_worker(folder.path());
    failed_start_fences_the_device(launcher, Some(kernels)).await;
}

/// A launcher of workers that say that they are ready, and do nothing.
fn ready_worker(folder: &Path) -> WorkerLauncher {
    let (device, sandbox) = (DeviceInfo::new("cuda:0", "a GPU"), "[]".into());
    let ready = Ready { device, features: 0, sandbox };
    let mut out = Vec::new();
    put_frame(&mut out, Ready::OPCODE, 0, 0, |out| ready.encode(out));
    let file = folder.join("ready");
    std::fs::write(&file, &out).unwrap();
    let script = format!("cat \"$0\" >&{COMMANDS_DESCRIPTOR}; exec sleep 1000");
    WorkerLauncher::new("/bin/sh").argument("-c").argument(script).argument(file)
}

/// A CPU device that opens when the sender is dropped.
fn slow_device(opens: mpsc::Receiver<()>) -> LeasedDevice {
    let opens = Mutex::new(opens);
    device(Opening::after(move || {
        _ = opens.lock().recv();
        Ok(())
    }))
}

/// Otherwise a tenant that ends its leases while their workers start has more workers, with their memory, than leases.
#[tokio::test]
async fn lease_that_ends_while_its_worker_starts_keeps_its_place_until_the_worker_has_ended() {
    let (slow, is_slow) = mpsc::channel();
    let device = slow_device(is_slow);
    let leases = Leases::new(table(), key(), vec![device], limits(), Audit::default(), None);
    let lease = leases.change(|state, now| {
        let request = LeaseRequest::new(client("alice").tenant, [1; 16], 1 << 20);
        let Ok(Placement::Leased(lease)) = state.table.request(now, request) else { panic!() };
        lease
    });
    leases.change(|state, now| state.table.free(now, lease)).unwrap();
    let mut ended = std::pin::pin!(ended(&leases));
    let early = tokio::time::timeout(Duration::from_millis(100), &mut ended).await;
    assert!(early.is_err(), "the place is free, and the worker starts");
    drop(slow);
    tokio::time::timeout(LONG, ended).await.expect("the lease does not end");
}

/// A folder, and the state of a node in its folder `state`.
fn state_folder() -> (TempDir, StateFolder) {
    let state = TempDir::new().unwrap();
    let (folder, _) = StateFolder::open(&state.path().join("state")).unwrap();
    (state, folder)
}

/// A lease whose worker starts, and a token of it.
fn starting(leases: &Arc<Leases>, client: &Client) -> (LeaseId, Token) {
    let lease = leases.change(|state, now| {
        let request = LeaseRequest::new(client.tenant.clone(), [1; 16], 1 << 20);
        let Ok(Placement::Leased(lease)) = state.table.request(now, request) else { panic!() };
        lease
    });
    let claims = Claims { lease: lease.0, generation: 1, serial: 1, client: client.key };
    (lease, key().issue(&claims))
}

/// A client whose connection is lost repeats the request while the worker ends.
#[tokio::test]
async fn repeated_end_of_a_lease_is_logged_once() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("audit");
    let audit = Audit::append_to(&path).unwrap();
    let (slow, is_slow) = mpsc::channel();
    let device = slow_device(is_slow);
    let leases = Leases::new(table(), key(), vec![device], limits(), audit, None);
    let alice = client("alice");
    let (lease, token) = starting(&leases, &alice);
    for _ in 0..2 {
        leases.free(&alice, lease.0, token.as_bytes()).await.unwrap();
    }
    assert_eq!(leases.count(), 1, "the worker has ended");
    drop(slow);
    leases.audit.written().await;
    let audit = std::fs::read_to_string(&path).unwrap();
    assert_eq!(audit.matches("\"freed\"").count(), 1, "{audit}");
}

/// A lease acts for its own tenant only, whatever the token states.
#[test]
fn token_that_the_node_signed_for_a_lease_of_another_tenant_is_refused() {
    let (alice, bob) = (client("alice"), client("bob"));
    let mut table = table();
    let request = LeaseRequest::new(alice.tenant.clone(), [1; 16], 1 << 20);
    let Ok(Placement::Leased(lease)) = table.request(Duration::ZERO, request) else { panic!() };
    let (key, leases) = (key(), leases(table, None));
    let token = |lease: LeaseId, client: &Client| {
        key.issue(&Claims { lease: lease.0, generation: 1, serial: 1, client: client.key })
    };
    let verify = |client: &Client, token: &Token| leases.verify(client, lease.0, token.as_bytes());
    assert_eq!(verify(&alice, &token(lease, &alice)), Ok(1));
    for (client, token) in [
        (&bob, token(lease, &bob)),
        (&bob, token(lease, &alice)),
        (&alice, token(LeaseId(lease.0 + 1), &alice)),
        (&alice, token(lease, &bob)),
    ] {
        assert_eq!(verify(client, &token).unwrap_err().0, Status::Unauthorized);
    }
    let renewal = |client: &Client, token: &Token| {
        leases.verify_for_renewal(client, lease.0, token.as_bytes())
    };
    // A renewal takes the token of another key, and only of the same tenant.
    assert_eq!(renewal(&alice, &token(lease, &bob)), Ok(1));
    assert_eq!(renewal(&bob, &token(lease, &bob)).unwrap_err().0, Status::Unauthorized);
    let forged = TokenKey::from_bytes([8; 32]);
    let claims = Claims { lease: lease.0, generation: 1, serial: 1, client: alice.key };
    let refused = renewal(&alice, &forged.issue(&claims)).unwrap_err();
    assert_eq!(refused.0, Status::Unauthorized);
}

/// A tenant with many changes that wait for a slow disk delays another one by no more than one of them.
#[tokio::test]
async fn records_of_a_tenant_wait_for_each_other() {
    let (_state, folder) = state_folder();
    let leases = leases(table(), Some(folder));
    // The disk is busy meanwhile.
    let busy = leases.folder.clone().unwrap().lock_owned().await;
    let (sender, mut written) = tokio::sync::mpsc::unbounded_channel();
    let (alice, bob) = (client("alice"), client("bob"));
    for client in std::iter::repeat_n(&alice, 20).chain([&bob]) {
        let (leases, client, sender) = (leases.clone(), client.clone(), sender.clone());
        tokio::spawn(async move {
            leases.write_lease(&client, LeaseId(1)).await.unwrap();
            _ = sender.send(client.tenant);
        });
        tokio::task::yield_now().await;
    }
    // The writer after both tenants. It waits with the lock, so that nothing behind them is written.
    let folder = leases.folder.clone().unwrap();
    let later = tokio::spawn(async move { folder.lock_owned().await });
    tokio::task::yield_now().await;
    drop((busy, sender));
    let later = later.await.unwrap();
    let mut before = 0;
    while written.recv().await.unwrap() != bob.tenant {
        before += 1;
    }
    assert!(before <= 1, "the record of the other tenant is written behind {before}");
    drop(later);
    while written.recv().await.is_some() {
        before += 1;
    }
    assert_eq!(before, 20);
}

/// A tenant that ends a lease again and again while its worker ends delays another one by no more than one of the records.
#[tokio::test]
async fn ends_of_a_tenant_wait_for_each_other() {
    let (_state, folder) = state_folder();
    let (slow, is_slow) = mpsc::channel();
    let device = slow_device(is_slow);
    let leases =
        Leases::new(table(), key(), vec![device], limits(), Audit::default(), Some(folder));
    let (alice, bob) = (client("alice"), client("bob"));
    let (lease, token) = starting(&leases, &alice);
    leases.change(|state, now| state.table.free(now, lease)).unwrap();
    // The disk is busy meanwhile.
    let busy = leases.folder.clone().unwrap().lock_owned().await;
    let (sender, mut done) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..20 {
        let (leases, alice, sender) = (leases.clone(), alice.clone(), sender.clone());
        let token = token.clone();
        tokio::spawn(async move {
            leases.free(&alice, lease.0, token.as_bytes()).await.unwrap();
            _ = sender.send(alice.tenant);
        });
        tokio::task::yield_now().await;
    }
    let (own, sender_of_bob, of_bob) = (leases.clone(), sender.clone(), bob.clone());
    tokio::spawn(async move {
        own.write_lease(&of_bob, LeaseId(1000)).await.unwrap();
        _ = sender_of_bob.send(of_bob.tenant);
    });
    tokio::task::yield_now().await;
    // The writer after both tenants. It waits with the lock, so that nothing behind them is written.
    let folder = leases.folder.clone().unwrap();
    let later = tokio::spawn(async move { folder.lock_owned().await });
    tokio::task::yield_now().await;
    drop((busy, sender));
    let later = later.await.unwrap();
    let mut before = 0;
    while done.recv().await.unwrap() != bob.tenant {
        before += 1;
    }
    assert!(before <= 1, "the record of another tenant is written behind {before} ends");
    drop((later, slow));
}

/// The client closes its connection while the end waits for the disk. The lease would go on after a restart of the node.
#[tokio::test]
async fn end_of_a_lease_whose_client_has_gone_is_written() {
    let (state, folder) = state_folder();
    // The worker does not end.
    let (slow, is_slow) = mpsc::channel();
    let device = slow_device(is_slow);
    let leases =
        Leases::new(table(), key(), vec![device], limits(), Audit::default(), Some(folder));
    let busy = leases.folder.clone().unwrap().lock_owned().await;
    let alice = client("alice");
    let (lease, token) = starting(&leases, &alice);
    std::fs::write(state.path().join(format!("state/leases/{lease}")), "").unwrap();
    let free = leases.free(&alice, lease.0, token.as_bytes());
    let freed = tokio::time::timeout(Duration::ZERO, free).await;
    assert!(freed.is_err(), "the end does not wait for the disk");
    drop(busy);
    let started = Instant::now();
    while names(&state.path().join("state/ended")).is_empty() {
        assert!(started.elapsed() < LONG, "the end is not written");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(slow);
}

/// The memory of a lease is free when its worker has ended, also if the disk is slow. Otherwise the device is fenced.
#[tokio::test]
async fn slow_disk_does_not_delay_the_end_of_a_lease() {
    let (_state, folder) = state_folder();
    let leases = leases(table(), Some(folder));
    let _busy = leases.folder.clone().unwrap().lock_owned().await;
    leases.change(|state, now| {
        let request = LeaseRequest::new(client("alice").tenant, [1; 16], 1 << 20);
        let Ok(Placement::Leased(lease)) = state.table.request(now, request) else { panic!() };
        state.table.free(now, lease).unwrap();
    });
    let started = Instant::now();
    while leases.count() > 0 {
        assert!(started.elapsed() < LONG, "the lease does not end");
        tokio::time::sleep(Duration::from_millis(5)).await;
        leases.change(|_, _| ());
    }
    let is_fenced = |state: &mut State, _| state.table.slots().any(|slot| slot.is_fenced);
    assert!(!leases.change(is_fenced), "the device is fenced");
}

/// The connection of a client ends while its renewal waits for the disk. The node may not have another token for it.
#[tokio::test]
async fn renewal_whose_client_is_gone_costs_no_token() {
    let (_state, folder) = state_folder();
    let config = TableConfig { generation_overlap: Duration::ZERO, ..TableConfig::default() };
    let leases = leases(table_with(config), Some(folder));
    let _busy = leases.folder.clone().unwrap().lock_owned().await;
    let alice = client("alice");
    let lease = active(&leases, &alice);
    let claims = Claims { lease: lease.0, generation: 1, serial: 1, client: alice.key };
    let token = key().issue(&claims);
    let renewal = leases.renew(&alice, lease.0, token.as_bytes(), 60);
    let renewed = tokio::time::timeout(Duration::ZERO, renewal).await;
    assert!(renewed.is_err(), "the renewal does not wait for the disk");
    let authorized = leases.change(|state, now| state.table.authorize(now, lease, 1));
    authorized.unwrap();
}

/// The client closes its connection while its renewal waits for the disk, then repeats it. The lease has moved to another
/// key, which the audit log has to state.
#[tokio::test]
async fn new_key_of_a_renewal_whose_client_has_gone_is_in_the_audit_log() {
    let (state, folder) = state_folder();
    let path = state.path().join("audit");
    let audit = Audit::append_to(&path).unwrap();
    let leases = Leases::new(table(), key(), Vec::new(), limits(), audit, Some(folder));
    let busy = leases.folder.clone().unwrap().lock_owned().await;
    let alice = client("alice");
    let lease = active(&leases, &alice);
    leases.change(|state, _| state.entries.get_mut(&lease).unwrap().owner = Some(alice.key));
    let claims = Claims { lease: lease.0, generation: 1, serial: 1, client: alice.key };
    let token = key().issue(&claims);
    let other = Client { key: client("other").key, ..alice };
    let renewal = leases.renew(&other, lease.0, token.as_bytes(), 60);
    let renewed = tokio::time::timeout(Duration::ZERO, renewal).await;
    assert!(renewed.is_err(), "the renewal does not wait for the disk");
    drop(busy);
    leases.renew(&other, lease.0, token.as_bytes(), 60).await.unwrap();
    leases.audit.written().await;
    let audit = std::fs::read_to_string(&path).unwrap();
    assert!(audit.contains(&format!("moved to the key {}", other.key)), "{audit}");
}

/// A client that repeats the request of another key of its tenant gets the lease.
#[tokio::test]
async fn new_key_of_a_repeated_request_is_in_the_audit_log() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("audit");
    let audit = Audit::append_to(&path).unwrap();
    let device = device(CpuProvider::default());
    let leases = Leases::new(table(), key(), vec![device], limits(), audit, None);
    let alice = client("alice");
    let other = Client { key: client("other").key, ..alice.clone() };
    for client in [&alice, &alice, &other] {
        leases.allocate(client, request(), true).await.unwrap();
    }
    leases.audit.written().await;
    let audit = std::fs::read_to_string(&path).unwrap();
    assert_eq!(audit.matches("moved to the key").count(), 1, "{audit}");
    assert!(audit.contains(&format!("moved to the key {}", other.key)), "{audit}");
}

/// The client of a detached lease closes its connection while the grant waits for the disk. The lease keeps its place and
/// its memory until it expires.
#[tokio::test]
async fn lease_whose_client_goes_before_the_answer_is_in_the_audit_log_with_its_tenant() {
    let (state, folder) = state_folder();
    let path = state.path().join("audit");
    let audit = Audit::append_to(&path).unwrap();
    let device = device(CpuProvider::default());
    let leases = Leases::new(table(), key(), vec![device], limits(), audit, Some(folder));
    let busy = leases.folder.clone().unwrap().lock_owned().await;
    let (alice, request) = (client("alice"), Allocate { detached: true, ..request() });
    let mut allocate = Box::pin(leases.allocate(&alice, request, false));
    let is_active = |state: &mut State, _| state.entries.values().any(|entry| entry.is_confirmed);
    let started = Instant::now();
    while !leases.change(is_active) {
        assert!(started.elapsed() < LONG, "the lease does not start");
        let early = tokio::time::timeout(Duration::from_millis(5), &mut allocate).await;
        assert!(early.is_err(), "the grant does not wait for the disk");
    }
    drop((allocate, busy));
    // The connection of the client.
    leases.disconnected(alice.connection);
    let goes_on = leases.change(|state, _| {
        state.table.leases().all(|of| of.state == LeaseState::Active && of.is_connected)
    });
    assert!(goes_on && leases.count() == 1);
    let events = async || {
        leases.audit.written().await;
        let audit = std::fs::read_to_string(&path).unwrap();
        assert!(audit.lines().all(|line| line.contains("\"tenant\":\"alice\"")), "{audit}");
        let events = audit.lines().map(|line| line.split('"').nth(5).unwrap().to_owned());
        events.collect::<Vec<_>>()
    };
    assert_eq!(events().await, ["granted"]);
    leases.change(|state, now| _ = state.table.free(now, LeaseId(2)));
    tokio::time::timeout(LONG, ended(&leases)).await.expect("the lease does not end");
    assert_eq!(events().await, ["granted", "ending", "ended"]);
}

/// The audit log fails while a request waits: it is not granted then.
#[tokio::test]
async fn request_that_has_waited_is_not_granted_without_the_audit_log() {
    let folder = TempDir::new().unwrap();
    let fifo = folder.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let audit = Audit::append_to(&fifo).unwrap();
    let leases = Leases::new(table(), key(), Vec::new(), limits(), audit, None);
    let alice = client("alice");
    let all: Vec<_> = (0..4).map(|_| active(&leases, &alice)).collect();
    let waits = leases.clone();
    let granted = tokio::spawn(async move { waits.allocate(&alice, request(), false).await });
    while leases.change(|state, _| state.waiting.is_empty()) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // The FIFO has no reader.
    let reason = Some("x".repeat(2 << 20));
    leases.audit.write(&Decision { event: "ending", reason, ..Decision::default() });
    leases.change(|state, now| state.table.free(now, all[0])).unwrap();
    let granted = tokio::time::timeout(LONG, granted).await.expect("the lease is granted");
    assert_eq!(granted.unwrap().unwrap_err().0, Status::CapacityExceeded);
    // It has ended.
    let started = Instant::now();
    while leases.count() > 3 {
        assert!(started.elapsed() < LONG, "the lease goes on");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The operator ends hostile leases also while the disk hangs, and while other programs keep the socket.
#[tokio::test]
async fn commands_of_the_operator_do_not_wait_for_each_other() {
    let (state, folder) = state_folder();
    let leases = leases(table(), Some(folder));
    let _busy = leases.folder.clone().unwrap().lock_owned().await;
    let path = state.path().join("operator");
    let socket = OperatorSocket::open(&path).unwrap();
    tokio::spawn(socket.serve(leases.clone(), Arc::new(reload(&leases))));
    let _silent = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let alice = client("alice");
    let mut commands = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let LeaseId(lease) = active(&leases, &alice);
        let command = OperatorCommand::Revoke { lease, reason: "hostile".into(), notice_secs: 0 };
        let path = path.clone();
        // Waits for the disk.
        commands.spawn(async move {
            let mut stream = tokio::net::UnixStream::connect(&path).await.unwrap();
            let line = serde_json::to_string(&command).unwrap() + "\n";
            stream.write_all(line.as_bytes()).await.unwrap();
            stream.read_u8().await
        });
    }
    let started = Instant::now();
    let is_active =
        |state: &mut State, _| state.table.leases().any(|lease| lease.state == LeaseState::Active);
    while leases.change(is_active) {
        assert!(started.elapsed() < LONG, "a lease goes on");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// If the node is killed, the next one finds the record and writes the end of the lease.
#[tokio::test]
async fn record_stays_until_the_audit_log_has_the_end() {
    let (state, folder) = state_folder();
    let fifo = state.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let audit = Audit::append_to(&fifo).unwrap();
    let leases = Leases::new(table(), key(), Vec::new(), limits(), audit, Some(folder));
    let record = state.path().join("state/leases/1");
    std::fs::write(&record, "").unwrap();
    leases.audit.write(&Decision { event: "ended", lease: Some(1), ..Decision::default() });
    let mut forget = std::pin::pin!(leases.forget(LeaseId(1)));
    let early = tokio::time::timeout(Duration::from_millis(100), &mut forget).await;
    assert!(early.is_err() && record.exists(), "the record is gone before the line is written");
    let _reader = std::fs::File::open(&fifo).unwrap();
    tokio::time::timeout(LONG, forget).await.expect("the record stays");
    assert!(!record.exists());
}

/// Stops each request for a lease where its span begins, until the test goes on.
struct Stop {
    stopped: mpsc::Sender<()>,
    goes_on: Mutex<mpsc::Receiver<()>>,
}

impl<S: Subscriber> Layer<S> for Stop {
    fn on_new_span(&self, attributes: &span::Attributes<'_>, _: &span::Id, _: Context<'_, S>) {
        if attributes.metadata().name() == "lease" {
            _ = self.stopped.send(());
            _ = self.goes_on.lock().recv();
        }
    }
}

/// Otherwise the lease belongs to a connection that has ended, and lasts until it expires.
#[test]
fn connection_ends_after_the_requests_that_run_meanwhile() {
    let ((stopped, is_stopped), (go_on, goes_on)) = (mpsc::channel(), mpsc::channel());
    let stop = Stop { stopped, goes_on: Mutex::new(goes_on) };
    let threads = Dispatch::new(tracing_subscriber::registry().with(stop));
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(4).enable_all().on_thread_start(move || {
        std::mem::forget(tracing::dispatcher::set_default(&threads));
    });
    let (slow, is_slow) = mpsc::channel();
    runtime.build().unwrap().block_on(async {
        let device = slow_device(is_slow);
        let leases = Leases::new(table(), key(), vec![device], limits(), Audit::default(), None);
        let (connection, accepted, _endpoints) = connected().await;
        let mut serving =
            tokio::spawn(connection::serve(leases.clone(), client("alice"), accepted));
        let (mut send, _receive) = connection.open_bi().await.unwrap();
        let hello = Hello { oldest: VERSION, newest: VERSION, features: 0, program: "".into() };
        let mut out = Vec::new();
        put_frame(&mut out, Hello::OPCODE, 0, 1, |out| hello.encode(out));
        put_frame(&mut out, Allocate::OPCODE, 0, 2, |out| request().encode(out));
        send.write_all(&out).await.unwrap();
        is_stopped.recv_timeout(LONG).expect("the request does not arrive");
        connection.close(0u8.into(), b"");
        let early = tokio::time::timeout(Duration::from_millis(200), &mut serving).await;
        drop(go_on);
        assert!(early.is_err(), "the connection has ended while its request runs");
        tokio::time::timeout(LONG, serving).await.expect("the connection does not end").unwrap();
        leases.change(|state, now| {
            let lease = state.table.leases().next().expect("the lease was not granted").id;
            assert!(state.entries.values().all(|entry| entry.connections.is_empty()));
            assert!(!state.table.disconnected(now, lease), "the lease has a connection");
        });
    });
    drop(slow);
}

/// A connection of a client, and that of the node.
async fn connected() -> (quinn::Connection, quinn::Connection, [quinn::Endpoint; 2]) {
    let listen = (Ipv4Addr::LOCALHOST, 0).into();
    let (config, _) = ServerTls::insecure().config_for(listen).unwrap();
    let node =
        transport::endpoint(listen, Some((config, transport::ResetKey::derive(&[0; 32])))).unwrap();
    let (address, tls) = (node.local_addr().unwrap(), ClientTls::loopback());
    let endpoint = transport::endpoint(listen, None).unwrap();
    let (config, name) = (tls.config_for(address), tls.server_name_for("127.0.0.1"));
    let connecting = endpoint.connect_with(config.unwrap(), address, &name.unwrap()).unwrap();
    let accepted = async { node.accept().await.unwrap().await };
    let (connection, accepted) = tokio::join!(connecting, accepted);
    (connection.unwrap(), accepted.unwrap(), [node, endpoint])
}

/// Counts the lines of the log.
struct Lines(Arc<AtomicUsize>);

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        if event.metadata().target().starts_with("cuda_node") {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Otherwise a client fills the log: it connects again and again, with many streams that break the protocol.
#[tokio::test]
async fn client_with_many_broken_streams_is_one_line_of_the_log() {
    let lines = Arc::<AtomicUsize>::default();
    let log = Dispatch::new(tracing_subscriber::registry().with(Lines(lines.clone())));
    let _log = tracing::dispatcher::set_default(&log);
    let leases = leases(table(), None);
    let (connection, accepted, _endpoints) = connected().await;
    for _ in 0..8 {
        let (mut send, _receive) = connection.open_bi().await.unwrap();
        send.write_all(&[0xff; 64]).await.unwrap();
    }
    while accepted.stats().frame_rx.stream < 8 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    connection::serve(leases, client("alice"), accepted).await;
    assert_eq!(lines.load(Ordering::Relaxed), 1);
}

/// Otherwise a lease that was preempted goes on after a restart of the node.
#[tokio::test]
async fn end_that_a_preemption_announces_is_written() {
    let (state, folder) = state_folder();
    let mut table = table_with(TableConfig { preempt: true, ..TableConfig::default() });
    table.set_quotas(Quotas::parse("[defaults]\nmax_priority = 9\n").unwrap());
    let leases = leases(table, Some(folder));
    let all: Vec<_> = (0..4).map(|_| active(&leases, &client("alice"))).collect();
    for LeaseId(lease) in &all {
        std::fs::write(state.path().join(format!("state/leases/{lease}")), "").unwrap();
    }
    leases.change(|state, now| {
        let mut request = LeaseRequest::new(client("bob").tenant, [1; 16], 1 << 20);
        (request.priority, request.wait) = (9, LONG);
        state.table.request(now, request).unwrap();
    });
    let mut ended = Vec::new();
    let started = Instant::now();
    while ended.is_empty() {
        assert!(started.elapsed() < LONG, "the end is not written");
        tokio::time::sleep(Duration::from_millis(5)).await;
        ended = names(&state.path().join("state/ended"));
    }
    assert_eq!((ended.len(), names(&state.path().join("state/leases")).len()), (1, 3));
    let is_active =
        |state: &mut State, _| state.table.leases().all(|of| of.state == LeaseState::Active);
    assert!(leases.change(is_active), "the notice period is over");
}

/// A hostile worker may report any numbers.
#[tokio::test]
async fn largest_backlogs_of_a_tenant_have_a_sum() {
    let leases = leases(table(), None);
    let alice = client("alice");
    for _ in 0..2 {
        let lease = active(&leases, &alice);
        leases.change(|state, _| state.entries[&lease].meter.set_backlog(u64::MAX, u64::MAX));
    }
    let tenants = leases.snapshot().tenants;
    assert_eq!((tenants[0].backlog, tenants[0].backlog_bytes), (u64::MAX, u64::MAX));
}

/// The time after which memory of a [`SlowGpu`] is free.
const SLOW: Duration = Duration::from_secs(1);

/// A GPU whose memory is free some time after this.
struct SlowGpu(Instant);

impl GpuMonitor for SlowGpu {
    fn devices(&self) -> gpu::Result<Vec<GpuInfo>> {
        Ok(Vec::new())
    }

    fn memory_of(&self, _: &GpuUuid, _: u32) -> gpu::Result<ProcessMemory> {
        let is_used = self.0.elapsed() < SLOW;
        Ok(if is_used { ProcessMemory::Used(1 << 30) } else { ProcessMemory::NotListed })
    }

    fn used(&self, _: &GpuUuid) -> gpu::Result<u64> {
        Ok(0)
    }
}

/// The node accepts no connection until it has restored all leases, and the end of one may take minutes. Otherwise the
/// leases of clients that could not connect meanwhile end.
#[tokio::test]
async fn time_of_a_client_to_reconnect_begins_when_the_node_has_restored_all_leases() {
    let sleeping = WorkerLauncher::new("/bin/sleep").argument("1000");
    let begun = Instant::now();
    let device = gpu_device(SlowGpu(begun), sleeping.clone(), None);
    let config = TableConfig::default();
    let (least, table) = (begun + SLOW + config.reconnect_window, table_with(config));
    let leases = Leases::new(table, key(), vec![device], limits(), Audit::default(), None);
    let attached = left_record(|record| record["is_detached"] = false.into());
    let without_place = left_record(|record| {
        record["lease"]["id"] = (attached.lease.id + 1).into();
        record["lease"]["slot"] = "cuda:1".into();
    });
    let left = LeftState { leases: vec![attached, without_place], ..LeftState::default() };
    leases.restore(LeftLeases::new(left, |_| left_process(&sleeping))).await;
    let (states, deadline) =
        leases.with(|state, _| state.table.leases().map(|of| of.state).collect::<Vec<_>>());
    assert_eq!(states, [LeaseState::Active]);
    let deadline = leases.started + deadline.unwrap();
    assert!(deadline >= least, "{:?} too early", least - deadline);
}

/// The answer says what has happened, although the disk does not have it.
#[tokio::test]
async fn end_that_cannot_be_written_is_reported() {
    let (state, folder) = state_folder();
    let path = state.path().join("audit");
    let audit = Audit::append_to(&path).unwrap();
    let leases = Leases::new(table(), key(), Vec::new(), limits(), audit, Some(folder));
    let records = state.path().join("state/leases");
    std::fs::remove_dir(&records).unwrap();
    std::fs::write(&records, "").unwrap();
    let alice = client("alice");
    let [freed, revoked] = [(); 2].map(|()| active(&leases, &alice));
    let claims = Claims { lease: freed.0, generation: 1, serial: 1, client: alice.key };
    let token = key().issue(&claims);
    let refused = leases.free(&alice, freed.0, token.as_bytes()).await.unwrap_err();
    assert_eq!(refused.0, Status::Internal);
    let expected = format!("lease {freed} has ended, but the node failed");
    assert!(refused.1.starts_with(&expected), "{}", refused.1);
    let refused = leases.revoke(revoked.0, "maintenance".into(), LONG).await.unwrap_err();
    assert_eq!(refused.0, Status::Internal);
    let expected = format!("lease {revoked} was revoked, but the node failed");
    assert!(refused.1.starts_with(&expected), "{}", refused.1);
    leases.audit.written().await;
    let audit = std::fs::read_to_string(&path).unwrap();
    assert!(audit.contains("\"freed\"") && audit.contains("\"revoked\""), "{audit}");
}

/// Otherwise the device is fenced again after a restart of the node.
#[tokio::test]
async fn fence_is_not_written_after_its_end() {
    let (state, folder) = state_folder();
    let (device, path) = (device(CpuProvider::default()), state.path().join("audit"));
    let (audit, address) = (Audit::append_to(&path).unwrap(), device.info.address.clone());
    let leases = Leases::new(table(), key(), vec![device], limits(), audit, Some(folder));
    assert!(leases.change(|state, now| state.table.fence(now, SlotId(0))));
    assert!(leases.unfence(&address).await.unwrap());
    assert!(!leases.unfence(&address).await.unwrap());
    leases.audit.written().await;
    assert_eq!(std::fs::read_to_string(&path).unwrap().matches("unfenced").count(), 1);
    // The fence was waiting for the folder already.
    drop(leases.folder.clone().unwrap().lock_owned().await);
    assert_eq!(names(&state.path().join("state/fenced")), [""; 0]);
    assert!(leases.change(|state, now| state.table.fence(now, SlotId(0))));
    let started = Instant::now();
    while names(&state.path().join("state/fenced")).is_empty() {
        assert!(started.elapsed() < LONG, "the fence is not written");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The end of a lease is announced before its first record is written. Its client may use it in the notice period, so its
/// worker outlives the node. Otherwise the next node does not know the worker, which keeps memory of the device and its user
/// id, and a hostile one never ends.
#[tokio::test]
async fn worker_of_a_lease_whose_end_was_announced_before_its_grant_has_a_record() {
    let (state, folder) = state_folder();
    let launcher = ready_worker(state.path()).successors(folder.workers(), LONG);
    let mut device = device(CpuProvider::default());
    let launcher = ProcessLauncher::new(launcher, None, None);
    device.workers = Workers::new(Launcher::Process(Box::new(launcher)), 0);
    let leases =
        Leases::new(table(), key(), vec![device], limits(), Audit::default(), Some(folder));
    let busy = leases.folder.clone().unwrap().lock_owned().await;
    let alice = client("alice");
    let mut allocate = Box::pin(leases.allocate(&alice, request(), true));
    let is_active =
        |state: &mut State, _| state.table.leases().any(|of| of.state == LeaseState::Active);
    let started = Instant::now();
    while !leases.change(is_active) {
        assert!(started.elapsed() < LONG, "the lease does not start");
        let early = tokio::time::timeout(Duration::from_millis(5), &mut allocate).await;
        assert!(early.is_err(), "the grant does not wait for the disk");
    }
    // As a preemption does, or the operator.
    let lease = leases.change(|state, now| {
        let lease = state.table.leases().next().unwrap().id;
        state.table.revoke(now, lease, "maintenance", LONG).unwrap();
        lease
    });
    drop(busy);
    let granted = tokio::time::timeout(LONG, allocate).await.expect("there is no answer");
    assert_eq!(granted.unwrap().lease, lease.0);
    let records = ["leases", "ended"].map(|name| names(&state.path().join("state").join(name)));
    assert_eq!(records, [vec![], vec![lease.to_string()]]);
}

/// Otherwise the next node knows neither of the fence nor of the lease.
#[tokio::test]
async fn record_of_a_lease_stays_whose_fence_is_not_written() {
    for can_write in [true, false] {
        let (state, folder) = state_folder();
        let device = device(CpuProvider::default());
        let leases =
            Leases::new(table(), key(), vec![device], limits(), Audit::default(), Some(folder));
        let (lease, _) = starting(&leases, &client("alice"));
        // The record moves when the end of the lease is written, which no one waits for here.
        let [record, record_of_end, fenced] =
            [format!("leases/{lease}"), format!("ended/{lease}"), "fenced".into()]
                .map(|name| state.path().join("state").join(name));
        std::fs::write(&record, "").unwrap();
        if !can_write {
            std::fs::remove_dir(&fenced).unwrap();
            std::fs::write(&fenced, "").unwrap();
        }
        leases.change(|state, now| state.table.free(now, lease)).unwrap();
        leases.ended_lease(lease, None, false).await;
        assert!(leases.change(|state, _| state.table.slots().any(|slot| slot.is_fenced)));
        // While the record moves, neither place may have it for a moment.
        let is_recorded = || record.exists() || record_of_end.exists();
        let has_moved = async {
            while is_recorded() == can_write {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), has_moved).await.unwrap();
        assert_eq!(fenced.is_file(), !can_write);
        assert!(!can_write || names(&fenced).len() == 1);
    }
}

/// A random number below a limit.
fn below(limit: u64) -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).unwrap();
    u64::from_le_bytes(bytes) % limit
}

/// Waits for a request for a random time, then drops it, as for a client that disconnects.
async fn perhaps<T>(request: impl Future<Output = T>) -> Option<T> {
    match below(3) {
        0 => Some(request.await),
        _ => tokio::time::timeout(Duration::from_millis(below(30)), request).await.ok(),
    }
}

/// Requests a lease, uses it, and disconnects, perhaps before an answer.
async fn come_and_go(leases: &Arc<Leases>, client: &Client) {
    let mut nonce = [0; 16];
    getrandom::fill(&mut nonce).unwrap();
    let (detached, lease_secs, wait_ms) = (below(2) == 0, 1, below(50) as u32);
    let request = || Allocate { nonce, detached, lease_secs, wait_ms, ..request() };
    let confirms = below(2) == 0;
    for _ in 0..2 {
        let Some(Ok(granted)) = perhaps(leases.allocate(client, request(), confirms)).await else {
            continue;
        };
        let (lease, token) = (granted.lease, &granted.token);
        for _ in 0..below(4) {
            match below(5) {
                0 => drop(perhaps(leases.renew(client, lease, token, 1)).await),
                1 => drop(perhaps(leases.confirm(client, lease, token)).await),
                2 => drop(perhaps(leases.blobs(client, lease, token)).await),
                3 => drop(perhaps(leases.free(client, lease, token)).await),
                _ => {
                    let notice = Duration::from_millis(below(20));
                    drop(perhaps(leases.revoke(lease, "in a test".into(), notice)).await);
                }
            }
        }
    }
    leases.disconnected(client.connection);
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_go_at_any_point_leave_nothing_behind() {
    let (state, folder) = state_folder();
    let root = state.path().join("state");
    let launcher = ready_worker(state.path()).successors(root.join("workers"), LONG);
    let launcher = ProcessLauncher::new(launcher, None, None);
    let mut device = device(CpuProvider::default());
    device.workers = Workers::new(Launcher::Process(Box::new(launcher)), 0);
    let [grace, reconnect_window] = [5, 20].map(Duration::from_millis);
    let table = table_with(TableConfig { grace, reconnect_window, ..TableConfig::default() });
    let audit = Audit::append_to(&state.path().join("audit")).unwrap();
    let leases = Leases::new(table, key(), vec![device], limits(), audit, Some(folder));
    let running = tokio::spawn(leases.clone().run());
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..8 {
        let leases = leases.clone();
        clients.spawn(async move {
            let all = client(["alice", "bob", "carol"][number % 3]);
            for round in 0..40 {
                let connection = (100 * number + round) as u64;
                come_and_go(&leases, &Client { connection, ..all.clone() }).await;
            }
        });
    }
    // The disk is busy again and again.
    while !clients.is_empty() {
        let busy = leases.folder.clone().unwrap().lock_owned().await;
        tokio::time::sleep(Duration::from_millis(below(20))).await;
        drop(busy);
        tokio::time::sleep(Duration::from_millis(below(20))).await;
        while let Some(ended) = clients.try_join_next() {
            ended.unwrap();
        }
    }
    let left = || {
        let (leases, _) = leases.with(|state, _| {
            let State { table, entries, waiting, .. } = state;
            let workers = entries.values().filter(|entry| entry.worker.is_some()).count();
            let fenced = table.slots().filter(|slot| slot.is_fenced).count();
            [
                table.leases().count(),
                table.queue_len(),
                entries.len(),
                waiting.len(),
                workers,
                fenced,
            ]
        });
        let files =
            ["leases", "ended", "workers", "fenced"].map(|folder| names(&root.join(folder)));
        (leases, files)
    };
    let started = Instant::now();
    while left() != ([0; 6], Default::default()) {
        assert!(started.elapsed() < LONG, "{:?}", left());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    running.abort();
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// A request for a lease, which may wait.
fn request() -> Allocate {
    Allocate {
        nonce: [1; 16],
        min_vram: 1 << 20,
        lease_secs: 60,
        exclusivity: Exclusivity::Shared,
        device: None,
        wait_ms: 60_000,
        priority: 0,
        detached: false,
        trace: None,
    }
}

/// A device whose workers are threads.
fn device(provider: impl Provider + 'static) -> LeasedDevice {
    let info = provider.devices().unwrap().remove(0);
    let workers = Workers::new(Launcher::InProcess(Arc::new(provider)), 0);
    LeasedDevice { info, features: 0, sandbox: None, workers }
}

fn table() -> LeaseTable {
    table_with(TableConfig::default())
}

fn table_with(config: TableConfig) -> LeaseTable {
    let slot = SlotConfig { name: "cpu".into(), capacity: 1 << 30, reserve: 0, max_leases: 4 };
    LeaseTable::new(config, vec![slot], Quotas::default()).unwrap()
}

/// An active lease of a client, without a worker.
fn active(leases: &Arc<Leases>, client: &Client) -> LeaseId {
    let placed = leases.change(|state, now| {
        let mut nonce = [0; 16];
        getrandom::fill(&mut nonce).unwrap();
        state.table.request(now, LeaseRequest::new(client.tenant.clone(), nonce, 1 << 20))
    });
    let Ok(Placement::Leased(lease)) = placed else { panic!("{placed:?}") };
    assert!(leases.change(|state, now| state.table.worker_ready(now, lease)));
    lease
}

/// The files of a node without certificates.
fn reload(leases: &Arc<Leases>) -> Reload {
    let (tls, listen) = (ServerTls::insecure(), (Ipv4Addr::LOCALHOST, 0).into());
    let (config, verifier) = tls.config_for(listen).unwrap();
    let endpoint =
        transport::endpoint(listen, Some((config.clone(), transport::ResetKey::derive(&[0; 32]))))
            .unwrap();
    let (config, verifier) = (watch::Sender::new(config), watch::Sender::new(verifier));
    let (leases, running) = (leases.clone(), Mutex::default());
    Reload { tls, listen, quotas: None, endpoint, config, verifier, leases, running }
}

fn key() -> TokenKey {
    TokenKey::from_bytes([7; 32])
}

/// The leases of a node without a device of its own.
fn leases(table: LeaseTable, folder: Option<StateFolder>) -> Arc<Leases> {
    Leases::new(table, key(), Vec::new(), limits(), Audit::default(), folder)
}

fn limits() -> Limits {
    Limits {
        submissions_in_flight: 1,
        host_bytes_in_flight: 1,
        memory: 0,
        streams: 1,
        module_bytes: 1,
    }
}

/// A client whose key depends on its name.
fn client(name: &str) -> Client {
    let tenant = Tenant::new(name).unwrap();
    let account = Tenants::default().account(&tenant);
    let key = Fingerprint::from_bytes(*blake3::hash(name.as_bytes()).as_bytes());
    Client { tenant, key, account, certificate_ends: None, connection: 1 }
}
