//! The attacks of a hostile worker. An attack that returns `Ok` has succeeded.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, BufRead as _, BufReader, IoSlice, Read as _, Write as _},
    mem::MaybeUninit,
    net::TcpStream,
    os::{
        fd::{AsFd as _, AsRawFd as _},
        linux::net::SocketAddrExt as _,
        unix::{
            fs::{FileExt as _, FileTypeExt as _},
            net::{SocketAddr, UnixDatagram, UnixStream},
        },
    },
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    ptr,
    sync::mpsc,
};

use cuda_node::process::{
    COMMANDS_DESCRIPTOR, Confinement, SandboxReport, WorkerEnds, die_with_supervisor,
};
use rustix::{
    fs::FlockOperation,
    mount::{MountFlags, UnmountFlags},
    process::{DumpableBehavior, Pid, Signal},
    thread::UnshareFlags,
};
use serde::{Deserialize, Serialize};

/// A call of Linux that `libc` does not have.
const LISTMOUNT: i64 = 458;

/// The name of a variable with a secret, in the environment of the supervisor.
pub const SECRET_VARIABLE: &str = "TEST_NODE_SECRET";

/// The secret in the key file, the memory and the environment of the supervisor.
pub const SECRET: &[u8; 16] = b"secret of a node";

/// The exit code of a worker whose sandbox is incomplete.
pub const INCOMPLETE: u8 = 9;

/// The things that a hostile worker wants to reach.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Targets {
    pub supervisor: u32,
    pub other_worker: u32,
    /// A file with mode 0600 that the supervisor has open.
    pub key: PathBuf,
    /// The number of its descriptor in the supervisor.
    pub key_descriptor: i32,
    /// The address of the secret in the supervisor.
    pub secret: usize,
    pub operator_socket: PathBuf,
    /// A socket of datagrams that every user can open.
    pub datagram_socket: PathBuf,
    pub abstract_socket: String,
    pub port: u16,
    pub own_cache: PathBuf,
    pub other_cache: PathBuf,
    pub own_device: PathBuf,
    /// The device file of another worker's GPU, which every user can open.
    pub other_device: PathBuf,
    /// A file that does not exist, in the folder for temporary files.
    pub temporary: PathBuf,
    /// A file that does not exist, in the home folder.
    pub home: PathBuf,
}

/// The outcome of each attack: `None` if it succeeded, or the error.
pub type Outcomes = BTreeMap<String, Option<String>>;

/// All that a hostile worker reports.
#[derive(Debug, Serialize, Deserialize)]
pub struct Findings {
    pub report: SandboxReport,
    pub outcomes: Outcomes,
    /// Whether `/proc/self` is the folder of the process id that `getpid` returns. CUDA needs it.
    pub has_own_proc: bool,
}

/// The role of a hostile worker: enters its sandbox, reads its targets, attacks them, and reports.
pub fn run() -> ExitCode {
    let (report, ends) = match start() {
        Ok(started) => started,
        Err(code) => return code,
    };
    let mut line = String::new();
    BufReader::new(&ends.commands).read_line(&mut line).unwrap();
    let targets: Targets = serde_json::from_str(&line).unwrap();

    // A worker may use its cache.
    fs::write(targets.own_cache.join("kernel"), "own").unwrap();
    fs::File::open(&targets.own_device).unwrap();
    name_a_thread().unwrap();
    // The thread that reports what is complete sleeps for microseconds.
    // SAFETY: sets the timer slack of this thread, as the documentation of `prctl` states.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) }, 0);
    let has_own_proc =
        fs::read_link("/proc/self").unwrap() == Path::new(&std::process::id().to_string());
    let mut outcomes = Outcomes::new();
    let mut record = |name: &str, outcome: io::Result<()>| {
        outcomes.insert(name.to_owned(), outcome.err().map(|error| error.to_string()));
    };
    for (name, outcome) in attack_all(&targets) {
        record(name, outcome);
    }
    match as_root_of_a_namespace(&targets) {
        Ok(as_root) => outcomes.extend(as_root),
        Err(error) => record("become_root", Err(error)),
    }
    let mut record = |name: &str, outcome: io::Result<()>| {
        outcomes.insert(name.to_owned(), outcome.err().map(|error| error.to_string()));
    };
    record("kill_other_worker", signal(targets.other_worker, Signal::KILL));
    record("daemon", daemon(ends.jobs.as_raw_fd()));
    let findings = serde_json::to_string(&Findings { report, outcomes, has_own_proc }).unwrap();
    writeln!(&ends.commands, "{findings}").unwrap();
    loop {
        std::thread::park();
    }
}

/// Names another thread as the driver does, which does not start if that fails.
fn name_a_thread() -> io::Result<()> {
    let (sender, ids) = mpsc::channel();
    let (named, end) = mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        sender.send(rustix::thread::gettid()).unwrap();
        _ = end.recv();
    });
    let id = ids.recv().unwrap().as_raw_nonzero();
    let written = fs::write(format!("/proc/self/task/{id}/comm"), "name");
    drop(named);
    thread.join().unwrap();
    written
}

/// Enters the sandbox that the launcher states, and takes the sockets.
pub fn start() -> Result<(SandboxReport, WorkerEnds), ExitCode> {
    let sandbox = std::env::args().find_map(|argument| {
        argument.strip_prefix("--sandbox=").map(|text| text.parse::<Confinement>().unwrap())
    });
    let report = match sandbox.map(Confinement::enter).transpose() {
        Ok(report) => report.unwrap_or_default(),
        Err(error) => {
            eprintln!("{error}");
            return Err(ExitCode::from(INCOMPLETE));
        }
    };
    die_with_supervisor().unwrap();
    Ok((report, WorkerEnds::take().unwrap()))
}

fn attack_all(targets: &Targets) -> Vec<(&'static str, io::Result<()>)> {
    let supervisor = targets.supervisor;
    let proc = |file: &str| PathBuf::from(format!("/proc/{supervisor}/{file}"));
    vec![
        ("read_key", contains_secret(&targets.key)),
        ("read_environment_of_supervisor", contains_secret(&proc("environ"))),
        ("read_memory_of_supervisor", read_memory(targets)),
        ("open_descriptor_of_supervisor", {
            contains_secret(&proc(&format!("fd/{}", targets.key_descriptor)))
        }),
        ("list_descriptors_of_supervisor", fs::read_dir(proc("fd")).map(drop)),
        ("see_root_of_supervisor", fs::read_dir(proc("root")).map(drop)),
        ("trace_supervisor", trace(supervisor)),
        ("copy_memory_of_supervisor", copy_memory(targets)),
        // The default action of this signal is to ignore it.
        ("signal_supervisor", signal(supervisor, Signal::WINCH)),
        ("limit_supervisor", limit(supervisor)),
        ("lower_priority_of_supervisor", lower_priority(supervisor)),
        ("signal_supervisor_by_descriptor", signal_by_descriptor(supervisor)),
        ("send_datagram", send_datagram(&targets.datagram_socket)),
        ("send_datagram_of_pair", send_datagram_of_pair(&targets.datagram_socket)),
        ("send_datagram_of_raw_socket", send_datagram_of_raw_socket(&targets.datagram_socket)),
        ("send_descriptor", send_descriptor()),
        ("look_at_much_memory", look_at_much_memory()),
        ("send_many_messages", call(libc::SYS_sendmmsg, [COMMANDS_DESCRIPTOR.into(), 0, 0, 0, 0])),
        ("open_other_device", fs::File::open(&targets.other_device).map(drop)),
        ("connect_to_operator_socket", UnixStream::connect(&targets.operator_socket).map(drop)),
        ("connect_to_abstract_socket", {
            SocketAddr::from_abstract_name(&targets.abstract_socket)
                .and_then(|address| UnixStream::connect_addr(&address))
                .map(drop)
        }),
        ("connect_to_network", TcpStream::connect(("127.0.0.1", targets.port)).map(drop)),
        ("read_other_cache", fs::read(targets.other_cache.join("kernel")).map(drop)),
        ("write_other_cache", fs::write(targets.other_cache.join("kernel"), "evil")),
        ("climb_to_other_cache", {
            let path = targets.own_cache.join("..").join(targets.other_cache.file_name().unwrap());
            fs::read(path.join("kernel")).map(drop)
        }),
        ("lock_cgroups", lock_cgroups()),
        ("create_temporary_file", fs::write(&targets.temporary, "")),
        ("create_file_at_home", fs::write(&targets.home, "")),
        ("run_program", run_program()),
        ("open_many_descriptors", open_many_descriptors()),
        ("keep_many_signals", keep_many_signals()),
        ("watch_all_that_a_user_may", watch_all_that_a_user_may()),
        ("open_many_descriptors_in_threads", open_many_descriptors_in_threads()),
        ("start_thread_with_own_descriptors", start_thread_with_own_descriptors()),
        ("lock_open_file", lock_file(&targets.own_cache, libc::F_OFD_SETLK)),
        ("lock_parts_of_a_file", lock_file(&targets.own_cache, libc::F_SETLK)),
        ("wait_for_parts_of_a_file", lock_file(&targets.own_cache, libc::F_SETLKW)),
        ("list_locks", fs::File::open("/proc/locks").map(drop)),
        ("look_into_file_systems", look_into_file_systems()),
        ("list_mounts", fs::File::open("/proc/self/mountinfo").map(drop)),
        ("list_mounts_of_thread", fs::File::open("/proc/thread-self/mounts").map(drop)),
        ("list_mounts_by_number", call(LISTMOUNT, [0, 0, 0, 0, 0])),
        ("share_a_pipe", share_a_pipe()),
        ("dump_memory", dump_memory()),
        // Each layer copies all rules of the one before without a pause for other threads: 134,000 rules, of the files of
        // `/sys` and `/usr/lib`, kept a processor from all other processes for 0.15 s again and again.
        ("add_rules_for_files", call(libc::SYS_landlock_create_ruleset, [0, 0, 1, 0, 0])),
        ("add_filter", call(libc::SYS_seccomp, [1, 0, 0, 0, 0])),
        ("add_filter_by_setting", call(libc::SYS_prctl, [libc::PR_SET_SECCOMP.into(), 2, 0, 0, 0])),
        ("add_filter_to_socket", add_filter_to_socket()),
        ("use_asynchronous_requests", call(libc::SYS_io_setup, [1, 0, 0, 0, 0])),
        ("mount", mount(&targets.own_cache)),
        ("change_root", rustix::process::chroot(&targets.own_cache).map_err(Into::into)),
        ("create_device", create_device(&targets.own_cache.join("device"))),
        ("find_secret_in_environment", find_variable()),
        ("find_descriptors", find_descriptors()),
        ("load_module", call(libc::SYS_init_module, [0, 0, 0, 0, 0])),
        ("use_keyring", call(libc::SYS_keyctl, [0, -3, 0, 0, 0])),
        ("use_bpf", call(libc::SYS_bpf, [0, 0, 0, 0, 0])),
        ("use_perf", call(libc::SYS_perf_event_open, [0, 0, -1, -1, 0])),
        ("use_userfaultfd", call(libc::SYS_userfaultfd, [1, 0, 0, 0, 0])),
        ("use_io_uring", call(libc::SYS_io_uring_setup, [1, 0, 0, 0, 0])),
        ("wait_for_all_disks", call(libc::SYS_sync, [0, 0, 0, 0, 0])),
        ("wait_for_a_disk", call(libc::SYS_syncfs, [0, 0, 0, 0, 0])),
        ("type_into_terminal", call(libc::SYS_ioctl, [0, libc::TIOCSTI as i64, 0, 0, 0])),
        ("become_user_0", become_user_0()),
        ("use_unknown_call", call(100_000, [0, 0, 0, 0, 0])),
        (
            "lease_file",
            control_file(&targets.own_cache.join("kernel"), libc::F_SETLEASE, libc::F_WRLCK),
        ),
        ("watch_folder", control_file(&targets.own_cache, libc::F_NOTIFY, 1 /* DN_ACCESS */)),
        ("enlarge_pipe", enlarge_pipe()),
        ("ask_file_system", ask_file_system(&targets.own_cache)),
        ("watch_files", call(libc::SYS_inotify_init1, [0, 0, 0, 0, 0])),
        ("schedule_cores", call(libc::SYS_prctl, [libc::PR_SCHED_CORE.into(), 0, 0, 0, 1])),
        ("use_semaphores", call(libc::SYS_semop, [0, 0, 0, 0, 0])),
        ("use_messages", call(libc::SYS_msgsnd, [0, 0, 0, 0, 0])),
        ("create_timer", call(libc::SYS_timer_create, [0, 0, 0, 0, 0])),
        ("create_nameless_file", call(libc::SYS_memfd_create, [0, 0, 0, 0, 0])),
        ("interrupt_all_processors", call(libc::SYS_membarrier, [i64::MAX, 0, 0, 0, 0])),
        ("move_pages", call(libc::SYS_mbind, [0, 4096, 0, 0, 0, 2 /* MPOL_MF_MOVE */])),
        ("read_past_the_page_cache", read_past_the_page_cache()),
        ("give_up_much_memory", give_up_much_memory()),
        // The last one: its threads may count for a while after their end.
        ("start_many_threads", start_many_threads()),
    ]
}

fn refused(reason: &str) -> io::Error {
    io::Error::other(reason.to_owned())
}

fn contains_secret(path: &Path) -> io::Result<()> {
    let contents = fs::read(path)?;
    let found = contents.windows(SECRET.len()).any(|window| window == SECRET);
    if found { Ok(()) } else { Err(refused("the file has no secret")) }
}

fn read_memory(targets: &Targets) -> io::Result<()> {
    let mut bytes = [0; SECRET.len()];
    let memory = fs::File::open(format!("/proc/{}/mem", targets.supervisor))?;
    memory.read_exact_at(&mut bytes, targets.secret as u64)?;
    if bytes == *SECRET { Ok(()) } else { Err(refused("the memory has no secret")) }
}

fn copy_memory(targets: &Targets) -> io::Result<()> {
    let mut bytes = [0_u8; SECRET.len()];
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let remote =
        libc::iovec { iov_base: ptr::without_provenance_mut(targets.secret), iov_len: bytes.len() };
    // SAFETY: the kernel writes to `bytes`, and checks the remote address.
    let copied = unsafe {
        libc::process_vm_readv(
            targets.supervisor as i32,
            &raw const local,
            1,
            &raw const remote,
            1,
            0,
        )
    };
    match copied {
        ..0 => Err(io::Error::last_os_error()),
        _ if bytes == *SECRET => Ok(()),
        _ => Err(refused("the memory has no secret")),
    }
}

fn trace(process: u32) -> io::Result<()> {
    let seize = move || {
        let none = ptr::null_mut::<libc::c_void>();
        // SAFETY: the request takes no memory.
        match unsafe { libc::ptrace(libc::PTRACE_SEIZE, process as libc::pid_t, none, none) } {
            ..0 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    };
    // The supervisor is not traced any more when the thread ends.
    std::thread::spawn(seize).join().expect("the thread does not panic")
}

fn signal(process: u32, signal: Signal) -> io::Result<()> {
    let process = Pid::from_raw(process as i32).ok_or_else(|| refused("no process"))?;
    Ok(rustix::process::kill_process(process, signal)?)
}

/// Makes the kernel send a signal to a process when a pipe gets a byte.
fn signal_by_descriptor(process: u32) -> io::Result<()> {
    let (reader, mut writer) = io::pipe()?;
    for (command, value) in [
        (libc::F_SETOWN, process as i32),
        (10 /* F_SETSIG */, libc::SIGWINCH),
        (libc::F_SETFL, libc::O_ASYNC),
    ] {
        // SAFETY: the commands take numbers.
        if unsafe { libc::fcntl(reader.as_raw_fd(), command, value) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    writer.write_all(b"!")
}

fn send_datagram(socket: &Path) -> io::Result<()> {
    UnixDatagram::unbound()?.send_to(b"READY=0", socket).map(drop)
}

/// One of two sockets that are connected to each other can send to any other socket.
fn send_datagram_of_pair(socket: &Path) -> io::Result<()> {
    UnixDatagram::pair()?.0.send_to(b"READY=0", socket).map(drop)
}

/// A raw Unix socket is one for datagrams.
fn send_datagram_of_raw_socket(socket: &Path) -> io::Result<()> {
    use rustix::net::{AddressFamily, SocketType};
    let raw = rustix::net::socket(AddressFamily::UNIX, SocketType::RAW, None)?;
    UnixDatagram::from(raw).send_to(b"READY=0", socket).map(drop)
}

/// Puts a descriptor into the queue of a socket, where it outlives its process. The queues to the supervisor take it too.
fn send_descriptor() -> io::Result<()> {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let (socket, _other) = UnixStream::pair()?;
    let descriptors = [socket.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut message = SendAncillaryBuffer::new(&mut space);
    assert!(message.push(SendAncillaryMessage::ScmRights(&descriptors)));
    let sent = sendmsg(&socket, &[IoSlice::new(b"!")], &mut message, SendFlags::empty());
    Ok(sent.map(drop)?)
}

/// Asks whether much memory is present. No signal ends the call.
fn look_at_much_memory() -> io::Result<()> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let length = 2 << 30;
    let mut pages = vec![0_u8; length >> 12];
    // SAFETY: a new mapping, and one byte for each of its pages.
    let looked = unsafe {
        let memory = libc::mmap(ptr::null_mut(), length, libc::PROT_NONE, flags, -1, 0);
        libc::mincore(memory, length, pages.as_mut_ptr())
    };
    if looked == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Locks the folder of the cgroups, as a supervisor locks those of its workers while it lives.
fn lock_cgroups() -> io::Result<()> {
    let folder = fs::File::open("/sys/fs/cgroup")?;
    Ok(rustix::fs::flock(&folder, FlockOperation::NonBlockingLockShared)?)
}

fn limit(process: u32) -> io::Result<()> {
    let process = Pid::from_raw(process as i32);
    let core = rustix::process::getrlimit(rustix::process::Resource::Core);
    Ok(rustix::process::prlimit(process, rustix::process::Resource::Core, core).map(drop)?)
}

/// Lowers the priority of all processes of its user that it sees, and looks whether a process is one of them.
fn lower_priority(process: u32) -> io::Result<()> {
    // Above the nice value of workers, which they may not lower.
    const NICE: libc::c_int = 11;
    // SAFETY: the calls take numbers.
    let (set, priority) = unsafe {
        let set = libc::setpriority(libc::PRIO_USER, 0, NICE);
        (set, libc::getpriority(libc::PRIO_PROCESS, process))
    };
    match (set, priority) {
        (0, NICE) => Ok(()),
        (0, _) => Err(refused("the process has its priority")),
        _ => Err(io::Error::last_os_error()),
    }
}

fn run_program() -> io::Result<()> {
    let status = Command::new("/bin/true").status()?;
    if status.success() { Ok(()) } else { Err(refused("the program failed")) }
}

/// Epolls on many descriptors each would use all watches of the user, who may be that of the supervisor.
fn open_many_descriptors() -> io::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    let null = fs::File::open("/dev/null")?;
    (0..2000).map(|_| null.try_clone()).collect::<io::Result<Vec<_>>>().map(drop)
}

/// Starts more threads than a worker may have.
fn start_many_threads() -> io::Result<()> {
    let processors = std::thread::available_parallelism()?.get();
    let count = 1024.max(4 * processors) + 10;
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let ended = std::sync::Arc::new(std::sync::Mutex::new(ended));
    let mut threads = Vec::new();
    let started = (0..count).try_for_each(|_| {
        let ended = ended.clone();
        let wait = move || _ = ended.lock().map(|ended| ended.recv());
        threads.push(std::thread::Builder::new().stack_size(64 << 10).spawn(wait)?);
        Ok(())
    });
    drop(end);
    threads.into_iter().for_each(|thread| _ = thread.join());
    started
}

/// Sends signals to itself and takes none. The kernel looks for a signal among all that wait, without interrupts: with
/// 515,506 of them, as many as a user may have on a machine with 128 GiB, 16 threads that send and take another one kept 16
/// processors from all other processes for half a second at a time, and 64 threads for more than a minute.
fn keep_many_signals() -> io::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    const SIGNALS: usize = 5000;
    let maximum = getrlimit(Resource::Sigpending).maximum;
    setrlimit(Resource::Sigpending, Rlimit { current: maximum, maximum })?;
    let signal = libc::SIGRTMIN() + 1;
    // SAFETY: the signal sets are initialized before they are used, and zeros are a valid `siginfo_t`. The signals are for
    // this thread, which has taken all of them before it admits them again.
    unsafe {
        let (mut one, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigemptyset(&raw mut one);
        libc::sigaddset(&raw mut one, signal);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const one, &raw mut before);
        let mut about: libc::siginfo_t = std::mem::zeroed();
        (about.si_signo, about.si_code) = (signal, libc::SI_QUEUE);
        let (process, thread) = (libc::getpid(), libc::gettid());
        let send = || {
            let call = libc::SYS_rt_tgsigqueueinfo;
            match libc::syscall(call, process, thread, signal, &raw const about) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        };
        let sent = (0..SIGNALS).try_for_each(|_| send());
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        while libc::sigtimedwait(&raw const one, ptr::null_mut(), &raw const now) == signal {}
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
        sent
    }
}

/// An epoll watches a file once for each number of a descriptor that the file has had, also if that descriptor is closed.
/// So a third of the descriptors are epolls, a third are files, and the files get the numbers of the last third in turn.
/// With 1,024 descriptors, all 5,491,511 watches of a user of a machine with 24 GiB took 13 seconds and 1.1 GiB.
fn watch_all_that_a_user_may() -> io::Result<()> {
    let third = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    let third = third.unwrap_or(u64::MAX) / 3;
    let own = third.saturating_mul(third).saturating_mul(third);
    let all = fs::read_to_string("/proc/sys/fs/epoll/max_user_watches")?;
    let all: u64 = all.trim().parse().map_err(io::Error::other)?;
    if own >= all { Ok(()) } else { Err(refused("the descriptors are too few")) }
}

/// Gives this thread a table of descriptors of its own, which has a limit of its own.
fn own_descriptors() -> io::Result<()> {
    const CLOSE_RANGE_UNSHARE: libc::c_uint = 2;
    // SAFETY: closes no descriptor. Those of the table are used by this thread alone from here on.
    match unsafe { libc::syscall(libc::SYS_close_range, u32::MAX, u32::MAX, CLOSE_RANGE_UNSHARE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// As [`open_many_descriptors`], in threads that share no descriptors.
fn open_many_descriptors_in_threads() -> io::Result<()> {
    let open = || {
        own_descriptors()?;
        let null = fs::File::open("/dev/null")?;
        (0..900).map(|_| null.try_clone()).collect::<io::Result<Vec<_>>>()
    };
    let (ended, wait) = (std::sync::Barrier::new(3), std::sync::Mutex::new(Ok(())));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let opened = open();
                ended.wait();
                if let Err(error) = opened {
                    *wait.lock().unwrap() = Err(error);
                }
            });
        }
    });
    wait.into_inner().unwrap()
}

/// Starts a thread that shares all but its descriptors, without the C library.
fn start_thread_with_own_descriptors() -> io::Result<()> {
    use std::sync::atomic::{AtomicBool, Ordering};
    static HAS_RUN: AtomicBool = AtomicBool::new(false);
    extern "C" fn run(_: *mut libc::c_void) -> libc::c_int {
        HAS_RUN.store(true, Ordering::SeqCst);
        // SAFETY: ends the thread.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
        0
    }
    HAS_RUN.store(false, Ordering::SeqCst);
    let stack = Box::leak(vec![0_u8; 1 << 16].into_boxed_slice());
    let flags = libc::CLONE_VM | libc::CLONE_THREAD | libc::CLONE_SIGHAND | libc::CLONE_FS;
    // SAFETY: the thread has a stack of its own, and uses no storage of a thread.
    unsafe {
        let end = stack.as_mut_ptr().add(stack.len()).cast();
        if libc::clone(run, end, flags, ptr::null_mut()) < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    while !HAS_RUN.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    std::thread::sleep(std::time::Duration::from_millis(1));
    Ok(())
}

/// Locks a part of a file. A file may have millions of locks. Each descriptor of an open file with locks looks at all of them
/// when it is closed, which no signal shortens. And the kernel lists the locks of a process in `/proc/self/fdinfo` without a
/// pause for other threads: with 60,000 locks, four threads that read the list kept two processors from all other processes
/// for a second at a time. The driver locks its cache: a call that has no effect may succeed.
fn lock_file(folder: &Path, command: libc::c_int) -> io::Result<()> {
    let file = fs::File::create(folder.join("locks"))?;
    // SAFETY: zeros are valid, and the kernel reads the lock.
    let locked = unsafe {
        let mut lock: libc::flock = std::mem::zeroed();
        (lock.l_type, lock.l_len) = (libc::F_WRLCK as i16, 1);
        libc::fcntl(file.as_raw_fd(), command, &raw const lock)
    };
    if locked != 0 {
        return Err(io::Error::last_os_error());
    }
    let state = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd()))?;
    if state.contains("lock:") { Ok(()) } else { Err(refused("the file has no lock")) }
}

/// Opens a file or a folder, and controls it with a command that takes a number.
fn control_file(path: &Path, command: libc::c_int, number: libc::c_int) -> io::Result<()> {
    let file = fs::File::open(path)?;
    // SAFETY: the command takes a number.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, number) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Enlarges a pipe, whose memory counts for its user.
fn enlarge_pipe() -> io::Result<()> {
    let (_reader, writer) = io::pipe()?;
    // SAFETY: the command takes a number.
    match unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, 1 << 17) } {
        ..0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Makes a request of the file system: those with more effect have the same form.
fn ask_file_system(folder: &Path) -> io::Result<()> {
    let folder = fs::File::open(folder)?;
    match rustix::fs::ioctl_getflags(&folder) {
        // The file system does not have it.
        Ok(_) | Err(rustix::io::Errno::NOTTY | rustix::io::Errno::OPNOTSUPP) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Adds a filter to a socket. The code of all filters of all users together has a limit, beyond which no other worker gets
/// its filter of system calls.
fn add_filter_to_socket() -> io::Result<()> {
    let (socket, _other) = UnixStream::pair()?;
    // SAFETY: the kernel reads the filter, which returns a number.
    let added = unsafe {
        let mut code =
            libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 1 };
        let filter = libc::sock_fprog { len: 1, filter: &raw mut code };
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const filter).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if added == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Looks for a pipe whose other end the supervisor has. Both ends have one lock, which the kernel keeps while it copies what a
/// process writes. A worker that wrote from memory that was not there, while other threads changed the rights of 8 GiB, stopped
/// a thread of its supervisor for 10 to 99 s.
fn share_a_pipe() -> io::Result<()> {
    let is_pipe =
        |path: &PathBuf| fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo());
    let descriptors = (0..6).map(|number| PathBuf::from(format!("/proc/self/fd/{number}")));
    match descriptors.into_iter().find(is_pipe) {
        Some(_) => Ok(()),
        None => Err(refused("there is none")),
    }
}

/// Opens a file with which a driver of a file system shows its state. The kernel counts all inodes in memory under one lock,
/// which others need to open files, for each read of `/proc/fs/ext4/*/es_shrinker_info`: with 112,000 inodes it took 15 ms,
/// and 16 threads of a nice value of 10 kept two processors from all other processes for 0.6 s at a time.
fn look_into_file_systems() -> io::Result<()> {
    let mut folders = vec![PathBuf::from("/proc/fs")];
    let mut last = refused("there are no file systems");
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) => {
                last = error;
                continue;
            }
        };
        for entry in entries.flatten() {
            match entry.file_type()?.is_dir() {
                true => folders.push(entry.path()),
                false => match fs::File::open(entry.path()) {
                    Ok(_) => return Ok(()),
                    Err(error) => last = error,
                },
            }
        }
    }
    Err(last)
}

/// Prepares a crash after which the kernel gives all memory of this process to the program for core files. That program is
/// root and outside of the cgroup of the worker, on most machines.
fn dump_memory() -> io::Result<()> {
    use rustix::process::{dumpable_behavior, set_dumpable_behavior};
    let before = dumpable_behavior()?;
    set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    Ok(set_dumpable_behavior(before)?)
}

/// Opens a library so that reads go to the disk, each time. No signal ends such a read: 64 threads that read a file of 282 MiB
/// at once, with 1.4 GB/s, ended 12.7 s after their process was killed. With 1,024 threads, or with a slow disk, the end takes
/// minutes.
fn read_past_the_page_cache() -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let maps = fs::read_to_string("/proc/self/maps")?;
    let library = maps
        .lines()
        .find_map(|line| Some(&line[line.find("/")?..]).filter(|path| path.contains("libc.so")));
    let library = library.ok_or_else(|| refused("there is no library"))?;
    let opened = fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(library);
    opened.map(drop).or_else(|_| {
        let file = fs::File::open(library)?;
        // SAFETY: the command takes a number.
        match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, libc::O_DIRECT) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    })
}

/// Tells the kernel that much memory is of no use. No signal ends the call, and threads call it at the same time. In 16 GiB of
/// pages of zeros, whose page tables take 32 MiB, it takes 0.15 s: 64 threads ended 3.9 s after their process was killed, on
/// two processors.
fn give_up_much_memory() -> io::Result<()> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let length = 2 << 30;
    // SAFETY: a new mapping, which nothing uses.
    let given = unsafe {
        let memory = libc::mmap(ptr::null_mut(), length, libc::PROT_NONE, flags, -1, 0);
        libc::madvise(memory, length, libc::MADV_FREE)
    };
    if given == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn mount(folder: &Path) -> io::Result<()> {
    rustix::mount::mount("tmpfs", folder, "tmpfs", MountFlags::empty(), None)?;
    Ok(rustix::mount::unmount(folder, UnmountFlags::DETACH)?)
}

/// Creates the device file of `/dev/mem`.
fn create_device(path: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
    Ok(mknodat(CWD, path, FileType::CharacterDevice, Mode::RUSR, makedev(1, 1))?)
}

fn find_variable() -> io::Result<()> {
    match std::env::var_os(SECRET_VARIABLE) {
        Some(_) => Ok(()),
        None => Err(refused("the variable is not set")),
    }
}

/// Becomes the first user of its namespace, on a thread of its own.
fn become_user_0() -> io::Result<()> {
    let become_it = || rustix::thread::set_thread_uid(rustix::process::Uid::ROOT);
    Ok(std::thread::spawn(become_it).join().expect("the thread does not panic")?)
}

/// Looks for descriptors other than the standard ones and the sockets.
/// Other descriptors than those of `/proc`, which the worker opens itself.
fn find_descriptors() -> io::Result<()> {
    let is_foreign = |descriptor| {
        let mut system = MaybeUninit::<libc::statfs>::uninit();
        // SAFETY: the call writes the whole structure if it succeeds.
        let result = unsafe { libc::fstatfs(descriptor, system.as_mut_ptr()) };
        // SAFETY: the call succeeded.
        result == 0 && unsafe { system.assume_init() }.f_type != libc::PROC_SUPER_MAGIC
    };
    if (6..1024).any(is_foreign) { Ok(()) } else { Err(refused("there are none")) }
}

/// Makes a system call with arguments that it does not take. An error about the arguments means that the caller may use
/// the call.
fn call<const N: usize>(number: i64, arguments: [i64; N]) -> io::Result<()> {
    let mut all = [0; 6];
    all[..N].copy_from_slice(&arguments);
    let [a, b, c, d, e, f] = all;
    // SAFETY: the pointers of these calls are null, so they change no memory.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        _ if result >= 0 => Ok(()),
        Some(libc::EINVAL | libc::EFAULT | libc::ENOEXEC | libc::E2BIG | libc::ENOTTY) => Ok(()),
        _ => Err(error),
    }
}

/// Becomes root in a user namespace, and attacks again. The outcomes are named `root:...`.
fn as_root_of_a_namespace(targets: &Targets) -> io::Result<Outcomes> {
    let (mut reader, writer) = io::pipe()?;
    // SAFETY: the C library prepares its locks for a fork, and the child exits without running other code.
    match unsafe { libc::fork() } {
        ..0 => return Err(io::Error::last_os_error()),
        0 => {
            let outcomes: Outcomes = match become_root() {
                Ok(()) => attack_all(targets)
                    .into_iter()
                    .map(|(name, outcome)| {
                        (format!("root:{name}"), outcome.err().map(|error| error.to_string()))
                    })
                    .chain([("become_root".to_owned(), None)])
                    .collect(),
                Err(error) => [("become_root".to_owned(), Some(error.to_string()))].into(),
            };
            serde_json::to_writer(&writer, &outcomes).unwrap();
            // SAFETY: ends the child.
            unsafe { libc::_exit(0) }
        }
        _ => drop(writer),
    }
    let mut outcomes = String::new();
    reader.read_to_string(&mut outcomes)?;
    Ok(serde_json::from_str(&outcomes)?)
}

/// Gets all capabilities of a new namespace. Landlock may refuse the map of users, which they do not need.
fn become_root() -> io::Result<()> {
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    // SAFETY: neither flag is `FILES`.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS) }?;
    _ = fs::write("/proc/self/setgroups", "deny");
    _ = fs::write("/proc/self/uid_map", format!("0 {uid} 1"));
    _ = fs::write("/proc/self/gid_map", format!("0 {gid} 1"));
    Ok(())
}

/// Leaves a process behind that answers on the socket after the end of the worker.
fn daemon(socket: i32) -> io::Result<()> {
    // SAFETY: the children only make system calls.
    unsafe {
        match libc::fork() {
            ..0 => return Err(io::Error::last_os_error()),
            0 => {}
            child => {
                libc::waitpid(child, ptr::null_mut(), 0);
                return Ok(());
            }
        }
        libc::setsid();
        if libc::fork() != 0 {
            libc::_exit(0);
        }
        // Nothing but the socket ties the process to its origin.
        for descriptor in (0..64).filter(|descriptor| *descriptor != socket) {
            libc::close(descriptor);
        }
        let mut byte = 0_u8;
        while libc::read(socket, (&raw mut byte).cast(), 1) == 1 {
            libc::write(socket, (&raw const byte).cast(), 1);
        }
        libc::_exit(0)
    }
}
