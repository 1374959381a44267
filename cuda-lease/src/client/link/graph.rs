//! Graphs as the content of commands: nodes and changes, with the bytes of their uploads.

use std::sync::Arc;

use cuda_core::{
    Result,
    protocol::{Graph, HostBlock, HostId, Limit, NodeChange, Quantity, Repeat, Work},
};

use crate::wire::{CONTENT_LIMIT, GRAPH_NODES, LOOP_DEPTH, encode_changes, encode_graph};

/// The content of a new graph.
///
/// # Errors
/// An error for a graph that is larger than a lease allows, or that has work that no graph has.
pub(in crate::client) fn nodes_content(graph: &Graph, address: &str) -> Result<Vec<u8>> {
    let (mut count, mut blocks, mut content) = Default::default();
    collect(graph, &mut count, 0, &mut blocks)?;
    encode_graph(graph, &bytes_of(&blocks), address, &mut content)?;
    check_length(content)
}

/// The content of a launch. The blocks of its uploads are passed beside it.
///
/// # Errors
/// The errors of [`nodes_content`].
pub(in crate::client) fn changes_content(
    changes: &[NodeChange<'_>],
    host: &[Arc<HostBlock>],
    address: &str,
) -> Result<Vec<u8>> {
    let mut content = Vec::new();
    encode_changes(changes, &bytes_of(host), address, &mut content)?;
    check_length(content)
}

/// Collects the blocks of a graph and of its loops.
///
/// # Errors
/// The graph has too many nodes, or loops that are nested too deeply.
fn collect(
    graph: &Graph,
    count: &mut usize,
    depth: u32,
    blocks: &mut Vec<Arc<HostBlock>>,
) -> Result<()> {
    *count = count.saturating_add(graph.nodes.len());
    let what = "a graph on a lease";
    Limit::AtMost(GRAPH_NODES as u64).check(what, Quantity::Nodes, *count as u64)?;
    Limit::AtMost(LOOP_DEPTH.into()).check(what, Quantity::LoopDepth, depth.into())?;
    blocks.extend(graph.host.iter().cloned());
    for node in &graph.nodes {
        if let Work::Repeat(Repeat { body, .. }) = &node.work {
            collect(body, count, depth + 1, blocks)?;
        }
    }
    Ok(())
}

/// The bytes of blocks. The caller copies them before the call of the backend returns.
fn bytes_of(blocks: &[Arc<HostBlock>]) -> Vec<(HostId, &[u8])> {
    // SAFETY: the bytes of a graph do not change while it exists, and those of a change not before its launch is
    // accepted.
    blocks.iter().map(|block| (block.id(), unsafe { block.shared_bytes() })).collect()
}

fn check_length(content: Vec<u8>) -> Result<Vec<u8>> {
    let limit = Limit::AtMost(CONTENT_LIMIT);
    limit.check("a graph on a lease", Quantity::UploadedBytes, content.len() as u64)?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use cuda_core::{
        Error,
        protocol::{AllocId, GraphNode, HostRegion, Region},
    };

    use super::*;
    use crate::wire::{CONTENT_BLOCK, decode_changes, decode_graph};

    fn upload(block: &HostBlock, offset: u64) -> Work<'static> {
        let from = HostRegion { block: block.id(), offset };
        Work::Upload { from, to: Region { alloc: AllocId(1), offset: 8 }, bytes: 4 }
    }

    fn blocks() -> Vec<Arc<HostBlock>> {
        let block = |first: u8| {
            let mut block = HostBlock::heap(8).unwrap();
            let bytes: Vec<u8> = (first..first + 8).collect();
            block.bytes_mut().copy_from_slice(&bytes);
            Arc::new(block)
        };
        vec![block(10), block(20)]
    }

    /// The bytes of a decoded upload to offset 8.
    fn uploaded<'a>(work: &Work<'_>, content: &'a [u8]) -> &'a [u8] {
        let Work::Upload { from, to, bytes } = work else { panic!("{work:?} is no upload") };
        assert_eq!((from.block, to.offset), (CONTENT_BLOCK, 8));
        &content[from.offset as usize..(from.offset + bytes) as usize]
    }

    #[test]
    fn uploads_carry_the_bytes_of_their_blocks() {
        let host = blocks();
        let work = upload(&host[1], 2);
        let node = GraphNode { work: work.clone(), after: Vec::new(), name: Some("up".into()) };
        let graph = Graph { nodes: vec![node.clone()], host: host.clone() };
        let content = nodes_content(&graph, "test").unwrap();
        let decoded = decode_graph(&content).unwrap();
        assert_eq!((&decoded.nodes[0].name, &decoded.nodes[0].after), (&node.name, &node.after));
        assert_eq!(uploaded(&decoded.nodes[0].work, &content), [22, 23, 24, 25]);
        let content = changes_content(&[NodeChange { node: 3, work }], &host, "test").unwrap();
        let changes = decode_changes(&content).unwrap();
        assert_eq!((changes.len(), changes[0].node), (1, 3));
        assert_eq!(uploaded(&changes[0].work, &content), [22, 23, 24, 25]);
    }

    #[test]
    fn uploads_outside_their_blocks_are_refused() {
        let host = blocks();
        for (offset, beside) in [(5, &host[..]), (u64::MAX, &host[..]), (0, &host[1..])] {
            let change = NodeChange { node: 0, work: upload(&host[0], offset) };
            let refused = changes_content(&[change], beside, "test");
            let is_missing = beside.len() < host.len();
            assert!(
                matches!(
                    (refused, is_missing),
                    (Err(Error::OutOfRange { .. }), false)
                        | (Err(Error::NoSuchObject { .. }), true)
                ),
                "{offset}"
            );
        }
    }

    #[test]
    fn graph_beyond_the_limits_of_a_lease_is_refused() {
        let join = GraphNode { work: Work::Join, after: Vec::new(), name: None };
        let condition = Region { alloc: AllocId(1), offset: 0 };
        let graph = |nodes| Graph { nodes, host: Vec::new() };
        let nested = |times| {
            (0..times).fold(join.clone(), |node, _| {
                let body = Arc::new(graph(vec![node]));
                let work = Work::Repeat(Repeat { condition, body, uses: [].into() });
                GraphNode { work, ..join.clone() }
            })
        };
        let is_supported = |node| nodes_content(&graph(vec![node]), "test").is_ok();
        assert!(is_supported(nested(LOOP_DEPTH)) && !is_supported(nested(LOOP_DEPTH + 1)));
        let many = |count| nodes_content(&graph(vec![join.clone(); count]), "test");
        assert!(many(GRAPH_NODES).is_ok());
        assert!(matches!(many(GRAPH_NODES + 1), Err(Error::OutOfRange { .. })));
    }
}
