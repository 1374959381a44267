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
use tempfile::TempDir;

use crate::{
    attacks::{Findings, INCOMPLETE, SECRET, SECRET_VARIABLE},
    supervisor::{HOLD, OFF, REQUIRED, WITHOUT_FILTERS, WITHOUT_NAMESPACES},
};

/// The limit of a wait. A loaded machine stays far below it.
const LIMIT: Duration = Duration::from_secs(30);

/// The user of the supervisors that do not run as root.
const USER: u32 = 64_321;

/// The attacks that succeed on every machine if there is no sandbox.
const CERTAIN: [&str; 19] = [
    "become_root",
    "connect_to_abstract_socket",
    "connect_to_network",
    "connect_to_operator_socket",
    "change_other_cache",
    "climb_to_other_cache",
    "create_file_at_home",
    "create_temporary_file",
    "daemon",
    "end_other_worker",
    "find_secret_in_environment",
    "limit_supervisor",
    "list_descriptors_of_supervisor",
    "read_environment_of_supervisor",
    "read_key",
    "root:read_key",
    "run_program",
    "signal_supervisor",
    "survive_the_kill",
];

/// Attacks on the memory of the supervisor. The security module Yama also refuses them.
const TRACING: [&str; 3] =
    ["copy_memory_of_supervisor", "read_memory_of_supervisor", "trace_supervisor"];

/// Attempts that only the filter of system calls refuses. In these tests they reach nothing outside of the sandbox: they
/// change the namespaces of the worker, use parts of the kernel, or need a terminal.
const FILTERED: [&str; 10] = [
    "become_root",
    "change_root",
    "daemon",
    "find_descriptors",
    "type_into_terminal",
    "use_bpf",
    "use_io_uring",
    "use_keyring",
    "use_perf",
    "use_userfaultfd",
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
        attacks_without_namespaces_are_refused,
        attacks_without_a_filter_of_system_calls_reach_nothing,
        required_sandbox_is_an_error_without_namespaces,
        killed_supervisor_ends_workers_in_namespaces,
    ];
    trials.extend(trials![
        !is_root;
        attacks_of_roots_worker_are_refused,
        attacks_of_roots_worker_without_namespaces_are_refused,
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
    assert!(findings.report.is_complete(), "{}", findings.report);
}

fn attacks_under_a_root_of_a_namespace_are_refused() {
    let mut supervisor = Command::new("unshare");
    supervisor.args(["--user", "--map-root-user"]).arg(program()).arg("--role=supervisor");
    let findings = attack(as_user(supervisor));
    // User 0 of this namespace is the user of the supervisor.
    assert_refused(&findings, &["become_user_0"]);
    assert!(findings.report.is_complete(), "{}", findings.report);
}

fn attacks_without_namespaces_are_refused() {
    let findings = attack(user(&[WITHOUT_NAMESPACES]));
    assert_refused(&findings, &[]);
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
    assert!(findings.report.is_complete(), "{}", findings.report);
}

fn attacks_of_roots_worker_without_namespaces_are_refused() {
    let findings = attack(root(&[WITHOUT_NAMESPACES]));
    assert_refused(&findings, &[]);
    assert_eq!(missing(&findings), [Part::Processes, Part::Network]);
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
    let mut line = String::new();
    BufReader::new(supervisor.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let worker = PathBuf::from(format!("/proc/{}", line.trim()));
    assert!(worker.exists());
    supervisor.kill().unwrap();
    supervisor.wait().unwrap();
    // The worker is now a child of another process, which may reap it late.
    let runs = || {
        let state = std::fs::read_to_string(worker.join("stat")).unwrap_or_default();
        !matches!(
            state.rsplit(')').next().unwrap_or_default().trim_start().chars().next(),
            None | Some('Z' | 'X')
        )
    };
    let deadline = Instant::now() + LIMIT;
    while runs() {
        assert!(Instant::now() < deadline, "the worker runs {LIMIT:?} after its supervisor");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn missing(findings: &Findings) -> Vec<Part> {
    let parts = findings.report.parts().iter();
    parts.filter(|part| part.missing.is_some()).map(|part| part.part).collect()
}

/// Checks that all attacks were refused, except those with these names.
fn assert_refused(findings: &Findings, harmless: &[&str]) {
    let succeeded = findings.outcomes.iter().filter(|(_, error)| error.is_none());
    let names = succeeded.map(|(name, _)| name.strip_prefix("root:").unwrap_or(name));
    let harmful: Vec<_> = names.filter(|name| !harmless.contains(name)).collect();
    assert!(harmful.is_empty(), "these attacks succeeded: {harmful:?}\n{findings:#?}");
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
