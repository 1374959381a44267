//! Graphs of clients that break the rules.

use std::sync::Arc;

use cuda_core::protocol::{Graph, GraphId, Repeat, Status, Work};
use cuda_lease::wire::{
    CONTENT_LIMIT, Command, Content, GRAPH_NODES, LOOP_DEPTH, TransferId, Writer, opcode,
};

use super::session::{Session, content, copy, fill, node, region};
use crate::{
    harness::device,
    hostile::{attack, memory},
};

/// Content that has one node with these predecessors.
fn after(after: &[u32]) -> Vec<u8> {
    content(&[node(Work::Join, &[]), node(Work::Join, after)])
}

fn nested(times: u32) -> Vec<u8> {
    let innermost = node(Work::Join, &[]);
    content(&[(0..times).fold(innermost, |inner, _| {
        let body = Arc::new(Graph { nodes: vec![inner], host: Vec::new() });
        node(Work::Repeat(Repeat { condition: region(1, 0), body, uses: [].into() }), &[])
    })])
}

#[test]
fn malformed_content_ends_the_session() {
    attack(async |server| {
        // One node of 38 bytes: a read of 4 bytes as transfer 1, after no node.
        let mut read = Vec::new();
        let mut w = Writer::new(&mut read);
        w.put(1u32)
            .put(38u32)
            .put(opcode::MEM_READ)
            .put(region(1, 0))
            .put(1u64)
            .put(4u64)
            .put(0u32);
        let mut truncated = content(&[node(Work::Join, &[])]);
        truncated.truncate(truncated.len() - 1);
        let cases = [
            (after(&[1]), "must have smaller indices"),
            (after(&[u32::MAX]), "must have smaller indices"),
            (after(&[0, 0]), "must have smaller indices"),
            (nested(LOOP_DEPTH + 1), "nested more than"),
            (read, "0x0605"),
            ((GRAPH_NODES as u32 + 1).to_le_bytes().to_vec(), "nodes of a graph"),
            (u32::MAX.to_le_bytes().to_vec(), "nodes of a graph"),
            (truncated, "truncated"),
        ];
        for (content, reason) in cases {
            let mut session = Session::open(&server.address, &[64]).await;
            session.create(5, &content).await;
            let error = session.lost().await;
            assert!(error.contains(reason), "{error}");
        }
    });
}

#[test]
fn malformed_content_on_the_bulk_lane_ends_the_session() {
    attack(async |server| {
        for is_launch in [false, true] {
            let mut session = Session::open(&server.address, &[64]).await;
            let place = session.bulk(&[0xff; 100_000]).await;
            if is_launch {
                session.create(5, &content(&[])).await;
                session.launch(5, place).await;
            } else {
                session.send(Command::CreateGraph { id: GraphId(5), nodes: place }).await;
            }
            let error = session.lost().await;
            assert!(error.contains("nodes of a graph"), "{error}");
        }
    });
}

#[test]
fn ids_in_use_and_huge_lengths_end_the_session() {
    attack(async |server| {
        let mut session = Session::open(&server.address, &[64]).await;
        session.create(5, &content(&[])).await;
        session.create(5, &content(&[])).await;
        let error = session.lost().await;
        assert!(error.contains("graph 5 is already in use"), "{error}");
        for bytes in [CONTENT_LIMIT + 1, u64::MAX] {
            let mut session = Session::open(&server.address, &[64]).await;
            let nodes = Content::Bulk { transfer: TransferId(9), bytes };
            session.send(Command::CreateGraph { id: GraphId(5), nodes }).await;
            let error = session.lost().await;
            assert!(error.contains("the limit is"), "{error}");
        }
    });
}

#[test]
fn unknown_memory_and_unknown_graphs_are_errors() {
    attack(async |server| {
        let mut session = Session::open(&server.address, &[64]).await;
        let outside = copy(region(1, 0), region(1, 60), 8);
        let modules = Work::Launch(cuda_core::protocol::Launch {
            function: cuda_core::protocol::FunctionId {
                module: cuda_core::protocol::ModuleId(99),
                entry: 0,
            },
            config: cuda_core::LaunchConfig::new(1, 1),
            params: Default::default(),
            relocations: Default::default(),
            variables: Default::default(),
        });
        for (id, step) in [(5, fill(77, 1, 1)), (6, outside), (7, modules)] {
            session.create(id, &content(&[node(step, &[])])).await;
            assert!(session.ready(id).await.is_err(), "{id}");
            session.launch(id, Content::NO_CHANGES).await;
            assert!(session.read(1, 1).await.is_err(), "{id}");
        }
        assert!(session.ready(99).await.is_err());
        session.drop_graph(99).await;
        // The session goes on.
        session.submit(fill(1, 3, 16)).await;
        assert_eq!(session.read(1, 1).await.unwrap(), [3]);
    });
}

/// A client creates graphs without end, of the smallest and of the largest sizes, and announces content that it does
/// not send.
#[test]
fn graphs_without_end_occupy_bounded_memory() {
    attack(async |server| {
        let mut session = Session::open(&server.address, &[64]).await;
        let before = memory(server);
        let joins: Vec<_> = (0..GRAPH_NODES).map(|_| node(Work::Join, &[])).collect();
        let joins = content(&joins);
        let mut refused = 0;
        for id in 1..=16 {
            session.create(id, &joins).await;
            if let Err(error) = session.ready(id).await {
                assert_eq!(error.status(), Some(Status::CapacityExceeded), "{error}");
                refused += 1;
            }
        }
        assert_eq!(refused, 12);
        for id in 41..=80 {
            let nodes = Content::Bulk { transfer: TransferId(id), bytes: CONTENT_LIMIT };
            session.send(Command::CreateGraph { id: GraphId(id), nodes }).await;
        }
        session.submit(fill(1, 3, 16)).await;
        assert_eq!(session.read(1, 1).await.unwrap(), [3]);
        // The driver uses more for the graphs that it has.
        let limit = if device() == "cpu" { 384 << 20 } else { 2 << 30 };
        let grown = memory(server).saturating_sub(before);
        println!("graphs without end: {} MiB", grown >> 20);
        assert!(grown < limit, "the node has grown by {grown} bytes");
        // As many as the node remembers, with those that it refused.
        let nodes = content(&[]);
        let create = |id| Command::CreateGraph { id: GraphId(id), nodes: Content::Inline(&nodes) };
        session.send_all((100..16_500).map(create)).await;
        let error = session.lost().await;
        assert!(error.contains("graphs exist"), "{error}");
    });
}
