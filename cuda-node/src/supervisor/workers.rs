//! The workers of one device: idle spare workers, the supervisor's sockets to workers in use, and the GPU memory of
//! worker processes.

use std::{
    collections::VecDeque,
    future::pending,
    net::Shutdown,
    os::unix::net::UnixStream,
    sync::{Arc, OnceLock, Weak},
    thread,
    time::Duration,
};

use cuda_core::{DeviceInfo, Error, Provider, Result};
use cuda_lease::{authority::Tenant, wire::put_frame};
use parking_lot::Mutex;
use tokio::{sync::oneshot, time::Instant};

use super::{
    jit_cache::{self, JitCache, WorkerCache},
    streams::read_frame,
};
use crate::{
    gpu::{self, GpuMonitor, GpuUuid, MemoryCheck, MemoryReturn, ProcessMemory},
    process::{self, SandboxReport, SupervisorEnds, WorkerLauncher, WorkerProcess, WorkerRecord},
    worker::{self, Assign, Ready},
};

/// The pause before a spare worker takes the place of one that was taken. The driver delays the first operations of a
/// lease while another process starts.
const REPLENISH_PAUSE: Duration = Duration::from_millis(100);

/// The maximum duration until the memory of a killed worker is free. On an H200 this takes 70 to 100 ms.
const MEMORY_DEADLINE: Duration = Duration::from_secs(4);

/// The time between two looks at a process that was killed and is not gone.
const ENDING: Duration = Duration::from_secs(1);

/// The time between two messages about a process that was killed and is not gone.
const LATE_END: Duration = Duration::from_secs(300);

/// The maximum duration for which the end of a lease waits until the compiled kernels of its tenant are kept.
const CACHE_DEADLINE: Duration = Duration::from_secs(1);

/// The workers of a device. It keeps spare ones, so that a lease does not wait for the start of one.
pub(super) struct Workers {
    launcher: Launcher,
    /// The number of spare workers to keep.
    spares: usize,
    pool: Mutex<Pool>,
    own: Weak<Workers>,
}

#[derive(Default)]
struct Pool {
    idle: VecDeque<WorkerHandle>,
    /// Spare workers that are starting.
    starting: usize,
}

impl Workers {
    pub(super) fn new(launcher: Launcher, spares: usize) -> Arc<Self> {
        let pool = Mutex::default();
        Arc::new_cyclic(|own| Self { launcher, spares, pool, own: own.clone() })
    }

    /// The number of spare workers that are ready.
    pub(super) fn spares(&self) -> usize {
        self.pool.lock().idle.len()
    }

    /// Takes a spare worker, or starts one. When `cancelled` completes, a worker that starts is killed.
    ///
    /// # Errors
    /// The worker did not start. It has ended by then.
    pub(super) async fn take(
        &self,
        cancelled: impl Future<Output = ()>,
    ) -> Result<WorkerHandle, NotStarted> {
        let spare = self.take_spare();
        self.replenish(REPLENISH_PAUSE);
        match spare {
            Some(worker) => Ok(worker),
            None => self.launcher.launch(cancelled).await,
        }
    }

    /// Takes over a worker of an earlier node. The kernels that it has compiled do not return to the cache of its tenant.
    /// A worker whose sockets cannot be used has no [`lanes`](WorkerHandle::lanes): it can only be killed.
    ///
    /// # Errors
    /// The memory of the GPU is unknown.
    pub(super) async fn take_over(
        &self,
        (process, ends): LeftProcess,
        device: DeviceInfo,
        features: u64,
    ) -> Result<WorkerHandle> {
        let memory = match self.launcher.gpu() {
            Some(gpu) => {
                let check = gpu.before_launch().await.map_err(failed)?;
                let mut memory = WorkerMemory::new(check, gpu.clone(), process.pid());
                memory.observe().await;
                Some(memory)
            }
            None => None,
        };
        let ends = ends.ok().map(|ends| ((ends.commands, ends.bulk), ends.jobs));
        let (lanes, jobs) = ends.unzip();
        let body = Body::Process(Box::new(Process { process, memory, kernels: None }));
        let (sandbox, has_lease) = (None, true);
        Ok(WorkerHandle { device, features, sandbox, lanes, jobs, has_lease, body })
    }

    /// Takes a spare worker that is alive.
    fn take_spare(&self) -> Option<WorkerHandle> {
        let idle = &mut self.pool.lock().idle;
        while let Some(mut spare) = idle.pop_front() {
            if spare.is_alive() {
                return Some(spare);
            }
            tracing::warn!(
                pid = spare.pid(),
                "a spare worker has ended; another one takes its place"
            );
        }
        None
    }

    /// Starts the first worker, and returns its report. If spares are configured, this worker becomes the first one.
    pub(super) async fn open(&self) -> Result<FirstWorker> {
        let first = self.launcher.launch(pending()).await.map_err(|failed| failed.error)?;
        let opened = FirstWorker {
            device: first.device.clone(),
            features: first.features,
            sandbox: first.sandbox.clone(),
            used: first.memory().and_then(|probe| probe.used()),
        };
        if self.spares > 0 {
            self.pool.lock().idle.push_back(first);
        }
        self.replenish(Duration::ZERO);
        Ok(opened)
    }

    /// Starts spare workers after a pause, until there are enough.
    fn replenish(&self, pause: Duration) {
        let missing = {
            let mut pool = self.pool.lock();
            let missing = self.spares.saturating_sub(pool.idle.len() + pool.starting);
            pool.starting += missing;
            missing
        };
        for _ in 0..missing {
            let (launcher, workers) = (self.launcher.clone(), self.own.clone());
            tokio::spawn(async move {
                tokio::time::sleep(pause).await;
                let launched = launcher.launch(pending()).await;
                let Some(workers) = workers.upgrade() else { return };
                let mut pool = workers.pool.lock();
                pool.starting -= 1;
                match launched {
                    Ok(worker) => pool.idle.push_back(worker),
                    Err(NotStarted { error, .. }) => {
                        tracing::error!(%error, "a spare worker did not start");
                    }
                }
            });
        }
    }
}

/// The report of the first worker of a device.
pub(super) struct FirstWorker {
    pub(super) device: DeviceInfo,
    /// The features of the device, as in [`features`](cuda_lease::wire::features).
    pub(super) features: u64,
    /// The sandbox of a worker that is a process.
    pub(super) sandbox: Option<SandboxReport>,
    /// The memory that the worker uses without a lease, if that is known.
    pub(super) used: Option<u64>,
}

/// The start of a worker.
#[derive(Clone)]
pub(super) enum Launcher {
    /// As threads of this process, for tests. An endless kernel cannot be killed.
    InProcess(Arc<dyn Provider>),
    /// As a process.
    Process(Box<ProcessLauncher>),
}

/// The start of a worker as a process.
#[derive(Clone)]
pub(super) struct ProcessLauncher {
    pub(super) launcher: WorkerLauncher,
    /// The GPU of the worker, if its memory can be observed.
    gpu: Option<Gpu>,
    /// The caches of compiled kernels, of a worker with a GPU.
    jit_cache: Option<JitCache>,
    /// The sandbox of the first worker.
    sandbox: Arc<OnceLock<SandboxReport>>,
}

impl Launcher {
    /// The GPU of the workers, if its memory can be observed.
    fn gpu(&self) -> Option<&Gpu> {
        match self {
            Launcher::InProcess(_) => None,
            Launcher::Process(launcher) => launcher.gpu.as_ref(),
        }
    }

    /// Starts a worker, and waits until its device is open. When `cancelled` completes, kills it.
    async fn launch(
        &self,
        cancelled: impl Future<Output = ()>,
    ) -> Result<WorkerHandle, NotStarted> {
        let launched = match self {
            Launcher::InProcess(provider) => in_process(provider.clone()),
            Launcher::Process(launcher) => launcher.launch().await,
        };
        let (mut ends, mut body) =
            launched.map_err(|error| NotStarted { error, memory_is_back: true })?;
        let started = tokio::select! {
            started = body.start(&mut ends) => started,
            () = cancelled => Err(failed("its lease has ended")),
        };
        let started = started.and_then(|(ready, sandbox)| {
            self.check(sandbox.as_ref())?;
            Ok((ready, sandbox))
        });
        let (Ready { device, features, .. }, sandbox) = match started {
            Ok(started) => started,
            // Until its end, its memory belongs to its lease.
            Err(error) => {
                body.kill_start().await;
                return Err(NotStarted { error, memory_is_back: body.end(|| ()).await });
            }
        };
        let SupervisorEnds { commands, bulk, jobs } = ends;
        let lanes = Some((commands, bulk));
        let jobs = Some(jobs);
        Ok(WorkerHandle { device, features, sandbox, lanes, jobs, has_lease: false, body })
    }

    /// Checks that the sandbox of a worker has each part that the first worker had. A hostile worker may have used up
    /// what the machine has for all of them.
    fn check(&self, sandbox: Option<&SandboxReport>) -> Result<()> {
        let (Launcher::Process(launcher), Some(sandbox)) = (self, sandbox) else { return Ok(()) };
        let lacks = sandbox.lacks(launcher.sandbox.get_or_init(|| sandbox.clone()));
        if lacks.is_empty() {
            return Ok(());
        }
        tracing::error!(
            lacks,
            "a worker is ended, because its sandbox lacks parts that the first worker had"
        );
        Err(failed(format!("its sandbox lacks parts that the first worker had: {lacks}")))
    }
}

/// The process of a worker that an earlier node has started, which has not ended, and its sockets if they can be used.
pub(super) type LeftProcess = (WorkerProcess, process::Result<SupervisorEnds>);

impl ProcessLauncher {
    pub(super) fn new(
        launcher: WorkerLauncher,
        gpu: Option<Gpu>,
        jit_cache: Option<JitCache>,
    ) -> Self {
        Self { launcher, gpu, jit_cache, sandbox: Arc::default() }
    }

    async fn launch(&self) -> Result<(SupervisorEnds, Body)> {
        let mut launcher = self.launcher.clone();
        if let Some(gpu) = &self.gpu {
            launcher = launcher.environment("CUDA_VISIBLE_DEVICES", gpu.uuid.as_str());
        }
        let before = match &self.gpu {
            Some(gpu) => Some((gpu.before_launch().await.map_err(failed)?, gpu.clone())),
            None => None,
        };
        let jit_cache = self.jit_cache.clone();
        // It waits for the kernel, the disk, and locks of files.
        let launch = move || {
            let kernels = jit_cache.as_ref().map(JitCache::for_worker).transpose();
            let kernels = kernels.map_err(failed)?;
            if let Some(kernels) = &kernels {
                launcher = launcher
                    .writable(kernels.folder())
                    .environment(jit_cache::PATH_VARIABLE, kernels.path())
                    .environment(jit_cache::SIZE_VARIABLE, jit_cache::SIZE.to_string());
            }
            let (process, ends) = launcher.launch().map_err(failed)?;
            Ok::<_, Error>((process, ends, kernels))
        };
        let (process, ends, kernels) =
            tokio::task::spawn_blocking(launch).await.map_err(failed)??;
        let memory = before.map(|(check, gpu)| WorkerMemory::new(check, gpu, process.pid()));
        Ok((ends, Body::Process(Box::new(Process { process, memory, kernels }))))
    }
}

fn in_process(provider: Arc<dyn Provider>) -> Result<(SupervisorEnds, Body)> {
    let (ends, worker) = process::pair().map_err(failed)?;
    let [commands, bulk, jobs] =
        [&worker.commands, &worker.bulk, &worker.jobs].map(UnixStream::try_clone);
    let sockets = [commands.map_err(failed)?, bulk.map_err(failed)?, jobs.map_err(failed)?];
    let (end, ended) = oneshot::channel();
    let serve = move || {
        let ended = worker::run(provider, 0, worker, None, None);
        if let Err(error) = &ended {
            tracing::error!(%error, "a worker failed");
        }
        _ = end.send(ended);
    };
    thread::Builder::new().name("lease-commands".into()).spawn(serve).map_err(failed)?;
    Ok((ends, Body::Threads(Threads { sockets, ended })))
}

/// A worker, seen from the supervisor. Dropping it ends the worker.
pub(super) struct WorkerHandle {
    device: DeviceInfo,
    /// The features of the device, as in [`features`](cuda_lease::wire::features).
    pub(super) features: u64,
    /// The sandbox of a worker that is a process.
    sandbox: Option<SandboxReport>,
    /// The sockets of commands and bulk bytes, until a session takes them.
    pub(super) lanes: Option<Lanes>,
    /// The socket of stateless submits, until the first one takes it.
    pub(super) jobs: Option<tokio::net::UnixStream>,
    has_lease: bool,
    body: Body,
}

/// The sockets of a session: commands and bulk bytes.
pub(super) type Lanes = (tokio::net::UnixStream, tokio::net::UnixStream);

enum Body {
    Threads(Threads),
    Process(Box<Process>),
}

impl Body {
    /// Waits until the device of a new worker is open. Returns its sandbox too.
    async fn start(&mut self, ends: &mut SupervisorEnds) -> Result<(Ready, Option<SandboxReport>)> {
        match self {
            // The supervisor holds the worker's sockets too, so their ends do not show that the worker has ended.
            Body::Threads(threads) => tokio::select! {
                ready = ready(ends) => Ok((ready?, None)),
                ended = &mut threads.ended => {
                    let ended = ended.unwrap_or_else(|_| Err(failed("its thread panicked")));
                    Err(ended.err().unwrap_or_else(|| failed("it ended without a lease")))
                }
            },
            Body::Process(process) => {
                let ready = ready(ends).await?;
                let sandbox = serde_json::from_str(&ready.sandbox).map_err(failed)?;
                process.process.identify().map_err(failed)?;
                if let Some(memory) = &mut process.memory {
                    memory.observe().await;
                }
                Ok((ready, Some(sandbox)))
            }
        }
    }

    /// Kills a worker whose start failed. If NVML does not list its memory, it counts as free when the process has exited:
    /// the memory of other leases says nothing about it.
    async fn kill_start(&mut self) {
        let Body::Process(worker) = self else { return };
        worker.process.kill();
        let is_listed = match &mut worker.memory {
            Some(memory) => memory.observe().await,
            None => false,
        };
        worker.memory.take_if(|_| !is_listed);
    }

    /// As [`WorkerHandle::kill`].
    async fn end(self, is_ending: impl Fn()) -> bool {
        match self {
            Body::Threads(mut threads) => {
                threads.shut_down();
                if !threads.ended.is_terminated() {
                    _ = (&mut threads.ended).await;
                }
                true
            }
            Body::Process(worker) => {
                let Process { mut process, memory, kernels } = *worker;
                process.kill();
                let mut late = Instant::now() + LATE_END;
                let cause = loop {
                    match tokio::time::timeout(ENDING, process.reaped()).await {
                        Ok(cause) => break cause,
                        Err(_) if process.is_ending() => is_ending(),
                        Err(_) => {}
                    }
                    if Instant::now() > late {
                        tracing::error!(
                            pid = process.pid(),
                            "a killed worker does not end; its lease counts until then"
                        );
                        late += LATE_END;
                    }
                };
                tracing::debug!(pid = process.pid(), %cause, "a worker has exited");
                // The cache goes back after the end of the worker, which looks at each file of it.
                let cache = tokio::task::spawn_blocking(move || drop(kernels));
                let until = Instant::now() + CACHE_DEADLINE;
                let memory_is_back = match memory {
                    Some(memory) => memory.memory_returned().await,
                    None => true,
                };
                // Both together take less than the time after which the table fences the device.
                _ = tokio::time::timeout_at(until, cache).await;
                memory_is_back
            }
        }
    }
}

/// A worker that did not start, and has ended.
pub(super) struct NotStarted {
    pub(super) error: Error,
    /// Whether its memory is verified to be free.
    pub(super) memory_is_back: bool,
}

/// A worker that is a process.
struct Process {
    process: WorkerProcess,
    memory: Option<WorkerMemory>,
    kernels: Option<WorkerCache>,
}

/// A worker that is threads of this process.
struct Threads {
    /// The worker's ends of the sockets, to shut them down.
    sockets: [UnixStream; 3],
    ended: oneshot::Receiver<Result<()>>,
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shut_down();
    }
}

impl Threads {
    fn shut_down(&self) {
        for socket in &self.sockets {
            _ = socket.shutdown(Shutdown::Both);
        }
    }
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::host("failed to start a worker", &error)
}

/// Waits for the first frame of a worker.
async fn ready(ends: &mut SupervisorEnds) -> Result<Ready> {
    let ended = |_| failed("it ended before its device was open; its output has the reason");
    match read_frame(&mut ends.commands).await.map_err(ended)? {
        (Ready::OPCODE, body) => Ready::decode(&body).map_err(failed),
        _ => Err(failed("its first frame is not `Ready`")),
    }
}

impl WorkerHandle {
    /// Gives the worker its lease, in front of everything else on its sockets. Later calls do nothing.
    pub(super) fn begin(&mut self, assign: &Assign) {
        if let (Some((commands, _)), false) = (&self.lanes, self.has_lease) {
            let mut out = Vec::new();
            put_frame(&mut out, Assign::OPCODE, 0, 0, |out| assign.encode(out));
            if let Body::Process(worker) = &mut self.body {
                let bytes = worker::host_memory(&self.device, &assign.limits);
                if let Err(error) = worker.process.limit_host_memory(bytes) {
                    tracing::error!(%error, "a worker ends, because its host memory cannot be limited");
                    worker.process.kill();
                }
            }
            // The socket is empty and takes the bytes at once. The end of a worker is noticed where it is read.
            _ = rustix::io::write(commands, &out);
            self.has_lease = true;
        }
    }

    /// The process of the worker, if it has one of its own.
    pub(super) fn pid(&self) -> Option<u32> {
        match &self.body {
            Body::Threads(_) => None,
            Body::Process(process) => Some(process.process.pid()),
        }
    }

    /// Returns the record with which the next node takes over the worker. `None` for one that ends with this node.
    pub(super) fn for_successor(&self) -> Option<WorkerRecord> {
        match &self.body {
            Body::Threads(_) => None,
            // A worker that has ended is noticed where it is used.
            Body::Process(process) => process.process.for_successor(),
        }
    }

    /// Whether the worker has not ended.
    fn is_alive(&mut self) -> bool {
        match &mut self.body {
            Body::Threads(threads) => {
                threads.ended.try_recv() == Err(oneshot::error::TryRecvError::Empty)
            }
            Body::Process(worker) => !worker.process.has_ended(),
        }
    }

    /// The limit of its host memory in bytes, if the kernel has killed the worker because it went beyond.
    pub(super) fn exceeded_host_memory(&self) -> Option<u64> {
        match &self.body {
            Body::Threads(_) => None,
            Body::Process(process) => process.process.exceeded_host_memory(),
        }
    }

    /// Asks for the memory of the worker, if it can be observed.
    pub(super) fn memory(&self) -> Option<MemoryProbe> {
        match &self.body {
            Body::Threads(_) => None,
            Body::Process(process) => process.memory.as_ref().map(WorkerMemory::probe),
        }
    }

    /// Assigns the worker to a tenant: its cache gets the compiled kernels of the tenant. Call it before the first
    /// command.
    ///
    /// # Errors
    /// The cache of the tenant's kernels cannot be opened.
    pub(super) async fn assign(&mut self, tenant: &Tenant) -> Result<()> {
        let Body::Process(process) = &mut self.body else { return Ok(()) };
        let Some(mut kernels) = process.kernels.take() else { return Ok(()) };
        let tenant = tenant.clone();
        // An earlier worker of the tenant may have filled the cache, so that this takes long.
        let assign = move || {
            let assigned = kernels.assign(&tenant);
            (kernels, assigned)
        };
        let (kernels, assigned) = tokio::task::spawn_blocking(assign).await.map_err(failed)?;
        process.kernels = Some(kernels);
        assigned.map_err(failed)
    }

    /// Kills the worker, and waits until it has exited. Returns whether its memory is free. Calls `is_ending` again and
    /// again while the kernel works on the end of the worker, which runs no code any more.
    pub(super) async fn kill(self, is_ending: impl Fn()) -> bool {
        // Before the wait: descriptors that the worker has put into their queues would keep its memory.
        drop((self.lanes, self.jobs));
        self.body.end(is_ending).await
    }
}

/// A GPU, or a MIG instance, whose memory can be observed.
#[derive(Clone)]
pub(super) struct Gpu {
    pub(super) monitor: Arc<dyn GpuMonitor>,
    pub(super) uuid: GpuUuid,
}

impl Gpu {
    /// Begins a check, before the worker is launched.
    async fn before_launch(&self) -> gpu::Result<MemoryCheck> {
        MemoryCheck::before_launch(self.monitor.clone(), self.uuid.clone()).await
    }
}

/// The memory of a worker that was launched.
struct WorkerMemory {
    check: MemoryCheck,
    probe: MemoryProbe,
}

/// Asks for the memory of a worker.
#[derive(Clone)]
pub(super) struct MemoryProbe {
    gpu: Gpu,
    pid: u32,
}

impl MemoryProbe {
    /// The bytes that the worker uses. `None` if NVML does not report them. Blocks for a millisecond.
    pub(super) fn used(&self) -> Option<u64> {
        match self.gpu.monitor.memory_of(&self.gpu.uuid, self.pid) {
            Ok(ProcessMemory::Used(bytes)) => Some(bytes),
            _ => None,
        }
    }
}

impl WorkerMemory {
    fn new(check: MemoryCheck, gpu: Gpu, pid: u32) -> Self {
        Self { check, probe: MemoryProbe { gpu, pid } }
    }

    fn probe(&self) -> MemoryProbe {
        self.probe.clone()
    }

    /// Finds out whether NVML reports the memory of this worker separately from that of other processes.
    async fn observe(&mut self) -> bool {
        let pid = self.probe.pid;
        match self.check.observe(pid).await {
            Ok(memory) => matches!(memory, ProcessMemory::Used(_)),
            Err(error) => {
                tracing::warn!(pid, %error, "the memory of a worker is unknown");
                false
            }
        }
    }

    /// Waits until the memory of the reaped worker is free. Returns `false` if it is not free in time.
    async fn memory_returned(&self) -> bool {
        let pid = self.probe.pid;
        match self.check.memory_returned(pid, Instant::now() + MEMORY_DEADLINE).await {
            Ok(MemoryReturn::Returned) => true,
            Ok(MemoryReturn::Held(bytes)) => {
                tracing::error!(pid, bytes, "the memory of an exited worker is not free");
                false
            }
            Ok(MemoryReturn::Unproven { used, baseline }) => {
                // The process has exited, and others may have allocated meanwhile.
                tracing::warn!(
                    pid,
                    used,
                    baseline,
                    "NVML does not report whether the memory of an exited worker is free"
                );
                true
            }
            Err(error) => {
                tracing::error!(pid, %error, "the memory of an exited worker is unknown");
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read as _, pin::pin};

    use cuda_cpu::CpuProvider;

    use super::*;

    /// The cache may have many files. The only thread for calls that block is in use meanwhile.
    #[test]
    fn no_task_moves_the_kernels_of_a_tenant() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let root = tempfile::tempdir().unwrap();
            let cache = JitCache::open(Some(root.path())).unwrap();
            let sleeping = WorkerLauncher::new("/bin/sleep").argument("1000");
            let (process, _ends) = sleeping.launch().unwrap();
            let kernels = Some(cache.for_worker().unwrap());
            let mut worker = WorkerHandle {
                device: CpuProvider::default().devices().unwrap().remove(0),
                features: 0,
                sandbox: None,
                lanes: None,
                jobs: None,
                has_lease: false,
                body: Body::Process(Box::new(Process { process, memory: None, kernels })),
            };
            let (release, released) = std::sync::mpsc::channel();
            let blocking = tokio::task::spawn_blocking(move || released.recv());
            let home = root.path().join("tenants/a");
            {
                let tenant = Tenant::new("a").unwrap();
                let mut assigned = pin!(worker.assign(&tenant));
                tokio::select! {
                    biased;
                    _ = &mut assigned => panic!("a task has moved the kernels"),
                    () = std::future::ready(()) => {}
                }
                assert!(!home.exists(), "a task has moved the kernels");
                release.send(()).unwrap();
                assigned.await.unwrap();
            }
            assert!(home.exists());
            blocking.await.unwrap().unwrap();
            worker.kill(|| ()).await;
        });
    }

    /// The queues of the sockets may have descriptors that keep the memory of the worker.
    #[tokio::test]
    async fn killed_worker_waits_for_no_socket_that_nobody_has_taken() {
        let (SupervisorEnds { commands, bulk, jobs }, worker) = process::pair().unwrap();
        let (end, ended) = oneshot::channel();
        // It ends when the supervisor has closed all sockets.
        thread::spawn(move || {
            for mut socket in [worker.commands, worker.bulk, worker.jobs] {
                socket.read_to_end(&mut Vec::new()).unwrap();
            }
            _ = end.send(Ok(()));
        });
        // Others than those of the worker, which their end would shut down.
        let sockets = [(); 3].map(|()| UnixStream::pair().unwrap().0);
        let worker = WorkerHandle {
            device: CpuProvider::default().devices().unwrap().remove(0),
            features: 0,
            sandbox: None,
            lanes: Some((commands, bulk)),
            jobs: Some(jobs),
            has_lease: true,
            body: Body::Threads(Threads { sockets, ended }),
        };
        let killed = tokio::time::timeout(Duration::from_secs(30), worker.kill(|| ())).await;
        assert!(killed.expect("the sockets are open"));
    }
}
