//! The programs that tests run as processes of their own.

use std::{
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    process::ExitCode,
    time::Duration,
};

use cuda_node::process::{
    ExitCause, Successors, SupervisorEnds, WorkerEnds, WorkerLauncher, WorkerProcess,
    die_with_supervisor,
};
use tokio::io::AsyncReadExt as _;

use crate::proc_fs::{children, descriptors, threads, wait_until};

/// The exit code of `echo` after the supervisor closed the commands socket.
pub const END_OF_COMMANDS: u8 = 7;

/// The cycles of `cycles`.
const CYCLES: usize = 500;

/// The byte that a worker sends when it has started.
const STARTED: u8 = b'+';

/// A launcher of this program in a role.
pub fn launcher(role: &str) -> WorkerLauncher {
    let program = std::env::current_exe().expect("the path of this program is known");
    WorkerLauncher::new(program).argument(format!("--role={role}"))
}

/// Waits until the worker reports that it has started.
pub async fn started(ends: &mut SupervisorEnds) {
    let byte = ends.commands.read_u8().await.expect("the worker reports its start");
    assert_eq!(byte, STARTED);
}

pub fn run(role: &str) -> ExitCode {
    match role {
        "echo" => return echo(),
        "spin" => spin(),
        "idle" => idle(),
        "late" => outlive_late(),
        "descriptors" => report_descriptors(),
        "take" => report_take(),
        "output" => write_output(),
        "flood" => (0..5000).for_each(|line| println!("{line}")),
        "supervisor" => supervisor(&["spin", "idle"]),
        "kernel" => crate::on_gpu::endless_kernel(start()),
        "kernel-supervisor" => supervisor(&["kernel"]),
        "cycles" => cycles(),
        _ => panic!("no role {role}"),
    }
    ExitCode::SUCCESS
}

fn start() -> WorkerEnds {
    die_with_supervisor().expect("the thread starts");
    let mut ends = WorkerEnds::take().expect("the ends are inherited");
    ends.commands.write_all(&[STARTED]).expect("the supervisor reads");
    ends
}

/// Sends back all bytes of both sockets, those of the bulk socket inverted.
fn echo() -> ExitCode {
    let WorkerEnds { commands, bulk, jobs: _jobs } = start();
    std::thread::spawn(move || copy(bulk, |byte| !byte));
    copy(commands, |byte| byte);
    ExitCode::from(END_OF_COMMANDS)
}

fn copy(mut socket: UnixStream, change: impl Fn(u8) -> u8) {
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = socket.read(&mut buffer) {
        buffer[..read].iter_mut().for_each(|byte| *byte = change(*byte));
        socket.write_all(&buffer[..read]).expect("the supervisor reads");
    }
}

/// Uses a core until it is killed.
fn spin() {
    let _ends = start();
    loop {
        std::hint::spin_loop();
    }
}

/// Keeps its sockets open and does nothing.
fn idle() {
    let _ends = start();
    loop {
        std::thread::park();
    }
}

/// Sends its list of open descriptors, and then does nothing.
fn report_descriptors() {
    let mut ends = start();
    let list = format!("{:?}\n", descriptors());
    ends.commands.write_all(list.as_bytes()).expect("the supervisor reads");
    loop {
        std::thread::park();
    }
}

/// Prints the results of taking the ends twice.
fn report_take() {
    for _ in 0..2 {
        match WorkerEnds::take() {
            Ok(_) => println!("taken"),
            Err(error) => println!("{error}"),
        }
    }
}

/// Writes lines to standard output and standard error.
fn write_output() {
    println!("first {}", std::env::var("WORKER").unwrap_or_default());
    println!("{}", "x".repeat(10_000));
    eprintln!("problem");
    print!("no newline");
}

/// Takes much time, as on a busy machine, until it outlives its supervisor, and says so.
fn outlive_late() {
    let watch = die_with_supervisor().unwrap();
    let mut ends = WorkerEnds::take().unwrap();
    let successors = Successors::take(Duration::from_secs(60), watch).unwrap();
    std::thread::sleep(Duration::from_secs(1));
    successors.outlive();
    // The watch may have seen the end of the supervisor long ago.
    std::thread::sleep(Duration::from_millis(100));
    ends.commands.write_all(&[STARTED]).unwrap();
}

/// Launches workers, prints their process ids, and does nothing until it is killed.
fn supervisor(roles: &[&str]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut workers = Vec::new();
        for role in roles {
            let (process, mut ends) = launcher(role).launch().unwrap();
            started(&mut ends).await;
            println!("{}", process.pid());
            workers.push((process, ends));
        }
        println!("ready");
        std::future::pending::<()>().await;
    });
}

/// Launches and ends workers in three ways, and checks that nothing of them is left.
fn cycles() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for number in 0..6 {
            cycle(number).await;
        }
        settle().await;
        let before = (descriptors(), threads());
        for number in 0..CYCLES {
            cycle(number).await;
        }
        settle().await;
        wait_until("descriptors and threads as before", || (descriptors(), threads()) == before);
    });
}

async fn cycle(number: usize) {
    let (mut worker, mut ends): (WorkerProcess, _) = launcher("idle").launch().unwrap();
    match number % 3 {
        0 => {
            started(&mut ends).await;
            worker.kill();
            assert_eq!(worker.reaped().await, ExitCause::Signaled(9));
        }
        1 => {
            started(&mut ends).await;
            drop(worker);
        }
        // The worker is dropped before it has started.
        _ => drop(worker),
    }
}

/// Lets the runtime reap the workers that were dropped.
async fn settle() {
    let mut rounds = 0;
    while !children().is_empty() {
        rounds += 1;
        assert!(rounds < 10_000, "children are left: {:?}", children());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
