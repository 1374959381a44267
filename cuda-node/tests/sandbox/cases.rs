//! The tests.

use std::{
    fs::Permissions,
    io::{BufRead as _, BufReader},
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::OnceLock,
    time::{Duration, Instant},
};

use cuda_node::process::Part;
use libtest_mimic::Trial;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::{
    attacks::{Findings, INCOMPLETE, SECRET, SECRET_VARIABLE},
    supervisor::{
        FILL, Filled, HOLD, INHERITED, OFF, OUTLIVE, REQUIRED, WITHOUT_FILTERS, WITHOUT_LANDLOCK,
        WITHOUT_MOUNTS, WITHOUT_NAMESPACES, cgroup_of,
    },
};

/// The limit of a wait. A loaded machine stays far below it.
const LIMIT: Duration = Duration::from_secs(30);

/// The user of the supervisors that do not run as root.
const USER: u32 = 64_321;

/// The attacks that succeed on every machine if there is no sandbox.
const CERTAIN: [&str; 55] = [
    "add_filter",
    "add_filter_by_setting",
    "add_filter_to_socket",
    "become_root",
    "connect_to_abstract_socket",
    "connect_to_network",
    "connect_to_operator_socket",
    "ask_file_system",
    "change_other_cache",
    "climb_to_other_cache",
    "create_file_at_home",
    "create_nameless_file",
    "create_temporary_file",
    "daemon",
    "dump_memory",
    "end_other_worker",
    "enlarge_pipe",
    "find_secret_in_environment",
    "give_up_much_memory",
    "keep_many_signals",
    "lease_file",
    "limit_supervisor",
    "lock_open_file",
    "lock_parts_of_a_file",
    "wait_for_parts_of_a_file",
    "lower_priority_of_supervisor",
    "open_many_descriptors",
    "open_many_descriptors_in_threads",
    "start_thread_with_own_descriptors",
    "use_asynchronous_requests",
    "open_other_device",
    "send_datagram",
    "send_datagram_of_pair",
    "send_datagram_of_raw_socket",
    "look_at_much_memory",
    "send_descriptor",
    "send_many_messages",
    "signal_supervisor_by_descriptor",
    "start_many_threads",
    "list_descriptors_of_supervisor",
    "list_locks",
    "list_mounts",
    "list_mounts_of_thread",
    "lock_cgroups",
    "read_environment_of_supervisor",
    "read_key",
    "root:read_key",
    "run_program",
    "signal_supervisor",
    "survive_the_kill",
    "wait_for_a_disk",
    "wait_for_all_disks",
    "watch_all_that_a_user_may",
    "watch_files",
    "watch_folder",
];

/// Attacks on the memory of the supervisor. The security module Yama also refuses them.
const TRACING: [&str; 3] =
    ["copy_memory_of_supervisor", "read_memory_of_supervisor", "trace_supervisor"];

/// Attempts that only the filter of system calls refuses. In these tests they reach nothing outside of the sandbox: they
/// change the namespaces of the worker, use parts of the kernel, wait for disks, use sockets of the worker, or need a
/// terminal.
const FILTERED: [&str; 41] = [
    "add_filter",
    "add_filter_by_setting",
    "add_filter_to_socket",
    "add_rules_for_files",
    "ask_file_system",
    "become_root",
    "change_root",
    "create_nameless_file",
    "create_timer",
    "daemon",
    "dump_memory",
    "enlarge_pipe",
    "find_descriptors",
    "give_up_much_memory",
    "interrupt_all_processors",
    "lease_file",
    "list_mounts_by_number",
    "lock_open_file",
    "lock_parts_of_a_file",
    "look_at_much_memory",
    "move_pages",
    "open_many_descriptors_in_threads",
    "read_past_the_page_cache",
    "schedule_cores",
    "send_descriptor",
    "send_many_messages",
    "start_thread_with_own_descriptors",
    "type_into_terminal",
    "use_asynchronous_requests",
    "use_bpf",
    "use_io_uring",
    "use_keyring",
    "use_messages",
    "use_perf",
    "use_semaphores",
    "use_userfaultfd",
    "wait_for_a_disk",
    "wait_for_all_disks",
    "wait_for_parts_of_a_file",
    "watch_files",
    "watch_folder",
];

/// Attacks on what is not protected by files of their own user, but by namespaces or filters.
const BEYOND_USER: [&str; 12] = [
    "connect_to_abstract_socket",
    "connect_to_network",
    "create_temporary_file",
    "list_locks",
    "list_mounts",
    "list_mounts_of_thread",
    "lock_cgroups",
    "look_into_file_systems",
    "open_other_device",
    "send_datagram",
    "send_datagram_of_pair",
    "send_datagram_of_raw_socket",
];

/// A copy of this program that every user can run.
static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Copies this program to where every user can run it, until the returned guard is dropped.
pub fn publish_program() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("sandbox");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    PROGRAM.set(program).unwrap();
    folder
}

fn program() -> &'static Path {
    PROGRAM.get().expect("the program is published")
}

pub fn all() -> Vec<Trial> {
    let is_root = rustix::process::geteuid().is_root();
    macro_rules! trials {
        ($ignored:expr; $($name:ident),* $(,)?) => {
            vec![$(Trial::test(stringify!($name), || { $name(); Ok(()) }).with_ignored_flag($ignored)),*]
        };
    }
    let mut trials = trials![
        false;
        attacks_succeed_without_a_sandbox,
        attacks_of_a_users_worker_are_refused,
        attacks_under_a_root_of_a_namespace_are_refused,
        attacks_without_landlock_are_refused,
        attacks_without_namespaces_are_refused,
        attacks_without_a_filter_of_system_calls_reach_nothing,
        required_sandbox_is_an_error_without_namespaces,
        killed_supervisor_ends_workers_in_namespaces,
        pid_namespace_needs_a_proc_of_its_own,
        required_sandbox_names_each_missing_part,
        inherited_descriptor_is_reported,
        later_worker_with_fewer_parts_of_the_sandbox_gets_no_lease,
    ];
    trials.extend(trials![
        !is_root;
        attacks_of_roots_worker_are_refused,
        attacks_of_roots_worker_without_namespaces_are_refused,
        user_id_alone_keeps_workers_from_keys_and_processes,
    ]);
    trials.extend(trials![
        !limit_of(&mut root_program("print-memory-limit")).starts_with("cgroup");
        worker_beyond_its_memory_limit_is_killed_and_leaves_no_cgroup,
        cgroup_of_a_killed_supervisor_is_removed_by_the_next_one,
        worker_of_a_killed_supervisor_is_ended_by_the_next_one_unless_it_may_outlive,
        lease_whose_worker_is_beyond_its_memory_limit_says_so,
    ]);
    trials
}

fn attacks_succeed_without_a_sandbox() {
    let findings = attack(user(&[OFF]));
    let traced: &[&str] = match std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope") {
        Ok(scope) if scope.trim() != "0" => &[],
        _ => &TRACING,
    };
    for name in CERTAIN.iter().chain(traced) {
        assert_eq!(findings.outcomes[*name], None, "{name}");
    }
}

fn attacks_of_a_users_worker_are_refused() {
    let findings = attack(user(&[]));
    assert_refused(&findings, &[]);
    assert_eq!(missing(&findings), []);
}

fn attacks_under_a_root_of_a_namespace_are_refused() {
    let mut supervisor = Command::new("unshare");
    supervisor.args(["--user", "--map-root-user"]).arg(program()).arg("--role=supervisor");
    let findings = attack(as_user(supervisor));
    // User 0 of this namespace is the user of the supervisor.
    assert_refused(&findings, &["become_user_0"]);
    assert_eq!(missing(&findings), []);
}

fn attacks_without_landlock_are_refused() {
    let findings = attack(user(&[WITHOUT_LANDLOCK]));
    // The driver needs the folder of the threads.
    assert_refused(&findings, &["list_mounts_of_thread"]);
    assert_eq!(missing(&findings), []);
}

fn attacks_without_namespaces_are_refused() {
    let findings = attack(user(&[WITHOUT_NAMESPACES]));
    // Their number is limited for each user, and that of the worker is the user of the supervisor.
    assert_refused(&findings, &["start_many_threads"]);
    assert_eq!(missing(&findings), [Part::Processes, Part::Network, Part::Identity]);
}

/// The hostile worker becomes root in a namespace of its own, and attacks from there too.
fn attacks_without_a_filter_of_system_calls_reach_nothing() {
    let findings = attack(user(&[WITHOUT_FILTERS]));
    assert_eq!(missing(&findings), [Part::SystemCalls]);
    assert_eq!(findings.outcomes["become_root"], None);
    assert_refused(&findings, &FILTERED);
}

fn attacks_of_roots_worker_are_refused() {
    let findings = attack(root(&[]));
    assert_refused(&findings, &[]);
    assert_eq!(missing(&findings), []);
}

fn attacks_of_roots_worker_without_namespaces_are_refused() {
    let findings = attack(root(&[WITHOUT_NAMESPACES]));
    assert_refused(&findings, &[]);
    assert_eq!(missing(&findings), [Part::Processes, Part::Network]);
}

/// Neither namespaces nor Landlock nor a filter of system calls.
fn user_id_alone_keeps_workers_from_keys_and_processes() {
    let options = [WITHOUT_NAMESPACES, WITHOUT_LANDLOCK, WITHOUT_FILTERS];
    let findings = attack(root(&options));
    // The kernel checks the user again before it sends such a signal.
    let others = ["run_program", "signal_supervisor_by_descriptor", "survive_the_kill"];
    let harmless = [&FILTERED[..], &BEYOND_USER, &others].concat();
    assert_refused(&findings, &harmless);
    let missing = missing(&findings);
    assert_eq!(missing, [Part::Processes, Part::Network, Part::Files, Part::SystemCalls]);
}

fn pid_namespace_needs_a_proc_of_its_own() {
    let findings = attack(user(&[WITHOUT_MOUNTS]));
    assert_refused(&findings, &[]);
    assert_eq!(missing(&findings), [Part::Processes]);
    let report = findings.report.to_string();
    assert!(
        report.starts_with("PID namespace: no PID namespace with a `/proc` of its own: "),
        "{report}"
    );
}

fn required_sandbox_names_each_missing_part() {
    let options = [WITHOUT_NAMESPACES, WITHOUT_LANDLOCK, WITHOUT_FILTERS, REQUIRED];
    let output = run(user(&options));
    assert_eq!(output.status.code(), Some(INCOMPLETE.into()));
    let stderr = String::from_utf8(output.stderr).unwrap();
    for part in [Part::Processes, Part::Network, Part::Identity, Part::Files, Part::SystemCalls] {
        assert!(stderr.contains(&format!("{part}: ")), "{part}: {stderr}");
    }
}

fn inherited_descriptor_is_reported() {
    let findings = attack(user(&[INHERITED]));
    assert_refused(&findings, &["find_descriptors"]);
    assert_eq!(missing(&findings), [Part::Descriptors]);
}

/// A hostile worker may have used up what the filters of all processes share.
fn later_worker_with_fewer_parts_of_the_sandbox_gets_no_lease() {
    let output = root_program("changing-node").output().unwrap();
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(stdout.starts_with("refused: "), "{stdout}{stderr}");
}

fn worker_beyond_its_memory_limit_is_killed_and_leaves_no_cgroup() {
    let output = run(root(&[FILL]));
    let Filled { cause, exceeded, cgroup, share } = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(cause, "was ended by signal 9");
    let limit = exceeded.expect("the worker was killed for its memory");
    assert!((64 << 20..256 << 20).contains(&limit), "{limit}");
    assert!(!exists(&cgroup.expect("the worker had a cgroup")));
    let share = share.expect("the worker had a share of the processors");
    assert!(["10", "102"].contains(&share.trim()), "{share}");
}

fn cgroup_of_a_killed_supervisor_is_removed_by_the_next_one() {
    let mut supervisor = root(&[HOLD]).stdout(Stdio::piped()).spawn().unwrap();
    let worker = first_line(&mut supervisor);
    let cgroup = cgroup_of(worker.parse().unwrap()).expect("the worker has a cgroup");
    supervisor.kill().unwrap();
    supervisor.wait().unwrap();
    wait_for_end(&worker);
    assert!(exists(&cgroup), "{cgroup}");
    // The cgroup of a process that has ended may be busy for a moment.
    let deadline = Instant::now() + LIMIT;
    while exists(&cgroup) {
        assert!(Instant::now() < deadline, "{cgroup} exists");
        limit_of(&mut root_program("print-memory-limit"));
    }
}

/// A process that ends with this value, also if a test fails.
struct Ended(Pid);

impl Drop for Ended {
    fn drop(&mut self) {
        _ = kill_process(self.0, Signal::KILL);
    }
}

/// A worker that does not obey, such as a stopped one, outlived a supervisor that was killed.
fn worker_of_a_killed_supervisor_is_ended_by_the_next_one_unless_it_may_outlive() {
    let stopped = |options: &[&str]| {
        let mut supervisor = root(options).stdout(Stdio::piped()).spawn().unwrap();
        let worker = first_line(&mut supervisor);
        let id = Pid::from_raw(worker.parse().unwrap()).unwrap();
        kill_process(id, Signal::STOP).unwrap();
        supervisor.kill().unwrap();
        supervisor.wait().unwrap();
        (worker, Ended(id))
    };
    let (kept, end_of_kept) = stopped(&[HOLD, OUTLIVE]);
    let (worker, _end) = stopped(&[HOLD]);
    assert!(runs(&worker) && runs(&kept));
    limit_of(&mut root_program("print-memory-limit"));
    wait_for_end(&worker);
    assert!(runs(&kept), "the worker may outlive its supervisor");
    drop(end_of_kept);
    wait_for_end(&kept);
}

fn lease_whose_worker_is_beyond_its_memory_limit_says_so() {
    let output = root_program("node").output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.contains("its worker ran out of host memory, the limit is "), "{output:?}");
}

/// Whether a cgroup exists in one of the hierarchies.
fn exists(cgroup: &str) -> bool {
    let mounts = ["", "/memory", "/pids", "/cpu", "/unified"];
    mounts.iter().any(|mount| Path::new(&format!("/sys/fs/cgroup{mount}{cgroup}")).exists())
}

/// This program in a role, with the user of this process.
fn root_program(role: &str) -> Command {
    let mut command = Command::new(program());
    command.arg(format!("--role={role}"));
    command
}

/// The means that limits the memory of the workers of a supervisor.
fn limit_of(supervisor: &mut Command) -> String {
    String::from_utf8(supervisor.output().unwrap().stdout).unwrap()
}

fn first_line(process: &mut std::process::Child) -> String {
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    line.trim().to_owned()
}

fn required_sandbox_is_an_error_without_namespaces() {
    let output = run(user(&[WITHOUT_NAMESPACES, REQUIRED]));
    assert_eq!(output.status.code(), Some(INCOMPLETE.into()));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.contains("the sandbox of the worker is incomplete: PID namespace: "),
        "{stderr}"
    );
}

fn killed_supervisor_ends_workers_in_namespaces() {
    let mut supervisor = user(&[HOLD]).stdout(Stdio::piped()).spawn().unwrap();
    let worker = first_line(&mut supervisor);
    assert!(Path::new("/proc").join(&worker).exists());
    supervisor.kill().unwrap();
    supervisor.wait().unwrap();
    wait_for_end(&worker);
}

/// Waits for the end of a process. It is now a child of another one, which may reap it late.
fn wait_for_end(worker: &str) {
    let deadline = Instant::now() + LIMIT;
    while runs(worker) {
        assert!(Instant::now() < deadline, "the worker runs {LIMIT:?} after its supervisor");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn runs(worker: &str) -> bool {
    let stat = Path::new("/proc").join(worker).join("stat");
    let state = std::fs::read_to_string(&stat).unwrap_or_default();
    !matches!(
        state.rsplit(')').next().unwrap_or_default().trim_start().chars().next(),
        None | Some('Z' | 'X')
    )
}

/// The parts that are missing. A user may have no cgroup, or the one of a node may have other processes. A worker with
/// device files then has no limit of host memory.
fn missing(findings: &Findings) -> Vec<Part> {
    let parts = findings.report.parts().iter().filter(|part| part.missing.is_some());
    parts.map(|part| part.part).filter(|part| *part != Part::HostMemory).collect()
}

/// Checks that all attacks were refused, except those with these names.
fn assert_refused(findings: &Findings, harmless: &[&str]) {
    let succeeded = findings.outcomes.iter().filter(|(_, error)| error.is_none());
    let names = succeeded.map(|(name, _)| name.strip_prefix("root:").unwrap_or(name));
    let harmful: Vec<_> = names.filter(|name| !harmless.contains(name)).collect();
    assert!(harmful.is_empty(), "these attacks succeeded: {harmful:?}\n{findings:#?}");
    assert!(findings.has_own_proc, "{findings:#?}");
}

/// A supervisor that is root.
fn root(options: &[&str]) -> Command {
    let mut supervisor = Command::new(program());
    supervisor.arg("--role=supervisor").args(options);
    supervisor
}

/// A supervisor that is an ordinary user.
fn user(options: &[&str]) -> Command {
    as_user(root(options))
}

fn as_user(mut command: Command) -> Command {
    if rustix::process::geteuid().is_root() {
        command.uid(USER).gid(USER);
    }
    command
}

fn attack(supervisor: Command) -> Findings {
    let output = run(supervisor);
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {stderr}", output.status);
    serde_json::from_str(&stdout).unwrap()
}

fn run(mut supervisor: Command) -> Output {
    let secret = std::str::from_utf8(SECRET).unwrap();
    supervisor.env(SECRET_VARIABLE, secret).current_dir("/").output().unwrap()
}
