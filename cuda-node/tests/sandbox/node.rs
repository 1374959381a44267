//! The role of a node with a worker that takes more host memory than it may.

use std::{path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use cuda_async::{Result, prelude::*};
use cuda_cpu::CpuProvider;
use cuda_lease::LeaseBuilder;
use cuda_node::{
    process::{DEFAULT_UIDS, Sandbox, WorkerLauncher},
    supervisor::{DeviceOptions, Node, NodeOptions},
    worker,
};

use crate::{
    attacks,
    supervisor::{refuse_filters, take_memory},
};

/// Serves a lease, makes its worker take memory, and prints the errors of the lease.
pub fn run() -> ExitCode {
    let launcher = WorkerLauncher::new(std::env::current_exe().unwrap());
    let launcher = launcher.argument("--role=greedy-worker").sandbox(Sandbox::new(DEFAULT_UIDS));
    let folder = tempfile::tempdir().unwrap();
    let device = DeviceOptions::process(launcher.writable(folder.path())).spares(0);
    let node = Node::start(NodeOptions::loopback(vec![device])).unwrap();
    let lease = LeaseBuilder::new(node.address().to_string()).min_vram(1 << 20);
    let lease = lease.acquire_blocking().unwrap();
    let device = lease.device().clone();
    let upload =
        || -> Result<()> { zeros::<u8>(64).then(to_host).sync_on(&device.new_stream()?).map(drop) };
    upload().unwrap();
    // The first worker was asked for its device and has ended.
    std::fs::write(folder.path().join("take"), "").unwrap();
    let error = loop {
        match upload() {
            Ok(()) => std::thread::sleep(Duration::from_millis(1)),
            Err(error) => break error,
        }
    };
    println!("{error}");
    ExitCode::SUCCESS
}

/// The role of a worker that takes memory when a file tells it to.
pub fn greedy_worker() -> ExitCode {
    let (report, ends) = match attacks::start() {
        Ok(started) => started,
        Err(code) => return code,
    };
    let file = writable().join("take");
    std::thread::spawn(move || {
        while !file.exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        take_memory(8 << 30);
    });
    worker::run(Arc::new(CpuProvider::default()), 0, ends, Some(&report), None).unwrap();
    ExitCode::SUCCESS
}

/// The folder that this worker may write to.
fn writable() -> PathBuf {
    let argument = std::env::args().next_back().unwrap();
    let sandbox: serde_json::Value =
        serde_json::from_str(argument.strip_prefix("--sandbox=").unwrap()).unwrap();
    PathBuf::from(sandbox["writable"].as_str().unwrap())
}

/// Serves a lease whose worker gets no filter of system calls, which the first worker had. Prints the outcome.
pub fn run_changing() -> ExitCode {
    let launcher = WorkerLauncher::new(std::env::current_exe().unwrap());
    let launcher = launcher.argument("--role=changing-worker").sandbox(Sandbox::new(DEFAULT_UIDS));
    let folder = tempfile::tempdir().unwrap();
    let device = DeviceOptions::process(launcher.writable(folder.path())).spares(0);
    let node = Node::start(NodeOptions::loopback(vec![device])).unwrap();
    std::fs::write(folder.path().join("change"), "").unwrap();
    let lease = LeaseBuilder::new(node.address().to_string()).min_vram(1 << 20);
    match lease.acquire_blocking() {
        Ok(_) => println!("the lease has a worker without a filter"),
        Err(error) => println!("refused: {error}"),
    }
    ExitCode::SUCCESS
}

/// The role of a worker that gets no filter of system calls once a file exists.
pub fn changing_worker() -> ExitCode {
    if writable().join("change").exists() {
        refuse_filters();
    }
    let (report, ends) = match attacks::start() {
        Ok(started) => started,
        Err(code) => return code,
    };
    eprintln!("a worker with the sandbox: {report}");
    worker::run(Arc::new(CpuProvider::default()), 0, ends, Some(&report), None).unwrap();
    ExitCode::SUCCESS
}
