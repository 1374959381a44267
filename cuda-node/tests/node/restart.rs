//! Nodes that are killed or ended, and start again: leases go on.

use std::{
    fs::File,
    io::{PipeReader, PipeWriter, Write, pipe},
    process::Stdio,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
};

use cuda_async::{LaunchConfig, launch, prelude::*};
use cuda_lease::Status;
use rustix::{
    fs::{OFlags, fcntl_setfl},
    process::{Pid, Resource, Rlimit, kill_process, prlimit},
};
use tempfile::TempDir;

use crate::{
    chaos::{SCRIPT, Script},
    harness::{Node, Signal, check, wait_until},
};

/// A node with a state folder.
fn node(more: &[&str]) -> (TempDir, Node) {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let node = Node::start(&[&["--state", state.to_str().unwrap()], more].concat());
    (folder, node)
}

#[test]
fn lease_goes_on_after_each_step() {
    for signal in [Signal::KILL, Signal::TERM] {
        let (_folder, mut node) = node(&["--spares", "0"]);
        for steps in 0..=SCRIPT.len() {
            let mut script = Script::of(node.lease().acquire_blocking().unwrap());
            SCRIPT[..steps].iter().for_each(|step| step(&mut script).unwrap());
            node.restart(signal);
            for step in &SCRIPT[steps..] {
                step(&mut script).unwrap_or_else(|error| panic!("after {steps} steps: {error}"));
            }
        }
    }
}

/// Each launch runs once, whatever was in flight when the node ended.
#[test]
fn launches_in_flight_run_once() {
    let (_folder, mut node) = node(&["--metrics", "127.0.0.1:0"]);
    let lease = node.lease().acquire_blocking().unwrap();
    let (ends, launched) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let device = lease.device();
            let basic =
                device.load_ptx_blocking(include_str!("../../../kernels/basic.ptx")).unwrap();
            let add = basic.function("add_scalar").unwrap();
            let stream = device.new_stream().unwrap();
            let count = 5000;
            let mut sum = zeros::<f32>(count).sync_on(&stream).unwrap();
            while !ends.load(Ordering::Relaxed) {
                for _ in 0..50 {
                    let config = LaunchConfig::for_num_elems(count);
                    // SAFETY: adds to `sum`, of `count` elements.
                    let op = unsafe { launch(&add, config, (sum, 1.0f32, count as u32)) };
                    // SAFETY: the buffers are used on this stream only.
                    sum = unsafe { op.async_on(&stream) }.unwrap();
                    launched.fetch_add(1, Ordering::Relaxed);
                }
                let read = to_host(&sum).sync_on(&stream).unwrap();
                let expected = launched.load(Ordering::Relaxed) as f32;
                assert!(
                    read.iter().all(|element| *element == expected),
                    "{} of {expected}",
                    read[0]
                );
            }
        });
        for round in 0..10 {
            let before = launched.load(Ordering::Relaxed);
            wait_until("the client goes on", || launched.load(Ordering::Relaxed) > before + 200);
            node.restart(if round % 2 == 0 { Signal::KILL } else { Signal::TERM });
        }
        ends.store(true, Ordering::Relaxed);
    });
}

#[test]
fn freed_lease_does_not_come_back() {
    let (_folder, mut node) = node(&["--metrics", "127.0.0.1:0", "--spares", "0"]);
    let kept = node.lease().acquire_blocking().unwrap();
    drop(node.lease().acquire_blocking().unwrap());
    node.restart(Signal::KILL);
    wait_until("one lease is left", || node.json()["leases"].as_array().unwrap().len() == 1);
    check(&kept);
    let later = node.lease().acquire_blocking().unwrap();
    assert!(later.id() > kept.id() + 1, "the id of a lease that has ended was used again");
}

#[test]
fn lease_whose_worker_died_meanwhile_ends() {
    let (_folder, mut node) = node(&["--spares", "0"]);
    let lease = node.lease().acquire_blocking().unwrap();
    check(&lease);
    let workers = node.wait_for_workers(1);
    node.end(Signal::KILL);
    for worker in workers {
        let pid = rustix::process::Pid::from_raw(worker as i32).unwrap();
        rustix::process::kill_process(pid, Signal::KILL).unwrap();
    }
    node.start_again();
    wait_until("the lease is lost", || lease.device().new_stream().is_err());
    let error = lease.device().new_stream().map(drop).unwrap_err();
    assert!(error.to_string().contains("its worker died"), "{error}");
}

/// A worker that no node takes over is not left behind: nor is one of a lease that the next node does not have.
#[test]
fn spare_workers_end_with_the_node() {
    let (_folder, mut node) = node(&["--spares", "2"]);
    wait_until("there are spare workers", || node.workers().len() == 2);
    let workers = node.workers();
    node.end(Signal::KILL);
    let is_alive = |pid: &u32| std::fs::exists(format!("/proc/{pid}/exe")).unwrap_or(false);
    wait_until("the workers have ended", || !workers.iter().any(is_alive));
}

#[test]
fn interrupt_ends_the_leases() {
    let (_folder, mut node) = node(&[]);
    let lease = node.lease().acquire_blocking().unwrap();
    node.end(Signal::INT);
    wait_until("the lease is lost", || lease.device().new_stream().is_err());
    let error = lease.device().new_stream().map(drop).unwrap_err();
    assert!(error.to_string().contains("the node stops"), "{error}");
}

/// Otherwise the next node says that their workers died.
#[test]
fn leases_that_an_interrupt_has_ended_do_not_come_back() {
    let (_folder, mut node) = node(&["--metrics", "127.0.0.1:0"]);
    let _lease = node.lease().acquire_blocking().unwrap();
    node.restart(Signal::INT);
    assert_eq!(node.json()["totals"]["acquired"], 0);
}

#[test]
fn second_node_with_the_folder_is_refused() {
    let (folder, _node) = node(&[]);
    let second = std::process::Command::new(crate::harness::program())
        .args(["--listen", "127.0.0.1:0", "--device", "cpu", "--insecure", "--state"])
        .arg(folder.path().join("state"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(!second.status.success() && text.contains("another node uses this folder"), "{text}");
}

/// A submit that the client repeats after the restart runs once.
#[test]
fn submit_in_flight_is_not_repeated() {
    let (_folder, mut node) = node(&["--spares", "0"]);
    let lease = node.lease().acquire_blocking().unwrap();
    let iota = include_str!("../../../kernels/iota.ptx");
    let submit = || lease.submit("iota", iota).block(32).arg(&32u32).max_output(128);
    submit().launch_blocking().unwrap();
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let submits = scope.spawn(|| {
            let (mut done, mut lost) = (0, 0);
            while !ends.load(Ordering::Relaxed) {
                match submit().launch_blocking() {
                    Ok(_) => done += 1,
                    Err(error) => {
                        assert_eq!(error.status(), Some(Status::Disconnected), "{error}");
                        assert!(error.to_string().contains("may have run"), "{error}");
                        lost += 1;
                    }
                }
            }
            (done, lost)
        });
        for _ in 0..6 {
            node.restart(Signal::KILL);
            check(&lease);
        }
        ends.store(true, Ordering::Relaxed);
        let (done, lost) = submits.join().unwrap();
        assert!(done > 0 && lost <= 6, "{done} done, {lost} lost");
    });
}

#[test]
fn request_that_waits_is_repeated() {
    let (_folder, mut node) = node(&["--max-leases", "1", "--metrics", "127.0.0.1:0"]);
    let first = node.lease().acquire_blocking().unwrap();
    let request = node.lease().wait(std::time::Duration::from_secs(60));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| request.acquire_blocking());
        let waits = |node: &Node| node.metric("cuda_node_leases_waiting") == 1.0;
        wait_until("the request waits", || waits(&node));
        node.restart(Signal::KILL);
        wait_until("the request waits again", || waits(&node));
        drop(first);
        check(&waiting.join().unwrap().unwrap());
    });
}

/// The notice period of a lease that is preempted is not over when the node is killed.
#[test]
fn lease_that_is_preempted_does_not_come_back() {
    let quotas = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&quotas, "[defaults]\nmax_priority = 9\n").unwrap();
    let quotas_file = quotas.path().to_str().unwrap();
    let (folder, mut node) =
        node(&["--max-leases", "1", "--spares", "0", "--preempt", "--quotas", quotas_file]);
    let first = node.lease().acquire_blocking().unwrap();
    check(&first);
    let request = node.lease().priority(9).wait(std::time::Duration::from_secs(60));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| request.acquire_blocking());
        let ended = folder.path().join(format!("state/ended/{}", first.id()));
        wait_until("the end is written", || ended.exists());
        check(&first);
        node.restart(Signal::KILL);
        check(&waiting.join().unwrap().unwrap());
    });
    wait_until("the client knows that its lease has ended", || {
        first.device().new_stream().is_err()
    });
}

/// Sets the limit of the descriptors of a node. Returns the limits before.
fn limit_descriptors(node: &Node, current: u64) -> Rlimit {
    let pid = Pid::from_raw(node.pid() as i32);
    let text = std::fs::read_to_string(format!("/proc/{}/limits", node.pid())).unwrap();
    let line = text.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let maximum = line.split_whitespace().nth(4).unwrap().parse().unwrap();
    let limits = Rlimit { current: Some(current), maximum: Some(maximum) };
    prlimit(pid, Resource::Nofile, limits).unwrap()
}

/// A record that is not written would be missing after a restart.
#[test]
fn node_without_descriptors_refuses_what_it_cannot_write() {
    let (_folder, mut node) = node(&["--spares", "0"]);
    let lease = node.lease().acquire_blocking().unwrap();
    check(&lease);
    // The node has opened all below this one.
    let is_free = |number: &u64| {
        std::fs::symlink_metadata(format!("/proc/{}/fd/{number}", node.pid())).is_err()
    };
    let before = limit_descriptors(&node, (0..).find(is_free).unwrap());
    let error = lease.renew_blocking(60).unwrap_err();
    assert!(error.to_string().contains("state folder"), "{error}");
    limit_descriptors(&node, before.current.unwrap());
    lease.renew_blocking(60).unwrap();
    node.restart(Signal::KILL);
    check(&lease);
}

/// A pipe that is full, and its reader.
fn full_pipe() -> (PipeWriter, PipeReader) {
    let (reader, mut writer) = pipe().unwrap();
    fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
    while writer.write(&[b'\n'; 512]).is_ok() {}
    fcntl_setfl(&writer, OFlags::empty()).unwrap();
    (writer, reader)
}

#[test]
fn node_whose_stdout_cannot_be_written_goes_on() {
    let (_folder, mut node) = node(&[]);
    let lease = node.lease().acquire_blocking().unwrap();
    node.end(Signal::KILL);
    let (pipe, _reader) = full_pipe();
    let full = File::options().write(true).open("/dev/full").unwrap();
    for stdout in [Stdio::from(full), pipe.into()] {
        let mut next = node.begin_to_start(stdout);
        check(&lease);
        kill_process(Pid::from_child(&next), Signal::TERM).unwrap();
        wait_until("the node ends", || next.try_wait().unwrap().is_some());
        assert!(next.wait().unwrap().success());
    }
}
