//! Clients, workers and nodes that are killed between any two operations.
//!
//! A script uses every kind of operation, one in each step. Each test kills something after each step, and checks that
//! nothing is left and that others are not disturbed.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    time::Duration,
};

use cuda_async::{
    Device, DeviceBuffer, Error, Function, LaunchConfig, Result, Stream, launch, prelude::*,
};
use cuda_lease::{Lease, LeaseBuilder, Status};

use crate::harness::{Node, check, wait_until};

const LEN: usize = 100_000;

/// The variables of the process that runs the script.
const ADDRESS: &str = "CHAOS_ADDRESS";
const STEPS: &str = "CHAOS_STEPS";

/// A client in the middle of its work.
#[derive(Default)]
pub struct Script {
    lease: Option<Lease>,
    device: Option<Device>,
    stream: Option<Stream>,
    kernel: Option<Function>,
    buffer: Option<DeviceBuffer<f32>>,
    launched: u32,
}

pub type Step = fn(&mut Script) -> Result<()>;

/// The steps after the lease was acquired.
pub const SCRIPT: [Step; 11] = [
    Script::open_stream,
    Script::upload,
    Script::load,
    Script::launch,
    Script::launch,
    Script::synchronize,
    Script::read,
    Script::submit,
    Script::renew,
    Script::launch,
    Script::free_buffer,
];

impl Script {
    fn acquire(node: LeaseBuilder) -> Result<Self> {
        Ok(Self::of(node.resume_within(Duration::from_millis(100)).acquire_blocking()?))
    }

    pub fn of(lease: Lease) -> Self {
        let device = Some(lease.device().clone());
        Self { lease: Some(lease), device, ..Self::default() }
    }

    fn stream(&self) -> &Stream {
        self.stream.as_ref().unwrap()
    }

    fn open_stream(&mut self) -> Result<()> {
        self.stream = Some(self.device.as_ref().unwrap().new_stream()?);
        Ok(())
    }

    fn upload(&mut self) -> Result<()> {
        self.buffer = Some(h2d(vec![1.0f32; LEN]).sync_on(self.stream())?);
        Ok(())
    }

    fn load(&mut self) -> Result<()> {
        let basic = include_str!("../../../kernels/basic.ptx");
        self.kernel =
            Some(self.device.as_ref().unwrap().load_ptx_blocking(basic)?.function("scale")?);
        Ok(())
    }

    /// Doubles the buffer.
    fn launch(&mut self) -> Result<()> {
        let buffer = self.buffer.take().unwrap();
        let config = LaunchConfig::for_num_elems(LEN);
        // SAFETY: reads and writes `buffer`, of `LEN` elements.
        let op =
            unsafe { launch(self.kernel.as_ref().unwrap(), config, (buffer, 2.0f32, LEN as u32)) };
        self.buffer = Some(op.sync_on(self.stream())?);
        self.launched += 1;
        Ok(())
    }

    fn synchronize(&mut self) -> Result<()> {
        self.stream().synchronize()
    }

    /// Reads back: each launch has run exactly once.
    fn read(&mut self) -> Result<()> {
        let read = to_host(self.buffer.as_ref().unwrap()).sync_on(self.stream())?;
        assert!(read.iter().all(|element| *element == 2.0f32.powi(self.launched as i32)));
        Ok(())
    }

    fn submit(&mut self) -> Result<()> {
        let iota = include_str!("../../../kernels/iota.ptx");
        let submit = self.lease.as_ref().unwrap().submit("iota", iota);
        submit.grid(1).block(32).arg(&32u32).max_output(128).launch_blocking().map(drop)
    }

    fn renew(&mut self) -> Result<()> {
        self.lease.as_ref().unwrap().renew_blocking(30)
    }

    fn free_buffer(&mut self) -> Result<()> {
        self.buffer = None;
        self.synchronize()
    }
}

/// Whether an error says that the lease has ended.
pub fn is_end(error: &Error) -> bool {
    let ended = [Status::Disconnected, Status::NotFound];
    matches!(
        error,
        Error::Disconnected { .. } | Error::ContentsLost { .. } | Error::DeviceLost { .. }
    ) || error.status().is_some_and(|status| ended.contains(&status))
}

/// Goes on after the end of the lease: every step fails with the reason, and none hangs.
fn fails(mut script: Script, from: usize) {
    for step in &SCRIPT[from..] {
        match step(&mut script) {
            // A step that needs nothing of the node.
            Ok(()) => {}
            Err(error) => {
                assert!(is_end(&error), "{error}");
                // Later steps use what this one would have given.
                return;
            }
        }
    }
}

#[test]
fn client_is_killed_after_each_step() {
    let node = Node::start(&["--spares", "0"]);
    let neighbor = node.lease().acquire_blocking().unwrap();
    for steps in 0..=SCRIPT.len() {
        let mut client = Command::new(std::env::current_exe().unwrap())
            .args(["chaos::client_of_another_process", "--exact", "--ignored", "--nocapture"])
            .env(ADDRESS, &node.address)
            .env(STEPS, steps.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(client.stdout.take().unwrap()).lines();
        assert!(
            lines.map_while(std::result::Result::ok).any(|line| line == "done"),
            "step {steps}"
        );
        client.kill().unwrap();
        client.wait().unwrap();
        check(&neighbor);
    }
    wait_until("only the neighbor is left", || node.workers().len() == 1);
    check(&neighbor);
}

/// The client that [`client_is_killed_after_each_step`] kills.
#[test]
#[ignore = "a role of another test"]
fn client_of_another_process() {
    let address = std::env::var(ADDRESS).unwrap();
    let steps: usize = std::env::var(STEPS).unwrap().parse().unwrap();
    let mut script = Script::acquire(LeaseBuilder::new(address).min_vram(64 << 20)).unwrap();
    SCRIPT[..steps].iter().for_each(|step| step(&mut script).unwrap());
    println!("\ndone");
    std::thread::park();
}

#[test]
fn worker_is_killed_after_each_step() {
    let node = Node::start(&["--spares", "0"]);
    let neighbor = node.lease().acquire_blocking().unwrap();
    let others = node.wait_for_workers(1);
    for steps in 0..=SCRIPT.len() {
        let mut script = Script::acquire(node.lease()).unwrap();
        SCRIPT[..steps].iter().for_each(|step| step(&mut script).unwrap());
        let worker = *node.workers().iter().find(|pid| !others.contains(pid)).unwrap();
        assert!(Command::new("kill").args(["-9", &worker.to_string()]).status().unwrap().success());
        fails(script, steps);
        check(&neighbor);
        wait_until("the worker is gone", || node.workers() == others);
    }
}

#[test]
fn node_is_killed_after_each_step() {
    for steps in 0..=SCRIPT.len() {
        let mut node = Node::start(&["--spares", "0"]);
        let mut script = Script::acquire(node.lease()).unwrap();
        SCRIPT[..steps].iter().for_each(|step| step(&mut script).unwrap());
        let workers = node.workers();
        node.kill();
        fails(script, steps);
        let is_gone = |pid: &u32| !std::path::Path::new(&format!("/proc/{pid}")).exists();
        wait_until("the workers are gone", || workers.iter().all(is_gone));
    }
}

#[test]
fn renewal_or_free_at_the_moment_of_expiry_has_one_outcome() {
    let node = Node::start(&["--spares", "1", "--grace-ms", "0"]);
    for round in 0..8u64 {
        let lease = node.lease().lease_secs(1).without_renewal().acquire_blocking().unwrap();
        let left = lease.expires_in().saturating_sub(Duration::from_millis(3));
        std::thread::sleep(left + Duration::from_millis(round));
        match round % 2 {
            0 => match lease.renew_blocking(5) {
                Ok(()) => check(&lease),
                Err(error) => {
                    let expired = error.status() == Some(Status::LeaseExpired);
                    assert!(expired || is_end(&error), "{error}");
                }
            },
            _ => lease.free(),
        }
    }
    wait_until("only the spare worker is left", || node.workers().len() == 1);
}
