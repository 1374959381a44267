//! Detached leases: their grants are confirmed, and their tenant frees them without the token.

use cuda_core::protocol::Status;
use cuda_lease::{
    LeaseEntry, NodeClient,
    authority::ClientTls,
    wire::{Allocate, Confirm, Refused, features},
};

use crate::{
    harness::{Node, wait_until},
    raw::{RawClient, block_on, refusal, request},
};

/// A node, and another client of the same tenant.
fn start() -> (Node, NodeClient) {
    let node = Node::start(&["--metrics", "127.0.0.1:0"]);
    let observer = NodeClient::connect(&node.address, ClientTls::loopback()).unwrap();
    (node, observer)
}

/// The leases, once the client that acquired them has gone.
fn leases_afterwards(node: &Node, observer: &NodeClient) -> Vec<LeaseEntry> {
    wait_until("the connection has ended", || node.metric("cuda_node_connections") == 1.0);
    observer.leases().unwrap()
}

/// A request that outlasts every wait of a test.
fn detached() -> Allocate {
    Allocate { detached: true, lease_secs: 3600, ..request() }
}

#[test]
fn detached_lease_that_its_client_has_not_confirmed_ends_with_the_connection() {
    let (node, observer) = start();
    block_on(async {
        let mut client = RawClient::connect_with(&node.address, features::CONFIRM).await;
        client.send(&detached()).await;
        client.granted().await;
    });
    // The client may come back and repeat the request for a while.
    let left = leases_afterwards(&node, &observer);
    assert!(left.iter().all(|lease| !lease.connected), "{left:?}");
    wait_until("the lease has ended", || observer.leases().unwrap().is_empty());
}

#[test]
fn detached_lease_that_its_client_has_confirmed_outlives_the_connection() {
    let (node, observer) = start();
    block_on(async {
        let mut client = RawClient::connect_with(&node.address, features::CONFIRM).await;
        client.send(&detached()).await;
        let granted = client.granted().await;
        let confirm = Confirm { lease: granted.lease, token: vec![1; 8].into() };
        client.control.frame(Confirm::OPCODE, 0, 3, |out| confirm.encode(out)).await;
        assert_eq!(client.control.reply().await.unwrap().0, Refused::OPCODE);
        let confirm = Confirm { lease: granted.lease, token: granted.token };
        client.control.frame(Confirm::OPCODE, 0, 4, |out| confirm.encode(out)).await;
        assert_eq!(client.control.reply().await.unwrap(), (Confirm::OPCODE | 0x8000, Vec::new()));
    });
    let left = leases_afterwards(&node, &observer);
    assert!(left.len() == 1 && left[0].connected, "{left:?}");
}

/// Its client gets an error and no token, so nobody can use or end the lease.
#[test]
fn detached_lease_whose_confirmation_cannot_be_written_ends() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let node = Node::start(&["--state", state.to_str().unwrap()]);
    let observer = NodeClient::connect(&node.address, ClientTls::loopback()).unwrap();
    let (leases, aside) = (state.join("leases"), state.join("aside"));
    block_on(async {
        let mut client = RawClient::connect_with(&node.address, features::CONFIRM).await;
        client.send(&detached()).await;
        let granted = client.granted().await;
        std::fs::rename(&leases, &aside).unwrap();
        let confirm = Confirm { lease: granted.lease, token: granted.token };
        client.control.frame(Confirm::OPCODE, 0, 3, |out| confirm.encode(out)).await;
        assert_eq!(refusal(&client.control.reply().await), Status::Internal);
        wait_until("the lease has ended", || observer.leases().unwrap().is_empty());
    });
}

/// A client whose connection was lost confirms again.
#[test]
fn confirmed_lease_outlives_a_second_confirmation_that_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let node = Node::start(&["--state", state.to_str().unwrap()]);
    let leases = state.join("leases");
    block_on(async {
        let mut client = RawClient::connect_with(&node.address, features::CONFIRM).await;
        client.send(&detached()).await;
        let granted = client.granted().await;
        for number in 3..5 {
            let confirm = Confirm { lease: granted.lease, token: granted.token.clone() };
            client.control.frame(Confirm::OPCODE, 0, number, |out| confirm.encode(out)).await;
            assert_eq!(client.control.reply().await.unwrap().0, Confirm::OPCODE | 0x8000);
            _ = std::fs::rename(&leases, state.join("aside"));
        }
    });
}

#[test]
fn use_of_a_token_confirms_its_lease() {
    let (node, observer) = start();
    let other = NodeClient::connect(&node.address, ClientTls::loopback()).unwrap();
    let token = std::sync::Mutex::new(None);
    block_on(async {
        let mut client = RawClient::connect_with(&node.address, features::CONFIRM).await;
        client.send(&detached()).await;
        let granted = client.granted().await;
        other.renew(granted.lease, granted.token.clone(), 3600).unwrap();
        *token.lock().unwrap() = Some(granted.token);
    });
    drop(other);
    let left = leases_afterwards(&node, &observer);
    assert!(left.len() == 1 && left[0].connected, "{left:?}");
}

#[test]
fn detached_lease_of_a_client_without_the_feature_needs_no_confirmation() {
    let (node, observer) = start();
    block_on(async {
        let mut client = RawClient::connect(&node.address).await;
        client.send(&detached()).await;
        client.granted().await;
    });
    let left = leases_afterwards(&node, &observer);
    assert!(left.len() == 1 && left[0].connected, "{left:?}");
}

#[test]
fn client_of_this_crate_confirms_its_grants() {
    let (node, observer) = start();
    let client = NodeClient::connect(&node.address, ClientTls::loopback()).unwrap();
    let lease = client.allocate(&node.lease().lease_secs(3600)).unwrap();
    client.close();
    let left = leases_afterwards(&node, &observer);
    assert!(left.len() == 1 && left[0].connected, "{left:?}");
    observer.free(lease.id, lease.token).unwrap();
}

#[test]
fn lease_on_a_node_without_certificates_is_not_freed_without_its_token() {
    let (node, observer) = start();
    let lease = observer.allocate(&node.lease()).unwrap();
    let error = observer.free_own(lease.id).unwrap_err();
    assert_eq!(error.status(), Some(Status::Unauthorized), "{error}");
    assert!(error.to_string().contains("verifies no certificates"), "{error}");
    observer.free(lease.id, lease.token).unwrap();
}
