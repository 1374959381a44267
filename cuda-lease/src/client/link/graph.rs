//! Graphs as the content of commands: nodes and changes, with the bytes of their uploads.

use std::sync::Arc;

use cuda_core::{
    Error, Result,
    protocol::{Graph, HostBlock, HostRegion, NodeChange, Repeat, Work},
};

use crate::wire::{
    CONTENT_LIMIT, Change, GRAPH_NODES, LOOP_DEPTH, Node, NodeWork, Step, encode_changes,
    encode_nodes,
};

/// The content of a new graph.
///
/// # Errors
/// [`Error::Unsupported`] for a graph that is larger than a lease allows, or that has work that no graph has.
pub(in crate::client) fn nodes_content(graph: &Graph, address: &str) -> Result<Vec<u8>> {
    let mut count = 0;
    let nodes = nodes(graph, &mut count, 0, address)?;
    let mut content = Vec::new();
    encode_nodes(&nodes, &mut content);
    check_length(content)
}

/// The content of a launch. The blocks of its uploads are passed beside it.
///
/// # Errors
/// As [`nodes_content`].
pub(in crate::client) fn changes_content(
    changes: &[NodeChange<'_>],
    host: &[Arc<HostBlock>],
    address: &str,
) -> Result<Vec<u8>> {
    let steps = changes.iter().map(|NodeChange { node, work }| {
        step(work, host, address).map(|step| Change { node: *node, step })
    });
    let changes: Vec<_> = steps.collect::<Result<_>>()?;
    let mut content = Vec::new();
    encode_changes(&changes, &mut content);
    check_length(content)
}

fn nodes<'a>(
    graph: &'a Graph,
    count: &mut usize,
    depth: u32,
    address: &str,
) -> Result<Vec<Node<'a>>> {
    *count = count.saturating_add(graph.nodes.len());
    if *count > GRAPH_NODES || depth > LOOP_DEPTH {
        let detail = format!(
            "it has more than {GRAPH_NODES} nodes or {LOOP_DEPTH} nested loops, which are the limits of a lease; record \
             parts of the operation"
        );
        return Err(Error::OutOfRange { what: "a graph".into(), detail });
    }
    let mut nodes = Vec::with_capacity(graph.nodes.len());
    for node in &graph.nodes {
        let work = match &node.work {
            Work::Repeat(Repeat { condition, body, .. }) => NodeWork::Repeat {
                condition: *condition,
                body: self::nodes(body, count, depth + 1, address)?,
            },
            work => NodeWork::Step(step(work, &graph.host, address)?),
        };
        let name = node.name.as_deref().map(Into::into);
        nodes.push(Node { work, after: node.after.clone(), name });
    }
    Ok(nodes)
}

fn step<'a>(work: &'a Work<'_>, host: &'a [Arc<HostBlock>], address: &str) -> Result<Step<'a>> {
    Ok(match work {
        Work::Join => Step::Join,
        Work::Upload { from, to, bytes } => {
            Step::Write { to: *to, bytes: host_bytes(*from, *bytes, host)? }
        }
        Work::Copy { from, to, bytes } => Step::Copy { from: *from, to: *to, bytes: *bytes },
        Work::Fill { to, pattern, count } => {
            Step::Fill { to: *to, pattern: *pattern, count: *count }
        }
        Work::Timestamp { to } => Step::Timestamp { to: *to },
        Work::Launch(launch) => Step::Launch(launch.borrowed()),
        _ => return Err(Error::unsupported("this kind of work in a graph", address)),
    })
}

/// The bytes that an upload reads. The caller copies them before the call of the backend returns.
fn host_bytes(from: HostRegion, bytes: u64, host: &[Arc<HostBlock>]) -> Result<&[u8]> {
    let block = host.iter().find(|it| it.id() == from.block);
    // SAFETY: the bytes of a graph do not change while it exists, and those of a change not before its launch is
    // accepted.
    let all = block.map(|it| unsafe { it.shared_bytes() });
    let start = usize::try_from(from.offset).ok();
    let end = from.offset.checked_add(bytes).and_then(|end| usize::try_from(end).ok());
    let found = all.zip(start.zip(end)).and_then(|(all, (start, end))| all.get(start..end));
    found.ok_or_else(|| Error::OutOfRange {
        what: "an upload of a graph".into(),
        detail: format!("no block beside it has {bytes} bytes at offset {}", from.offset),
    })
}

fn check_length(content: Vec<u8>) -> Result<Vec<u8>> {
    if content.len() as u64 <= CONTENT_LIMIT {
        return Ok(content);
    }
    let detail = format!(
        "it has {} bytes with its uploads, and the limit of a lease is {CONTENT_LIMIT}; upload before the graph, or record \
         parts of the operation",
        content.len()
    );
    Err(Error::OutOfRange { what: "a graph".into(), detail })
}

#[cfg(test)]
mod tests {
    use cuda_core::protocol::{AllocId, GraphNode, Region};

    use super::*;
    use crate::wire::{decode_changes, decode_nodes};

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

    #[test]
    fn uploads_carry_the_bytes_of_their_blocks() {
        let host = blocks();
        let work = upload(&host[1], 2);
        let node = GraphNode { work: work.clone(), after: Vec::new(), name: Some("up".into()) };
        let graph = Graph { nodes: vec![node], host: host.clone() };
        let step =
            Step::Write { to: Region { alloc: AllocId(1), offset: 8 }, bytes: &[22, 23, 24, 25] };
        let content = nodes_content(&graph, "test").unwrap();
        let expected =
            Node { work: NodeWork::Step(step.clone()), after: Vec::new(), name: Some("up".into()) };
        assert_eq!(decode_nodes(&content).unwrap(), [expected]);
        let content = changes_content(&[NodeChange { node: 3, work }], &host, "test").unwrap();
        assert_eq!(decode_changes(&content).unwrap(), [Change { node: 3, step }]);
    }

    #[test]
    fn uploads_outside_their_blocks_are_refused() {
        let host = blocks();
        for (offset, beside) in [(5, &host[..]), (u64::MAX, &host[..]), (0, &host[1..])] {
            let change = NodeChange { node: 0, work: upload(&host[0], offset) };
            let refused = changes_content(&[change], beside, "test");
            assert!(matches!(refused, Err(Error::OutOfRange { .. })), "{offset}");
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
