//! The end of leases: expiry, faults, and processes that are killed.

use std::time::Duration;

use cuda_async::prelude::*;
use cuda_core::{Error, protocol::Status};
use cuda_lease::{
    Job, burst,
    wire::{Allocate, Granted, PutBlob},
};

use crate::{
    harness::{Kernels, Node, check, wait_until},
    raw::{RawClient, Stream, block_on, refusal, request},
};

#[test]
fn expiry_ends_a_lease_during_an_endless_kernel() {
    let node = Node::start(&["--spares", "0", "--grace-ms", "100"]);
    let neighbor = node.lease().acquire_blocking().unwrap();
    let lease = node.lease().lease_secs(1).without_renewal().acquire_blocking().unwrap();
    let error = Kernels::new(&lease).unwrap().run_forever().unwrap_err();
    assert_eq!(error.status(), Some(Status::LeaseExpired), "{error}");
    wait_until("the worker is gone", || node.workers().len() == 1);
    check(&neighbor);
    // Everything later fails at once, with the same cause.
    let later = zeros::<u8>(1).sync_on(&neighbor.device().new_stream().unwrap());
    assert!(later.is_ok());
    let error = lease.device().new_stream().map(drop).unwrap_err();
    assert_eq!(error.status(), Some(Status::LeaseExpired), "{error}");
    check(&node.lease().acquire_blocking().unwrap());
}

/// A client without an answer would report that the node broke the protocol.
#[test]
fn upload_whose_lease_ends_gets_the_end_as_its_answer() {
    let node = Node::start(&["--spares", "0", "--grace-ms", "100"]);
    block_on(async {
        let mut client = RawClient::connect(&node.address).await;
        client.send(&Allocate { lease_secs: 1, ..request() }).await;
        let Granted { lease, token, .. } = client.granted().await;
        let mut put = Stream::open(&client.connection).await;
        let blob = PutBlob { lease, token, hash: [1; 32], bytes: 1 << 20 };
        put.frame(PutBlob::OPCODE, 0, 0, |out| blob.encode(out)).await;
        assert_eq!(refusal(&put.reply().await), Status::LeaseExpired);
    });
}

#[test]
fn killed_worker_ends_its_lease_and_no_other() {
    let node = Node::start(&["--spares", "0"]);
    let neighbor = node.lease().acquire_blocking().unwrap();
    let others = node.wait_for_workers(1);
    let lease = node.lease().acquire_blocking().unwrap();
    let kernels = Kernels::new(&lease).unwrap();
    let worker = *node.workers().iter().find(|pid| !others.contains(pid)).unwrap();
    let error = kernels.run_until(|| kill(worker)).unwrap_err();
    assert!(matches!(error, Error::Disconnected { may_have_run: true, .. }), "{error}");
    let error = lease.device().new_stream().map(drop).unwrap_err();
    assert!(matches!(error, Error::Disconnected { may_have_run: false, .. }), "{error}");
    check(&neighbor);
    drop((lease, kernels));
    wait_until("only the neighbor is left", || node.workers() == others);
}

#[test]
fn lease_gets_no_spare_worker_that_has_ended() {
    let node = Node::start(&["--spares", "1"]);
    wait_until("a spare worker runs", || node.workers().len() == 1);
    kill(node.workers()[0]);
    wait_until("the spare worker has ended", || node.workers().is_empty());
    check(&node.lease().acquire_blocking().unwrap());
}

#[test]
fn killed_node_ends_its_workers_and_disconnects_its_clients() {
    let mut node = Node::start(&["--spares", "1"]);
    let lease = node.lease().resume_within(Duration::from_millis(200)).acquire_blocking().unwrap();
    let kernels = Kernels::new(&lease).unwrap();
    wait_until("all workers run", || node.workers().len() == 2);
    let workers = node.workers();
    let error = kernels.run_until(|| node.kill()).unwrap_err();
    assert!(matches!(error, Error::Disconnected { may_have_run: true, .. }), "{error}");
    let is_gone = |pid: &u32| !std::path::Path::new(&format!("/proc/{pid}")).exists();
    wait_until("the workers are gone", || workers.iter().all(is_gone));
}

#[test]
fn operation_that_was_partly_sent_may_have_run() {
    let mut node = Node::start(&["--spares", "0"]);
    let lease = node.lease().resume_within(Duration::ZERO).acquire_blocking().unwrap();
    let stream = lease.device().new_stream().unwrap();
    let mut is_killed = false;
    let lose = |node: &mut Node| {
        node.kill();
        wait_until("the lease is lost", || lease.device().new_stream().is_err());
    };
    // The upload is sent, and the fill of the second buffer is not.
    let partly = h2d(vec![1f32; 4]).then(|sent| {
        lose(&mut node);
        is_killed = true;
        zeros::<f32>(4).map(move |refused| (sent, refused))
    });
    let error = partly.sync_on(&stream).map(drop).unwrap_err();
    assert!(matches!(error, Error::Disconnected { may_have_run: true, .. }), "{error}");
    assert!(is_killed);
    let never = zeros::<f32>(4).sync_on(&stream).map(drop).unwrap_err();
    assert!(matches!(never, Error::Disconnected { may_have_run: false, .. }), "{never}");
    // One branch is sent, and the other one is not.
    let mut node = Node::start(&["--spares", "0"]);
    let lease = node.lease().resume_within(Duration::ZERO).acquire_blocking().unwrap();
    let stream = lease.device().new_stream().unwrap();
    let branches = zip!(
        h2d(vec![1f32; 4]),
        value(()).then(|()| {
            node.kill();
            wait_until("the lease is lost", || lease.device().new_stream().is_err());
            zeros::<f32>(4)
        })
    );
    let error = branches.sync_on(&stream).map(drop).unwrap_err();
    assert!(matches!(error, Error::Disconnected { may_have_run: true, .. }), "{error}");
    let iota = include_str!("../../../kernels/iota.ptx");
    let error = lease.device().load_ptx_blocking(iota).map(drop).unwrap_err();
    assert!(matches!(error, Error::Disconnected { may_have_run: false, .. }), "{error}");
}

#[test]
fn submit_that_was_not_sent_has_not_run() {
    let mut node = Node::start(&["--spares", "0"]);
    let lease = node.lease().resume_within(Duration::from_millis(100)).acquire_blocking().unwrap();
    let iota = include_str!("../../../kernels/iota.ptx");
    node.kill();
    // The connection is lost after a while. Until then the submit is sent, and may run.
    let error = lease.submit("iota", iota).arg(&0u32).launch_blocking().unwrap_err();
    assert!(matches!(error, Error::Disconnected { may_have_run: true, .. }), "{error}");
    let inputs = vec![[0f32; 1]; 8];
    let results = burst(&[&lease], &Job::new("square", iota).arg(&1u32), &inputs);
    for result in results {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Disconnected { may_have_run: false, .. }), "{error}");
    }
}

#[test]
fn stopped_node_tells_its_clients() {
    let node = Node::start(&["--spares", "0"]);
    // A client that tried to reconnect would not notice the end.
    let lease = node.lease().resume_within(Duration::MAX).acquire_blocking().unwrap();
    signal(node.pid(), "-TERM");
    wait_until("the client knows the end", || lease.device().new_stream().is_err());
    let error = lease.device().new_stream().map(drop).unwrap_err();
    assert!(error.to_string().contains("the node stops"), "{error}");
    let error = lease.submit("k", "").launch_blocking().unwrap_err();
    assert!(matches!(error, Error::Disconnected { may_have_run: false, .. }), "{error}");
    assert!(error.to_string().contains("the node stops"), "{error}");
}

#[test]
fn fault_of_a_tenant_disturbs_no_other() {
    let node = Node::start(&[]);
    let (faulty, neighbor) =
        (node.lease().acquire_blocking().unwrap(), node.lease().acquire_blocking().unwrap());
    let faults = include_str!("../../../kernels/faults.ptx");
    let store = faulty.device().load_ptx_blocking(faults).unwrap().function("null_store").unwrap();
    let config = cuda_async::LaunchConfig::new(1, 1);
    // SAFETY: takes no argument. It writes to address 0, which the device refuses.
    let launch = unsafe { cuda_async::launch(&store, config, ()) };
    let error = launch.sync_on(&faulty.device().new_stream().unwrap()).unwrap_err();
    assert!(matches!(error, Error::Fault(_)), "{error}");
    check(&neighbor);
}

#[test]
fn fault_of_a_submit_states_the_size_of_its_region() {
    let node = Node::start(&[]);
    let lease = node.lease().acquire_blocking().unwrap();
    let iota = include_str!("../../../kernels/iota.ptx");
    // The kernel writes an output that was not requested, of 1 GiB: a GPU notices less only sometimes.
    let submit = lease.submit("iota", iota).grid(1 << 20).block(256).arg(&(1u32 << 28));
    let error = submit.launch_blocking().unwrap_err();
    assert_eq!(error.status(), Some(Status::LaunchFailed));
    assert!(error.to_string().contains("region for input and output has 1 byte"), "{error}");
}

#[test]
fn tenant_cannot_allocate_more_than_its_quota() {
    let node = Node::start(&[]);
    let lease = node.lease().min_vram(1 << 20).acquire_blocking().unwrap();
    let stream = lease.device().new_stream().unwrap();
    let half = zeros::<u8>(1 << 19).sync_on(&stream).unwrap();
    let error = zeros::<u8>(1 << 20).sync_on(&stream).map(drop).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { total: 0x10_0000, .. }), "{error}");
    assert_eq!((error.status(), error.is_retryable()), (Some(Status::CapacityExceeded), true));
    let error = zeros::<u8>((1 << 20) + 1).sync_on(&stream).map(drop).unwrap_err();
    assert_eq!((error.status(), error.is_retryable()), (Some(Status::TooLarge), false));
    drop(half);
    zeros::<u8>(1 << 20).sync_on(&stream).unwrap();
}

fn kill(pid: u32) {
    signal(pid, "-9");
}

fn signal(pid: u32, signal: &str) {
    let sent = std::process::Command::new("kill").args([signal, &pid.to_string()]).status();
    assert!(sent.unwrap().success());
}
