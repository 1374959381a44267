//! The tests.

use std::{
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use cuda_node::process::{Error, ExitCause, WorkerEnds, WorkerLauncher, WorkerOutput, pair};
use libtest_mimic::Trial;
use rustix::process::{Pid, Signal};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _};

use crate::{
    lines::Lines,
    proc_fs::{children, runs, wait_until},
    roles::{END_OF_COMMANDS, launcher, started},
};

/// The limit of an asynchronous wait.
const LIMIT: Duration = Duration::from_secs(30);

const SIGKILL: ExitCause = ExitCause::Signaled(9);

pub fn all() -> Vec<Trial> {
    macro_rules! blocking {
        ($($name:ident),* $(,)?) => {
            vec![$(Trial::test(stringify!($name), || { $name(); Ok(()) })),*]
        };
    }
    macro_rules! in_runtime {
        ($($name:ident),* $(,)?) => {
            vec![$(Trial::test(stringify!($name), || { block_on($name()); Ok(()) })),*]
        };
    }
    let mut trials = in_runtime![
        bytes_cross_the_session_sockets,
        killed_spinning_worker_is_reaped_and_closes_its_sockets,
        dropped_worker_ends_and_leaves_no_zombie,
        dropped_wait_does_not_kill_the_worker,
        worker_inherits_only_its_own_descriptors,
        second_worker_does_not_hold_sockets_of_first,
        worker_gives_way_to_its_supervisor,
        worker_dies_when_its_standard_input_closes,
        worker_that_is_slow_outlives_its_supervisor,
        missing_executable_is_an_error,
        pair_connects_the_session_sockets,
    ];
    trials.extend(blocking![
        killed_supervisor_ends_its_workers,
        cycles_leave_no_descriptor_zombie_or_thread,
        output_is_traced_line_by_line,
        flood_of_output_does_not_fill_the_log,
        launch_outside_a_runtime_is_an_error,
        taking_ends_without_a_launcher_is_an_error,
        taking_a_file_as_an_end_is_an_error,
    ]);
    trials
}

pub fn block_on(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("the runtime starts");
    runtime.block_on(async {
        tokio::time::timeout(LIMIT, test).await.expect("the test ends within its limit");
    });
}

async fn bytes_cross_the_session_sockets() {
    let (mut worker, mut ends) = launcher("echo").launch().unwrap();
    started(&mut ends).await;
    let sent: Vec<u8> = (0..=255).collect();
    let mut received = [0; 256];

    ends.commands.write_all(&sent).await.unwrap();
    ends.commands.read_exact(&mut received).await.unwrap();
    assert_eq!(received[..], sent);

    ends.bulk.write_all(&sent).await.unwrap();
    ends.bulk.read_exact(&mut received).await.unwrap();
    assert!(received.iter().zip(&sent).all(|(received, sent)| *received == !sent));

    drop(ends);
    let cause = worker.reaped().await;
    assert_eq!(cause, ExitCause::Exited(END_OF_COMMANDS.into()));
    assert_eq!(worker.reaped().await, cause);
    worker.kill();
}

async fn killed_spinning_worker_is_reaped_and_closes_its_sockets() {
    let (mut worker, mut ends) = launcher("spin").launch().unwrap();
    started(&mut ends).await;
    assert!(runs(worker.pid()));
    assert!(!worker.is_ending());
    // It uses a processor, as the kernel does for a call that no signal ends.
    wait_until("the worker has used time", || worker.is_ending());
    worker.kill();
    worker.kill();
    wait_until("the killed worker has no memory", || worker.is_ending());
    assert_eq!(worker.reaped().await, SIGKILL);
    assert!(!children().contains(&worker.pid()));
    assert_eq!(ends.commands.read(&mut [0]).await.unwrap(), 0);
    assert_eq!(ends.bulk.read(&mut [0]).await.unwrap(), 0);
}

async fn dropped_worker_ends_and_leaves_no_zombie() {
    let (worker, mut ends) = launcher("spin").launch().unwrap();
    started(&mut ends).await;
    let pid = worker.pid();
    drop(worker);
    assert_eq!(ends.commands.read(&mut [0]).await.unwrap(), 0);
    wait_until("the dropped worker is reaped", || !children().contains(&pid));
}

async fn dropped_wait_does_not_kill_the_worker() {
    let (mut worker, mut ends) = launcher("echo").launch().unwrap();
    started(&mut ends).await;
    let wait = tokio::time::timeout(Duration::from_millis(20), worker.reaped());
    assert!(wait.await.is_err());
    ends.commands.write_all(b"a").await.unwrap();
    assert_eq!(ends.commands.read_u8().await.unwrap(), b'a');
}

async fn worker_inherits_only_its_own_descriptors() {
    // A library may open descriptors without close-on-exec.
    let stray = std::fs::File::open("/dev/null").unwrap();
    rustix::io::fcntl_setfd(&stray, rustix::io::FdFlags::empty()).unwrap();
    let (_worker, mut ends) = launcher("descriptors").launch().unwrap();
    started(&mut ends).await;
    let mut list = String::new();
    tokio::io::BufReader::new(&mut ends.commands).read_line(&mut list).await.unwrap();
    assert_eq!(list, "[0, 1, 2, 3, 4, 5]\n");
}

async fn second_worker_does_not_hold_sockets_of_first() {
    let (mut first, mut first_ends) = launcher("idle").launch().unwrap();
    started(&mut first_ends).await;
    let (mut echo, mut echo_ends) = launcher("echo").launch().unwrap();
    started(&mut echo_ends).await;
    let (second, mut second_ends) = launcher("idle").launch().unwrap();
    started(&mut second_ends).await;

    // The worker's ends close with the worker.
    first.kill();
    first.reaped().await;
    assert_eq!(first_ends.commands.read(&mut [0]).await.unwrap(), 0);
    assert_eq!(first_ends.bulk.read(&mut [0]).await.unwrap(), 0);

    // The supervisor's ends close when the supervisor drops them.
    drop(echo_ends);
    assert_eq!(echo.reaped().await, ExitCause::Exited(END_OF_COMMANDS.into()));
    assert!(runs(second.pid()));
}

/// Threads of a worker delayed the supervisor by seconds.
async fn worker_gives_way_to_its_supervisor() {
    let (worker, mut ends) = launcher("idle").launch().unwrap();
    started(&mut ends).await;
    let status = std::fs::read_to_string(format!("/proc/{}/stat", worker.pid())).unwrap();
    let (_, fields) = status.rsplit_once(')').unwrap();
    let fields: Vec<_> = fields.split_whitespace().collect();
    // Fields 6 and 19 of proc_pid_stat(5), of which 2 are before the last bracket.
    assert_eq!(fields[3], worker.pid().to_string(), "session");
    assert_eq!(fields[16], "10", "nice value");
}

/// Its supervisor has ended before it has read that it has a lease.
async fn worker_that_is_slow_outlives_its_supervisor() {
    let folder = tempfile::tempdir().unwrap();
    let program = std::env::current_exe().unwrap();
    // Its standard input is at the end from the beginning.
    let launcher = WorkerLauncher::new("/bin/sh")
        .argument("-c")
        .argument("exec \"$0\" --role=late </dev/null")
        .argument(program)
        .successors(folder.path(), LIMIT);
    let (_worker, mut ends) = launcher.launch().unwrap();
    started(&mut ends).await;
}

async fn worker_dies_when_its_standard_input_closes() {
    let launcher = WorkerLauncher::new("/bin/sh")
        .argument("-c")
        .argument("exec \"$0\" --role=idle </dev/null")
        .argument(std::env::current_exe().unwrap());
    let (mut worker, _ends) = launcher.launch().unwrap();
    assert_eq!(worker.reaped().await, SIGKILL);
}

async fn missing_executable_is_an_error() {
    let error = WorkerLauncher::new("/no/such/worker").launch().unwrap_err();
    let Error::Spawn { executable, source } = &error else { panic!("{error}") };
    assert_eq!(executable, &PathBuf::from("/no/such/worker"));
    assert_eq!(source.kind(), std::io::ErrorKind::NotFound);
    assert!(error.to_string().contains("/no/such/worker"), "{error}");
}

async fn pair_connects_the_session_sockets() {
    let (mut supervisor, worker) = pair().unwrap();
    let WorkerEnds { commands, bulk, jobs } = worker;
    let sockets = [&mut supervisor.commands, &mut supervisor.bulk, &mut supervisor.jobs];
    for ((socket, mut worker), byte) in
        sockets.into_iter().zip([&commands, &bulk, &jobs]).zip(b'a'..)
    {
        socket.write_all(&[byte]).await.unwrap();
        let mut received = [0];
        std::io::Read::read_exact(&mut worker, &mut received).unwrap();
        assert_eq!(received, [byte]);
    }
    drop(commands);
    assert_eq!(supervisor.commands.read(&mut [0]).await.unwrap(), 0);
}

fn killed_supervisor_ends_its_workers() {
    assert_eq!(kill_supervisor("supervisor").len(), 2);
}

/// Starts a supervisor, kills it, and waits until its workers have ended. Returns their process ids.
pub fn kill_supervisor(role: &str) -> Vec<u32> {
    let mut supervisor = this_program(role).stdout(Stdio::piped()).spawn().unwrap();
    let lines: Vec<String> = BufReader::new(supervisor.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap)
        .take_while(|line| line != "ready")
        .collect();
    let mut workers = EndOnPanic(lines.iter().map(|line| line.parse().unwrap()).collect());
    assert!(workers.0.iter().all(|worker| runs(*worker)));
    supervisor.kill().unwrap();
    supervisor.wait().unwrap();
    wait_until("the workers of a killed supervisor end", || {
        !workers.0.iter().any(|pid| runs(*pid))
    });
    std::mem::take(&mut workers.0)
}

/// Kills processes when the test fails, so that a failure leaves none.
struct EndOnPanic(Vec<u32>);

impl Drop for EndOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let pids = self.0.iter().filter_map(|pid| Pid::from_raw(i32::try_from(*pid).ok()?));
            pids.for_each(|pid| {
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            });
        }
    }
}

fn cycles_leave_no_descriptor_zombie_or_thread() {
    // Other tests start processes too, so the cycles run in a process of their own.
    let status = this_program("cycles").status().unwrap();
    assert!(status.success(), "{status}");
}

fn output_is_traced_line_by_line() {
    let lines = Lines::default();
    let _guard = tracing::subscriber::set_default(lines.clone());
    // The subscriber is that of this thread, so the runtime has no other thread.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let launcher = launcher("output").output(WorkerOutput::Trace).environment("WORKER", "w1");
        let (mut worker, _ends) = launcher.launch().unwrap();
        assert_eq!(worker.reaped().await, ExitCause::Exited(0));
        while lines.of("stdout").len() < 5 || lines.of("stderr").is_empty() {
            tokio::task::yield_now().await;
        }
    });
    let long = |length| "x".repeat(length);
    assert_eq!(
        lines.of("stdout"),
        ["first w1".to_owned(), long(4096), long(4096), long(10_000 - 8192), "no newline".into()]
    );
    assert_eq!(lines.of("stderr"), ["problem"]);
}

fn flood_of_output_does_not_fill_the_log() {
    let lines = Lines::default();
    let _guard = tracing::subscriber::set_default(lines.clone());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let counted = || {
        let dropped =
            |line: &String| line.strip_suffix(" lines were dropped")?.parse::<usize>().ok();
        let lines = lines.of("stdout");
        let dropped = lines.iter().filter_map(dropped).collect::<Vec<_>>();
        (lines.len() - dropped.len(), dropped.iter().sum::<usize>())
    };
    runtime.block_on(async {
        let (mut worker, _ends) = launcher("flood").output(WorkerOutput::Trace).launch().unwrap();
        assert_eq!(worker.reaped().await, ExitCause::Exited(0));
        while counted().0 + counted().1 < 5000 {
            tokio::task::yield_now().await;
        }
    });
    let (traced, dropped) = counted();
    assert!(dropped > 0 && traced >= 50, "{traced} lines and {dropped} dropped ones");
}

fn launch_outside_a_runtime_is_an_error() {
    let error = launcher("idle").launch().unwrap_err();
    assert!(matches!(error, Error::NoRuntime), "{error}");
}

fn taking_ends_without_a_launcher_is_an_error() {
    // A program around the tests may have left these descriptors open.
    let output = take_with("3<&- 4<&- 5<&-");
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(
        lines,
        [
            "descriptor 3 (commands) is not open; start this process with `WorkerLauncher`",
            "this process has already taken its worker's ends; call `WorkerEnds::take` once",
        ]
    );
}

fn taking_a_file_as_an_end_is_an_error() {
    let output = take_with("3</dev/null 4</dev/null 5</dev/null");
    assert!(output.starts_with("descriptor 3 (commands) is not a Unix stream socket"), "{output}");
}

/// Returns the output of a worker that takes its ends, after the shell has redirected its descriptors.
fn take_with(redirections: &str) -> String {
    let output = Command::new("/bin/sh")
        .args(["-c", &format!("exec \"$0\" --role=take </dev/null {redirections}")])
        .arg(std::env::current_exe().unwrap())
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn this_program(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the path is known"));
    command.arg(format!("--role={role}"));
    command
}
