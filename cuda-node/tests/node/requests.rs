//! Requests for leases that wait: repeated ones, and those whose client is gone.

use std::task::{Context, Waker};

use cuda_core::protocol::Status;
use cuda_lease::wire::Allocate;

use crate::{
    harness::{LONG, Node, check, wait_until},
    raw::{RawClient, request},
};

fn waiting() -> Allocate {
    Allocate { wait_ms: LONG.as_millis() as u32, ..request() }
}

fn start(leases: usize) -> Node {
    Node::start(&["--metrics", "127.0.0.1:0", "--spares", "0", "--max-leases", &leases.to_string()])
}

fn wait_until_queued(node: &Node, requests: usize) {
    let is_queued = || node.metric("cuda_node_leases_waiting") == requests as f64;
    wait_until("the requests wait", is_queued);
}

/// Runs a future that may block its thread: the connections are driven on another one.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(future)
}

#[test]
fn repeated_request_that_waits_gets_the_same_lease() {
    let node = start(1);
    let holder = node.lease().acquire_blocking().unwrap();
    block_on(async {
        let mut first = RawClient::connect(&node.address).await;
        let mut second = RawClient::connect(&node.address).await;
        let request = waiting();
        first.send(&request).await;
        wait_until_queued(&node, 1);
        second.send(&request).await;
        holder.free();
        assert_eq!(first.granted().await.lease, second.granted().await.lease);
    });
}

#[test]
fn client_that_reconnects_while_its_request_waits_gets_the_lease() {
    let node = start(1);
    let holder = node.lease().acquire_blocking().unwrap();
    block_on(async {
        let mut first = RawClient::connect(&node.address).await;
        let request = waiting();
        first.send(&request).await;
        wait_until_queued(&node, 1);
        let mut second = RawClient::connect(&node.address).await;
        second.send(&request).await;
        first.connection.close(0u32.into(), b"");
        // The holder, and the second client.
        let is_closed = || node.metric("cuda_node_connections") == 2.0;
        wait_until("the first connection is closed", is_closed);
        holder.free();
        second.granted().await;
    });
}

/// Leases are granted at the moment at which their clients go away.
#[test]
fn no_lease_is_left_of_clients_that_stop_waiting() {
    const CLIENTS: usize = 16;
    let node = start(CLIENTS);
    let holders: Vec<_> = (0..CLIENTS).map(|_| node.lease().acquire_blocking().unwrap()).collect();
    block_on(async {
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            let mut client = RawClient::connect(&node.address).await;
            client.send(&waiting()).await;
            clients.push(client);
        }
        wait_until_queued(&node, CLIENTS);
        for (holder, client) in holders.into_iter().zip(&clients) {
            client.connection.close(0u32.into(), b"");
            holder.free();
            tokio::task::yield_now().await;
        }
    });
    let name = node.json()["devices"][0]["name"].as_str().unwrap().to_owned();
    let leases = format!("cuda_node_leases{{device=\"{name}\"}}");
    wait_until("no lease is left", || node.metric(&leases) == 0.0);
    check(&node.lease().acquire_blocking().unwrap());
}

#[test]
fn request_whose_future_is_dropped_leaves_the_queue() {
    let node = start(1);
    let holder = node.lease().acquire_blocking().unwrap();
    let mut acquiring = Box::pin(node.lease().wait(10 * LONG).acquire());
    assert!(acquiring.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    wait_until_queued(&node, 1);
    drop(acquiring);
    wait_until_queued(&node, 0);
    wait_until("its connection is closed", || node.metric("cuda_node_connections") == 1.0);
    drop(holder);
    check(&node.lease().wait(LONG).acquire_blocking().unwrap());
}

/// A client that tries again and again would use up the connections of its tenant.
#[test]
fn connections_of_refused_requests_are_closed() {
    let node = start(1);
    let holder = node.lease().acquire_blocking().unwrap();
    // A tenant has 128.
    for _ in 0..150 {
        let error = node.lease().acquire_blocking().unwrap_err();
        assert_eq!(error.status(), Some(Status::CapacityExceeded), "{error}");
    }
    check(&holder);
}
