//! Launches and changes of graphs, at the level of commands.

use cuda_core::{
    Error,
    protocol::{NodeChange, Status, Work},
};
use cuda_lease::wire::Content;

use super::session::{
    Session, changes_with, content, content_with, copy, fill, node, region, write,
};
use crate::{
    harness::{Node, check},
    raw::block_on,
};

/// The bytes of the largest frame of a replay.
const REPLAY_BYTES: usize = 200;

#[test]
fn launch_of_a_hundred_nodes_is_one_small_frame() {
    let server = Node::start(&[]);
    block_on(async {
        let mut session = Session::open(&server.address, &[64, 64]).await;
        let mut nodes = vec![node(fill(1, 7, 16), &[])];
        for at in 1..100u32 {
            let (from, to) = if at % 2 == 1 { (1, 2) } else { (2, 1) };
            nodes.push(node(copy(region(from, 0), region(to, 0), 64), &[at - 1]));
        }
        session.create(5, &content(&nodes)).await;
        session.ready(5).await.unwrap();
        for _ in 0..3 {
            session.submit(fill(2, 0, 16)).await;
            let (_, bytes) = session.launch(5, Content::NO_CHANGES).await;
            assert!(bytes < REPLAY_BYTES, "{bytes} bytes");
            assert_eq!(session.read(2, 16).await.unwrap(), [7; 16]);
        }
    });
}

/// The client does not wait until the graph is ready.
#[test]
fn launch_right_behind_the_creation_runs() {
    let server = Node::start(&[]);
    block_on(async {
        let mut session = Session::open(&server.address, &[64]).await;
        session.create(5, &content(&[node(fill(1, 7, 16), &[])])).await;
        session.launch(5, Content::NO_CHANGES).await;
        assert_eq!(session.read(1, 16).await.unwrap(), [7; 16]);
    });
}

#[test]
fn changes_hold_for_their_launch_and_for_later_ones() {
    let server = Node::start(&[]);
    block_on(async {
        let mut session = Session::open(&server.address, &[64, 64]).await;
        let (ones, twos) = ([1; 64], [2; 64]);
        let nodes = [node(fill(1, 1, 16), &[]), node(write(2, &ones), &[])];
        session.create(5, &content_with(&nodes, &[&ones])).await;
        session.launch(5, Content::NO_CHANGES).await;
        assert_eq!(session.read(1, 2).await.unwrap(), [1, 1]);
        assert_eq!(session.read(2, 2).await.unwrap(), [0x0101_0101; 2]);
        let change = |node, work| NodeChange { node, work };
        let both = [change(0, fill(1, 2, 16)), change(1, write(2, &twos))];
        session.launch(5, Content::Inline(&changes_with(&both, &[&twos]))).await;
        for _ in 0..2 {
            assert_eq!(session.read(1, 2).await.unwrap(), [2, 2]);
            assert_eq!(session.read(2, 2).await.unwrap(), [0x0202_0202; 2]);
            session.submit(fill(2, 0, 16)).await;
            session.launch(5, Content::NO_CHANGES).await;
        }
    });
}

/// A graph and a change whose uploads are too long for a command.
#[test]
fn long_content_travels_on_the_bulk_lane() {
    const BYTES: usize = 3 << 18;
    let server = Node::start(&[]);
    for is_change in [false, true] {
        block_on(async {
            let mut session = Session::open(&server.address, &[BYTES as u64]).await;
            let long: Vec<u8> = (0..BYTES).map(|at| (at % 251) as u8).collect();
            if is_change {
                let zeros = [0; 4];
                let nodes = [node(write(1, &zeros), &[])];
                session.create(5, &content_with(&nodes, &[&zeros])).await;
                let change = NodeChange { node: 0, work: write(1, &long) };
                let change = changes_with(&[change], &[&long]);
                // The launch waits for its content.
                let place = session.bulk(&change).await;
                session.launch(5, place).await;
            } else {
                let nodes = [node(write(1, &long), &[])];
                let place = session.bulk(&content_with(&nodes, &[&long])).await;
                let id = cuda_core::protocol::GraphId(5);
                session.send(cuda_lease::wire::Command::CreateGraph { id, nodes: place }).await;
                session.launch(5, Content::NO_CHANGES).await;
            }
            let expected: Vec<_> = long[..4096]
                .chunks_exact(4)
                .map(|word| u32::from_le_bytes(word.try_into().unwrap()))
                .collect();
            assert_eq!(session.read(1, 1024).await.unwrap(), expected);
        });
    }
}

/// The graph cannot be created, because its memory could not be allocated.
#[test]
fn launch_of_a_refused_graph_loses_the_contents_that_it_should_have_written() {
    let server = Node::start(&[]);
    block_on(async {
        let mut session = Session::open(&server.address, &[64, 1 << 40, 64]).await;
        let nodes = [node(fill(1, 7, 16), &[]), node(copy(region(2, 0), region(3, 0), 64), &[])];
        session.create(5, &content(&nodes)).await;
        assert!(session.ready(5).await.is_err());
        session.submit(fill(1, 3, 16)).await;
        session.submit(fill(3, 3, 16)).await;
        let (launch, _) = session.launch(5, Content::NO_CHANGES).await;
        let failures = session.read(1, 1).await.unwrap_err();
        assert_eq!(failures[0].0, launch);
        for written in [1, 3] {
            let lost = session.read(written, 1).await.unwrap_err();
            assert!(matches!(lost[..], [(_, Error::ContentsLost { .. })]), "{lost:?}");
            session.submit(fill(written, 4, 16)).await;
            assert_eq!(session.read(written, 1).await.unwrap(), [4]);
        }
    });
}

/// A change that is refused fails this launch and later ones, because the device may have a part of it.
#[test]
fn refused_change_fails_later_launches_too() {
    let server = Node::start(&[]);
    block_on(async {
        let mut session = Session::open(&server.address, &[64]).await;
        session.create(5, &content(&[node(fill(1, 7, 16), &[])])).await;
        session.ready(5).await.unwrap();
        let change = changes_with(&[NodeChange { node: 1, work: fill(1, 8, 16) }], &[]);
        let (first, _) = session.launch(5, Content::Inline(&change)).await;
        let (second, _) = session.launch(5, Content::NO_CHANGES).await;
        let failures = session.read(1, 1).await.unwrap_err();
        assert_eq!([failures[0].0, failures[1].0], [first, second]);
        assert!(
            failures[0].1.to_string().contains("no node in graph 5 with the id 1"),
            "{failures:?}"
        );
        assert_eq!(failures[0].1, failures[1].1);
    });
}

/// Four of these graphs fit in the host memory for the graphs of a lease.
#[test]
fn dropped_graph_gives_its_memory_back() {
    const NODES: usize = 60_000;
    let server = Node::start(&[]);
    block_on(async {
        let mut session = Session::open(&server.address, &[64]).await;
        let joins: Vec<_> = (0..NODES).map(|_| node(Work::Join, &[])).collect();
        let joins = content(&joins);
        for id in 1..=4 {
            session.create(id, &joins).await;
            session.ready(id).await.unwrap();
        }
        session.create(5, &joins).await;
        let refused = session.ready(5).await.unwrap_err();
        assert_eq!(refused.status(), Some(Status::CapacityExceeded), "{refused}");
        session.drop_graph(5).await;
        session.drop_graph(2).await;
        for id in 6..9 {
            session.create(id, &joins).await;
            session.ready(id).await.unwrap();
            session.drop_graph(id).await;
        }
        session.launch(4, Content::NO_CHANGES).await;
        assert!(session.read(1, 0).await.unwrap().is_empty());
    });
}

#[test]
fn graph_survives_a_lost_connection_and_each_launch_runs_once() {
    let server = Node::start(&[]);
    block_on(async {
        let mut session = Session::open(&server.address, &[64]).await;
        // Each launch shifts the words by one.
        let shift = |at: u64| copy(region(1, 4 * at), region(1, 4 * at + 4), 4);
        let mut nodes: Vec<_> = (0..15u32)
            .map(|at| node(shift(14 - u64::from(at)), &[at.wrapping_sub(1)][..at.min(1) as usize]))
            .collect();
        nodes.push(node(fill(1, 7, 1), &[14]));
        session.submit(fill(1, 0, 16)).await;
        session.create(5, &content(&nodes)).await;
        session.reconnect(&server.address).await;
        session.launch(5, Content::NO_CHANGES).await;
        session.reconnect(&server.address).await;
        session.launch(5, Content::NO_CHANGES).await;
        session.reconnect(&server.address).await;
        assert_eq!(session.read(1, 4).await.unwrap(), [7, 7, 0, 0]);
    });
    check(&server.lease().acquire_blocking().unwrap());
}
