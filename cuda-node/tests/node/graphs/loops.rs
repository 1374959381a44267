//! Loops inside graphs.

use std::sync::Arc;

use cuda_core::protocol::{Graph, GraphNode, Region, Repeat, Work};
use cuda_lease::wire::Content;

use super::session::{Session, content, copy, fill, node, region};
use crate::{harness, raw::block_on};

/// The nodes of a pass that moves the words of buffer `alloc` by one place: to the front, or to the back.
fn shift(alloc: u64, to_front: bool, words: u64, first: u32) -> Vec<GraphNode> {
    let step = |at: u64| {
        let (from, to) = if to_front { (at + 1, at) } else { (words - 2 - at, words - 1 - at) };
        copy(region(alloc, 4 * from), region(alloc, 4 * to), 4)
    };
    (0..words - 1)
        .map(|at| {
            let index = first + at as u32;
            node(step(at), &[index.wrapping_sub(1)][..usize::from(index > 0)])
        })
        .collect()
}

fn repeat(condition: Region, nodes: Vec<GraphNode>) -> Work<'static> {
    let body = Arc::new(Graph { nodes, host: Vec::new() });
    Work::Repeat(Repeat { condition, body, uses: [].into() })
}

/// The condition is the first of some words that each pass moves to the front. Each pass also adds a word to buffer 2.
fn counting_loop() -> GraphNode {
    let mut body = shift(1, true, 8, 0);
    body.extend(shift(2, false, 8, 7));
    body.push(node(fill(2, 9, 1), &[13]));
    GraphNode { name: Some("count".into()), ..node(repeat(region(1, 0), body), &[]) }
}

#[test]
fn loop_runs_while_its_condition_is_set() {
    let server = harness::Node::start(&[]);
    block_on(async {
        let mut session = Session::open(&server.address, &[32, 32, 4]).await;
        let seen = node(copy(region(2, 0), region(3, 0), 4), &[0]);
        session.create(5, &content(&[counting_loop(), seen])).await;
        session.ready(5).await.unwrap();
        for passes in [3, 0, 5] {
            session.submit(fill(1, 0, 8)).await;
            session.submit(fill(1, 1, passes)).await;
            session.submit(fill(2, 0, 8)).await;
            session.launch(5, Content::NO_CHANGES).await;
            let counted = session.read(2, 8).await.unwrap();
            let passes = passes as usize;
            assert_eq!(counted[..passes], vec![9; passes][..]);
            assert_eq!(counted[passes..], vec![0; 8 - passes][..]);
            assert_eq!(session.read(3, 1).await.unwrap(), [if passes > 0 { 9 } else { 0 }]);
        }
    });
}

#[test]
fn loop_inside_a_loop_runs_in_each_pass() {
    let server = harness::Node::start(&[]);
    block_on(async {
        let mut session = Session::open(&server.address, &[32, 32, 32]).await;
        // The outer loop sets the condition of the inner one anew, for two passes each.
        let mut body = vec![node(fill(1, 1, 2), &[])];
        body.push(GraphNode { after: vec![0], ..counting_loop() });
        body.extend(shift(3, true, 8, 2));
        session.create(5, &content(&[node(repeat(region(3, 0), body), &[])])).await;
        for buffer in 1..4 {
            session.submit(fill(buffer, 0, 8)).await;
        }
        session.submit(fill(3, 1, 3)).await;
        session.launch(5, Content::NO_CHANGES).await;
        assert_eq!(session.read(2, 8).await.unwrap(), [9, 9, 9, 9, 9, 9, 0, 0]);
    });
}
