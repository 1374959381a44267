//! The life of leases.

use std::{
    io::{BufRead, BufReader},
    time::Duration,
};

use cuda_core::{Error, Quantity, protocol::Status};
use cuda_lease::Exclusivity;

use crate::harness::{Node, check, program, wait_until};

#[test]
fn lease_has_a_worker_of_its_own_until_it_is_dropped() {
    let node = Node::start(&["--spares", "0"]);
    let (one, two) =
        (node.lease().acquire_blocking().unwrap(), node.lease().acquire_blocking().unwrap());
    node.wait_for_workers(2);
    check(&one);
    check(&two);
    let device = one.device().clone();
    drop(one);
    // A clone of its device keeps it.
    assert_eq!(node.workers().len(), 2);
    drop(device);
    wait_until("the worker of the dropped lease is gone", || node.workers().len() == 1);
    check(&two);
}

#[test]
fn spare_worker_serves_the_next_lease() {
    let node = Node::start(&["--spares", "1"]);
    wait_until("the spare worker runs", || node.workers().len() == 1);
    let spare = node.workers();
    let lease = node.lease().acquire_blocking().unwrap();
    assert!(node.workers().contains(&spare[0]));
    wait_until("there is another spare worker", || node.workers().len() == 2);
    lease.free();
    wait_until("the worker of the lease is gone", || !node.workers().contains(&spare[0]));
}

#[test]
fn renewal_extends_a_lease_and_begins_a_generation() {
    let node = Node::start(&[]);
    let lease = node.lease().lease_secs(30).without_renewal().acquire_blocking().unwrap();
    let first = lease.token();
    assert!(lease.generation() <= 1 && lease.expires_in() <= Duration::from_secs(30));
    let generation = lease.generation();
    lease.renew_blocking(100).unwrap();
    assert_eq!(lease.generation(), generation + 1);
    assert!(lease.expires_in() > Duration::from_secs(30));
    assert_ne!(lease.token(), first);
    check(&lease);
    let refused = lease.renew_blocking(1_000_000).unwrap_err();
    assert_eq!(refused.status(), Some(Status::BadRequest), "{refused}");
}

#[test]
fn lease_is_renewed_while_its_device_is_in_use() {
    let node = Node::start(&[]);
    let lease = node.lease().lease_secs(1).acquire_blocking().unwrap();
    let generation = lease.generation();
    wait_until("the lease was renewed three times", || lease.generation() >= generation + 3);
    check(&lease);
}

#[test]
fn lease_of_the_default_duration_is_renewed() {
    let node = Node::start(&["--max-lease-secs", "4"]);
    let lease = node.lease().lease_secs(0).acquire_blocking().unwrap();
    let generation = lease.generation();
    wait_until("the lease was renewed", || lease.generation() > generation);
    check(&lease);
}

#[test]
fn lease_is_renewed_inside_a_runtime() {
    let node = Node::start(&[]);
    let lease = node.lease().acquire_blocking().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async { lease.renew_blocking(10) }).unwrap();
    runtime.block_on(lease.renew(10)).unwrap();
    check(&lease);
}

#[test]
fn stream_beyond_the_limit_of_the_node_is_refused() {
    let node = Node::start(&[]);
    // On a GPU, the memory of the streams is part of the lease.
    let lease = node.lease().min_vram(1 << 30).acquire_blocking().unwrap();
    let mut streams = Vec::new();
    let refused = loop {
        match lease.device().new_stream() {
            Ok(stream) => streams.push(stream),
            Err(error) => break error,
        }
        assert!(streams.len() <= 1024);
    };
    assert!(matches!(refused, Error::OutOfRange { quantity: Quantity::Streams, .. }), "{refused}");
    drop(streams);
    check(&lease);
    lease.device().new_stream().unwrap();
}

#[test]
fn full_node_refuses_a_request_or_queues_it() {
    let node = Node::start(&["--max-leases", "1"]);
    let first = node.lease().acquire_blocking().unwrap();
    let refused = node.lease().acquire_blocking().unwrap_err();
    assert_eq!(refused.status(), Some(Status::CapacityExceeded), "{refused}");
    assert!(refused.is_retryable());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| node.lease().wait(Duration::from_secs(60)).acquire_blocking());
        check(&first);
        drop(first);
        check(&waiting.join().unwrap().unwrap());
    });
}

#[test]
fn device_lease_is_alone_on_its_device() {
    let node = Node::start(&[]);
    let lease = node.lease().exclusive(Exclusivity::Device).acquire_blocking().unwrap();
    let refused = node.lease().acquire_blocking().unwrap_err();
    assert_eq!(refused.status(), Some(Status::CapacityExceeded), "{refused}");
    check(&lease);
}

#[test]
fn request_that_no_device_can_serve_is_refused() {
    let node = Node::start(&["--capacity", "1GiB"]);
    let refused = node.lease().min_vram(2 << 30).wait(Duration::from_secs(60)).acquire_blocking();
    let refused = refused.unwrap_err();
    assert_eq!(refused.status(), Some(Status::TooLarge), "{refused}");
    assert!(!refused.is_retryable());
    let refused = node.lease().on_device("cuda:7").acquire_blocking().unwrap_err();
    assert_eq!(refused.status(), Some(Status::NotFound), "{refused}");
}

#[test]
fn session_leases_take_turns_on_their_device() {
    let node = Node::start(&[]);
    let acquire = || node.lease().exclusive(Exclusivity::Session).acquire_blocking().unwrap();
    let leases = [acquire(), acquire(), acquire()];
    let refused = node.lease().acquire_blocking().unwrap_err();
    assert_eq!(refused.status(), Some(Status::CapacityExceeded), "{refused}");
    std::thread::scope(|scope| {
        for lease in &leases {
            scope.spawn(|| (0..20).for_each(|_| check(lease)));
        }
    });
}

/// Each lease takes ten descriptors of the node, and a login or a service has 1,024 unless its program asks for more.
#[test]
fn node_takes_all_descriptors_that_it_may_have() {
    let start =
        "ulimit -Sn 200; exec \"$0\" --listen 127.0.0.1:0 --device cpu --insecure --spares 0";
    let mut shell = std::process::Command::new("sh");
    let shell = shell.args(["-c", start, &program()]).stdout(std::process::Stdio::piped());
    let mut node = shell.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(node.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", node.id())).unwrap();
    node.kill().unwrap();
    node.wait().unwrap();
    assert!(line.starts_with("listening on"), "{line}");
    let limit = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let values: Vec<_> = limit.split_whitespace().skip(3).take(2).collect();
    assert_eq!(values[0], values[1], "{limit}");
}
