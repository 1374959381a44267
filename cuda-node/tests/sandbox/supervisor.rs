//! The role of a supervisor: launches a hostile worker, and prints the outcomes of its attacks.

use std::{
    collections::BTreeMap,
    fs::{self, Permissions},
    io::{self, Read as _, Write as _},
    net::TcpListener,
    os::{
        fd::AsRawFd as _,
        linux::net::SocketAddrExt as _,
        unix::{
            fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
            net,
        },
    },
    process::ExitCode,
    time::Duration,
};

use cuda_node::process::{
    DEFAULT_UIDS, DeviceFiles, ExitCause, Sandbox, WorkerLauncher, WorkerOutput, hide_memory,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};

use crate::attacks::{self, Findings, SECRET, Targets};

/// The options of the role, as arguments.
pub const HOLD: &str = "hold";
pub const OUTLIVE: &str = "outlive";
pub const OFF: &str = "off";
pub const REQUIRED: &str = "required";
pub const WITHOUT_NAMESPACES: &str = "without-namespaces";
pub const WITHOUT_FILTERS: &str = "without-filters";
pub const WITHOUT_LANDLOCK: &str = "without-landlock";
pub const WITHOUT_MOUNTS: &str = "without-mounts";
pub const FILL: &str = "fill";
pub const INHERITED: &str = "inherited";

/// Launches a hostile worker and another worker, and prints the [`Findings`] as JSON. Exits with the code of a hostile
/// worker that refuses to start.
pub fn run() -> ExitCode {
    let options: Vec<_> = std::env::args().skip(2).collect();
    let has = |option: &str| options.iter().any(|given| given == option);
    if has(WITHOUT_NAMESPACES) {
        refuse_namespaces();
    }
    if has(INHERITED) {
        // SAFETY: duplicates a descriptor, without the flag that closes it on `exec`.
        assert!(unsafe { libc::fcntl(0, libc::F_DUPFD, 100) } >= 0);
        refuse([(libc::SYS_close_range, Vec::new())]);
    }
    if has(WITHOUT_LANDLOCK) {
        refuse([(libc::SYS_landlock_create_ruleset, Vec::new())]);
    }
    if has(WITHOUT_MOUNTS) {
        refuse(
            [libc::SYS_mount, libc::SYS_fsopen, libc::SYS_open_tree].map(|call| (call, Vec::new())),
        );
    }
    if has(WITHOUT_FILTERS) {
        refuse_filters();
    }
    let sandbox = match (has(OFF), has(REQUIRED)) {
        (true, _) => None,
        (_, true) => Some(Sandbox::new(DEFAULT_UIDS).required()),
        _ => Some(Sandbox::new(DEFAULT_UIDS)),
    };
    if sandbox.is_some() {
        hide_memory().unwrap();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    if has(HOLD) {
        runtime.block_on(hold(sandbox.as_ref().unwrap(), has(OUTLIVE)));
    }
    if has(FILL) {
        println!("{}", serde_json::to_string(&runtime.block_on(fill(&sandbox.unwrap()))).unwrap());
        return ExitCode::SUCCESS;
    }
    match runtime.block_on(attack(sandbox)) {
        Ok(findings) => {
            println!("{}", serde_json::to_string(&findings).unwrap());
            ExitCode::SUCCESS
        }
        Err(ExitCause::Exited(code)) => ExitCode::from(code as u8),
        Err(cause) => panic!("the hostile worker {cause}"),
    }
}

fn launcher(role: &str, sandbox: Option<&Sandbox>) -> WorkerLauncher {
    let launcher = WorkerLauncher::new(std::env::current_exe().unwrap());
    let launcher = launcher.argument(format!("--role={role}"));
    match sandbox {
        Some(sandbox) => launcher.sandbox(sandbox.clone()),
        None => launcher,
    }
}

/// Launches a worker, which may outlive this process, prints its process id, and does nothing until it is killed.
async fn hold(sandbox: &Sandbox, may_outlive: bool) {
    let mut launcher = launcher("other-worker", Some(sandbox));
    let folder = tempfile::tempdir().unwrap();
    if may_outlive {
        launcher = launcher.successors(folder.path(), Duration::from_secs(60));
    }
    let (worker, mut ends) = launcher.launch().unwrap();
    ends.commands.read_u8().await.unwrap();
    println!("{}", worker.pid());
    std::future::pending().await
}

/// The end of a worker that takes more memory than it may.
#[derive(Debug, Serialize, Deserialize)]
pub struct Filled {
    pub cause: String,
    pub exceeded: Option<u64>,
    /// The cgroup of the worker while it ran, relative to its hierarchy.
    pub cgroup: Option<String>,
    /// Its share of the processors there.
    pub share: Option<String>,
}

/// Launches a worker that may take 64 MiB, and takes as much memory as it gets.
async fn fill(sandbox: &Sandbox) -> Filled {
    let (mut worker, mut ends) = launcher("filler", Some(sandbox)).launch().unwrap();
    ends.commands.read_u8().await.unwrap();
    let cgroup = cgroup_of(worker.pid());
    let share = cgroup.as_ref().and_then(|cgroup| {
        let files = ["/cpu.weight", "/unified/cpu.weight", "/cpu/cpu.shares"].map(|file| {
            let (mount, name) = file.rsplit_once('/').unwrap();
            fs::read_to_string(format!("/sys/fs/cgroup{mount}{cgroup}/{name}"))
        });
        files.into_iter().find_map(Result::ok)
    });
    worker.limit_host_memory(64 << 20).unwrap();
    ends.commands.write_all(b"!").await.unwrap();
    let cause = worker.reaped().await.to_string();
    Filled { cause, exceeded: worker.exceeded_host_memory(), cgroup, share }
}

/// The cgroup that a supervisor made for a process.
pub fn cgroup_of(process: u32) -> Option<String> {
    let all = fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap();
    let own = all.lines().find(|line| line.contains("/cuda-node-"))?;
    Some(own.splitn(3, ':').nth(2).unwrap().to_owned())
}

/// The role of a worker that takes memory, at most 1 GiB. The memory is shared, which `RLIMIT_DATA` does not count.
pub fn filler() -> ExitCode {
    let (_report, mut ends) = match attacks::start() {
        Ok(started) => started,
        Err(code) => return code,
    };
    ends.commands.write_all(b"+").unwrap();
    ends.commands.read_exact(&mut [0]).unwrap();
    take_memory(1 << 30);
    ExitCode::SUCCESS
}

/// Takes shared memory, which `RLIMIT_DATA` does not count.
pub fn take_memory(bytes: usize) {
    let (access, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: the mapping is new, and all of it is written.
    unsafe {
        let memory = libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0);
        assert_ne!(memory, libc::MAP_FAILED, "{}", io::Error::last_os_error());
        memory.cast::<u8>().write_bytes(1, bytes);
    }
}

/// The role of a supervisor that prints the means that limits the memory of its workers on the CPU.
pub fn print_memory_limit() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let limit = async {
        let sandbox = Sandbox::new(DEFAULT_UIDS);
        let (_worker, mut ends) = launcher("reporter", Some(&sandbox)).launch().unwrap();
        let mut line = String::new();
        BufReader::new(&mut ends.commands).read_line(&mut line).await.unwrap();
        line
    };
    print!("{}", runtime.block_on(limit));
    ExitCode::SUCCESS
}

/// The role of a worker that reports the means that limits its memory.
pub fn reporter() -> ExitCode {
    let (report, mut ends) = match attacks::start() {
        Ok(started) => started,
        Err(code) => return code,
    };
    writeln!(ends.commands, "{}", report.memory_limit().unwrap_or_default()).unwrap();
    // The supervisor ends.
    _ = ends.commands.read_exact(&mut [0]);
    ExitCode::SUCCESS
}

async fn attack(sandbox: Option<Sandbox>) -> Result<Findings, ExitCause> {
    let folder = tempfile::Builder::new().prefix("sandbox-test-").tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let secret = Box::new(*SECRET);
    let mut key = fs::OpenOptions::new();
    let key = key.write(true).read(true).create_new(true).mode(0o600);
    let mut key = key.open(path("node.key")).unwrap();
    key.write_all(SECRET).unwrap();
    let operator = net::UnixListener::bind(path("operator.sock")).unwrap();
    let abstract_name = format!("sandbox-test-{}", std::process::id());
    let address = net::SocketAddr::from_abstract_name(&abstract_name).unwrap();
    let abstract_socket = net::UnixListener::bind_addr(&address).unwrap();
    let network = TcpListener::bind("127.0.0.1:0").unwrap();
    let home =
        tempfile::Builder::new().prefix("sandbox-test-home-").tempdir_in("/var/tmp").unwrap();
    // Only the modes of the files keep others out.
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(path("operator.sock"), Permissions::from_mode(0o600)).unwrap();
    let datagrams = net::UnixDatagram::bind(path("datagram.sock")).unwrap();
    fs::set_permissions(path("datagram.sock"), Permissions::from_mode(0o777)).unwrap();
    for device in ["device0", "device1"] {
        fs::write(path(device), "").unwrap();
        fs::set_permissions(path(device), Permissions::from_mode(0o666)).unwrap();
    }
    for cache in ["own", "other"] {
        fs::DirBuilder::new().mode(0o700).create(path(cache)).unwrap();
    }
    fs::write(path("other").join("kernel"), "of another tenant").unwrap();

    let other = launcher("other-worker", sandbox.as_ref()).writable(path("other"));
    let (mut other, mut other_ends) = other.launch().unwrap();
    if other_ends.commands.read_u8().await.is_err() {
        return Err(other.reaped().await);
    }
    // As in a node.
    let attacker = launcher("attacker", sandbox.as_ref()).output(WorkerOutput::Trace);
    let attacker = attacker.writable(path("own"));
    let attacker = attacker.devices(DeviceFiles::These(vec![path("device0")]));
    let (mut attacker, mut ends) = attacker.launch().unwrap();
    let targets = Targets {
        supervisor: std::process::id(),
        other_worker: other.pid(),
        key: path("node.key"),
        key_descriptor: key.as_raw_fd(),
        secret: secret.as_ptr().addr(),
        operator_socket: path("operator.sock"),
        datagram_socket: path("datagram.sock"),
        abstract_socket: abstract_name,
        port: network.local_addr().unwrap().port(),
        own_cache: path("own"),
        other_cache: path("other"),
        own_device: path("device0"),
        other_device: path("device1"),
        temporary: path("created"),
        home: home.path().join("created"),
    };
    let line = serde_json::to_string(&targets).unwrap() + "\n";
    ends.commands.write_all(line.as_bytes()).await.unwrap();
    let mut findings = String::new();
    BufReader::new(&mut ends.commands).read_line(&mut findings).await.unwrap();
    let mut findings: Findings = serde_json::from_str(&findings).unwrap();
    if findings.outcomes["kill_other_worker"].is_none() {
        // The signal is sent, and the process ends soon.
        other.reaped().await;
    }
    let mut observe = |name: &str, is_safe: bool, reason: &str| {
        findings.outcomes.insert(name.to_owned(), is_safe.then(|| reason.to_owned()));
    };

    observe("end_other_worker", !other.has_ended(), "the other worker runs");
    attacker.kill();
    attacker.reaped().await;
    let is_answered = ends.jobs.write_all(b"?").await.is_ok() && ends.jobs.read_u8().await.is_ok();
    observe("survive_the_kill", !is_answered, "all of its processes have ended");
    let kernel = fs::read(path("other").join("kernel")).unwrap();
    observe("change_other_cache", kernel == b"of another tenant", "the kernel is as it was");
    let own = fs::read(path("own").join("kernel")).ok();
    assert!(own.is_some_and(|own| own == b"own"), "the worker cannot write to its cache");
    drop((operator, abstract_socket, secret, datagrams));
    Ok(findings)
}

/// The role of another worker. Reports its start, and waits.
pub fn other_worker() -> ExitCode {
    let (_report, mut ends) = match attacks::start() {
        Ok(started) => started,
        Err(code) => return code,
    };
    ends.commands.write_all(b"+").unwrap();
    loop {
        std::thread::park();
    }
}

/// Makes this process one that may not filter system calls.
pub fn refuse_filters() {
    let operator = SeccompCmpOp::Eq;
    let option = libc::PR_SET_SECCOMP as u64;
    let condition = SeccompCondition::new(0, SeccompCmpArgLen::Dword, operator, option).unwrap();
    refuse([
        (libc::SYS_seccomp, Vec::new()),
        (libc::SYS_prctl, vec![SeccompRule::new(vec![condition]).unwrap()]),
    ]);
}

/// Makes this process one in a container that may create no namespaces.
fn refuse_namespaces() {
    let flagged = [libc::CLONE_NEWUSER, libc::CLONE_NEWPID, libc::CLONE_NEWNS].map(|flag| {
        let operator = SeccompCmpOp::MaskedEq(flag as u64);
        let condition =
            SeccompCondition::new(0, SeccompCmpArgLen::Dword, operator, flag as u64).unwrap();
        SeccompRule::new(vec![condition]).unwrap()
    });
    refuse([
        (libc::SYS_clone, flagged.to_vec()),
        (libc::SYS_clone3, Vec::new()),
        (libc::SYS_unshare, Vec::new()),
        (libc::SYS_mount, Vec::new()),
    ]);
}

fn refuse<const N: usize>(calls: [(i64, Vec<SeccompRule>); N]) {
    let filter = SeccompFilter::new(
        BTreeMap::from(calls),
        SeccompAction::Allow,
        SeccompAction::Errno(libc::ENOSYS as u32),
        std::env::consts::ARCH.try_into().unwrap(),
    );
    let program: BpfProgram = filter.unwrap().try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
}
