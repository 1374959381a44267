//! The content of graphs: the nodes of a new graph, and the changes of a launch.
//!
//! Content travels in its command, or on the bulk lane if it is long ([`Content`]). Its bytes are a list of nodes or of
//! changes. Each item has its length in front, so later versions can add fields to it. The bytes of an upload are
//! inside of its node, and a reader names them by their place in the content ([`CONTENT_BLOCK`]).

use std::sync::Arc;

use cuda_core::{
    Error,
    protocol::{Feature, Graph, GraphNode, HostId, HostRegion, NodeChange, Region, Repeat, Work},
};

use super::{Field, Reader, TransferId, Variants, WireError, Writer, opcode};

/// The maximum number of nodes of a graph, with those in the bodies of its loops.
pub const GRAPH_NODES: usize = 1 << 16;

/// The maximum number of loops inside each other.
pub const LOOP_DEPTH: u32 = 8;

/// The maximum number of bytes of the content of one command.
pub const CONTENT_LIMIT: u64 = 64 << 20;

/// The block that the uploads of decoded nodes and changes name: the content itself.
pub const CONTENT_BLOCK: HostId = HostId(0);

/// The tag of the additional field of a node with its name.
const NAME: u16 = 1;

/// The smallest item of a list, in bytes: its length, and a node or a change without fields.
const ITEM_BYTES: usize = 10;

/// The place of the content of a graph command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content<'a> {
    /// The bytes are in the command.
    Inline(&'a [u8]),
    /// The bytes travel on the bulk lane.
    Bulk {
        /// The id of the upload.
        transfer: TransferId,
        /// Their number, not 0.
        bytes: u64,
    },
}

impl Content<'static> {
    /// The content of a launch without changes.
    pub const NO_CHANGES: Self = Content::Inline(&[0; 4]);
}

/// Blocks of host memory that uploads read, and their bytes.
pub type Blocks<'a> = [(HostId, &'a [u8])];

/// Appends the content of a new graph. `address` is the device of the graph, for errors.
///
/// # Errors
/// [`Error::Unsupported`] for work that no graph of a lease has, or [`Error::OutOfRange`] for an upload from bytes that
/// are not in `blocks`.
pub fn encode_graph(
    graph: &Graph,
    blocks: &Blocks<'_>,
    address: &str,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    put_list(&mut Writer::new(out), &graph.nodes, &|w, node| put_node(w, node, blocks, address))
}

/// Appends the content of a launch.
///
/// # Errors
/// The errors of [`encode_graph`].
pub fn encode_changes(
    changes: &[NodeChange<'_>],
    blocks: &Blocks<'_>,
    address: &str,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    put_list(&mut Writer::new(out), changes, &|w, change| {
        w.put(change.node);
        put_work(w, &change.work, blocks, address)
    })
}

/// Reads the content of a new graph. The graph has no blocks, and the `uses` of its loops are empty.
///
/// # Errors
/// The error of a field, [`WireError::TooMany`] beyond [`GRAPH_NODES`], [`WireError::TooDeep`] beyond [`LOOP_DEPTH`],
/// or [`WireError::NodeOrder`] for a node that comes after itself or a later one.
pub fn decode_graph(content: &[u8]) -> Result<Graph, WireError> {
    let mut r = Reader::new(content);
    let graph = Decoder { content, count: 0 }.graph(&mut r, 0)?;
    r.finish()?;
    Ok(graph)
}

/// Reads the content of a launch.
///
/// # Errors
/// The error of a field, or [`WireError::TooMany`] beyond [`GRAPH_NODES`].
pub fn decode_changes(content: &[u8]) -> Result<Vec<NodeChange<'_>>, WireError> {
    let mut decoder = Decoder { content, count: 0 };
    let mut r = Reader::new(content);
    decoder.check_count(&r)?;
    let changes = r.get_list(ITEM_BYTES, |r| {
        let mut r = Reader::new(r.get_bytes()?);
        let (node, code) = (r.get()?, r.get()?);
        let change = NodeChange { node, work: decoder.work(code, &mut r)? };
        r.finish()?;
        Ok(change)
    })?;
    r.finish()?;
    Ok(changes)
}

/// Writes a list whose items have their lengths in front.
fn put_list<T>(
    w: &mut Writer<'_>,
    items: &[T],
    put: &dyn Fn(&mut Writer<'_>, &T) -> Result<(), Error>,
) -> Result<(), Error> {
    w.put(super::codec::length(items.len()));
    items.iter().try_for_each(|item| {
        let mut done = Ok(());
        w.put_sized(|w| done = put(w, item));
        done
    })
}

fn put_node(
    w: &mut Writer<'_>,
    node: &GraphNode,
    blocks: &Blocks<'_>,
    address: &str,
) -> Result<(), Error> {
    match &node.work {
        Work::Repeat(Repeat { condition, body, .. }) => {
            w.put(opcode::REPEAT).put_ref(condition);
            put_list(w, &body.nodes, &|w, node| put_node(w, node, blocks, address))?;
        }
        work => put_work(w, work, blocks, address)?,
    }
    w.put_ref(&node.after);
    if let Some(name) = &node.name {
        w.put(NAME).put_sized(|w| _ = w.put_raw_text(name));
    }
    Ok(())
}

fn put_work(
    w: &mut Writer<'_>,
    work: &Work<'_>,
    blocks: &Blocks<'_>,
    address: &str,
) -> Result<(), Error> {
    match work {
        Work::Upload { from, to, bytes } => {
            let found = host_bytes(*from, *bytes, blocks).ok_or_else(|| {
                let block = blocks.iter().find(|(id, _)| *id == from.block);
                block.map_or_else(
                    || from.missing(),
                    |(_, block)| from.outside(*bytes, block.len() as u64),
                )
            })?;
            w.put(opcode::MEM_WRITE).put_ref(to).put_bytes(found);
        }
        work => {
            let unsupported = || Error::unsupported(Feature::WorkInGraph, address);
            w.put(work.tag().ok_or_else(unsupported)?);
            work.put_fields(w);
        }
    }
    Ok(())
}

/// The bytes that an upload reads.
fn host_bytes<'a>(from: HostRegion, bytes: u64, blocks: &Blocks<'a>) -> Option<&'a [u8]> {
    let (_, block) = blocks.iter().find(|(id, _)| *id == from.block)?;
    let end = from.offset.checked_add(bytes)?;
    block.get(usize::try_from(from.offset).ok()?..usize::try_from(end).ok()?)
}

/// Reads nodes and changes of a content.
struct Decoder<'a> {
    content: &'a [u8],
    /// The nodes so far.
    count: usize,
}

impl<'a> Decoder<'a> {
    fn graph(&mut self, r: &mut Reader<'a>, depth: u32) -> Result<Graph, WireError> {
        if depth > LOOP_DEPTH {
            return Err(WireError::TooDeep { what: "a loop", limit: LOOP_DEPTH });
        }
        self.check_count(r)?;
        let mut index = 0;
        let nodes = r.get_list(ITEM_BYTES, |r| {
            let node = self.node(Reader::new(r.get_bytes()?), index, depth)?;
            index += 1;
            Ok(node)
        })?;
        Ok(Graph { nodes, host: Vec::new() })
    }

    fn node(&mut self, mut r: Reader<'a>, index: u32, depth: u32) -> Result<GraphNode, WireError> {
        let work = match r.get()? {
            opcode::REPEAT => {
                let condition = r.get()?;
                let body = Arc::new(self.graph(&mut r, depth + 1)?);
                Work::Repeat(Repeat { condition, body, uses: [].into() })
            }
            code => self.work(code, &mut r)?.into_owned(),
        };
        let after: Vec<u32> = r.get()?;
        let mut smallest = 0;
        for &earlier in &after {
            if earlier < smallest || earlier >= index {
                return Err(WireError::NodeOrder { node: index, after: earlier });
            }
            smallest = earlier + 1;
        }
        let mut name = None;
        r.finish_with(|tag, field| {
            if tag == NAME {
                name = Some(field.rest_text()?.into());
            }
            Ok(tag == NAME)
        })?;
        Ok(GraphNode { work, after, name })
    }

    /// Reads work that a graph can have.
    fn work(&self, code: u16, r: &mut Reader<'a>) -> Result<Work<'a>, WireError> {
        if code != opcode::MEM_WRITE {
            return Work::get_fields(code, r)?.ok_or(WireError::UnexpectedOpcode { opcode: code });
        }
        let (to, bytes): (Region, &[u8]) = (r.get()?, r.get_bytes()?);
        let offset = (bytes.as_ptr().addr() - self.content.as_ptr().addr()) as u64;
        let from = HostRegion { block: CONTENT_BLOCK, offset };
        Ok(Work::Upload { from, to, bytes: bytes.len() as u64 })
    }

    /// Counts the items of the list that comes next, before anything is allocated for it.
    fn check_count(&mut self, r: &Reader<'_>) -> Result<(), WireError> {
        self.count = self.count.saturating_add(r.clone().get::<u32>()? as usize);
        if self.count > GRAPH_NODES {
            let (count, limit) = (self.count as u64, GRAPH_NODES as u64);
            return Err(WireError::TooMany { what: "nodes of a graph", count, limit });
        }
        Ok(())
    }
}

impl<'a> Field<'a> for Content<'a> {
    fn put(&self, w: &mut Writer<'_>) {
        match self {
            Content::Inline(bytes) => w.put(0u8).put_bytes(bytes),
            Content::Bulk { transfer, bytes } => w.put(1u8).put(*transfer).put(*bytes),
        };
    }

    fn get(r: &mut Reader<'a>) -> Result<Self, WireError> {
        match r.get::<u8>()? {
            0 => r.get_bytes().map(Content::Inline),
            1 => {
                let (transfer, bytes) = (r.get()?, r.get()?);
                if bytes == 0 {
                    return Err(WireError::Undefined { what: "the length of content", value: 0 });
                }
                if bytes > CONTENT_LIMIT {
                    let (what, length) = ("the content of a graph command", bytes);
                    return Err(WireError::TooLong { what, length, limit: CONTENT_LIMIT });
                }
                Ok(Content::Bulk { transfer, bytes })
            }
            other => Err(WireError::Undefined { what: "a form of content", value: other.into() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use cuda_core::protocol::AllocId;

    use super::*;

    fn node(work: Work<'static>, after: &[u32]) -> GraphNode {
        GraphNode { work, after: after.to_vec(), name: None }
    }

    fn join(after: &[u32]) -> GraphNode {
        node(Work::Join, after)
    }

    fn repeat(nodes: Vec<GraphNode>, offset: u64) -> GraphNode {
        let condition = Region { alloc: AllocId(1), offset };
        let body = Arc::new(Graph { nodes, host: Vec::new() });
        node(Work::Repeat(Repeat { condition, body, uses: [].into() }), &[])
    }

    fn encoded(nodes: Vec<GraphNode>, blocks: &Blocks<'_>) -> Vec<u8> {
        let mut content = Vec::new();
        encode_graph(&Graph { nodes, host: Vec::new() }, blocks, "lease", &mut content).unwrap();
        content
    }

    fn decoded(nodes: Vec<GraphNode>) -> Result<usize, WireError> {
        let decoded = decode_graph(&encoded(nodes.clone(), &[]))?;
        assert_eq!(decoded.nodes, nodes);
        Ok(decoded.nodes.len())
    }

    #[test]
    fn node_comes_after_smaller_indices_in_ascending_order() {
        assert_eq!(decoded(vec![join(&[]), join(&[0]), join(&[0, 1])]), Ok(3));
        for (after, wrong) in [(&[2][..], 2), (&[3], 3), (&[1, 0], 0), (&[1, 1], 1)] {
            let nodes = vec![join(&[]), join(&[]), join(after)];
            assert_eq!(decoded(nodes), Err(WireError::NodeOrder { node: 2, after: wrong }));
        }
    }

    #[test]
    fn nodes_are_limited_over_all_loops() {
        let body: Vec<_> = (0..GRAPH_NODES - 2).map(|_| join(&[])).collect();
        let named = GraphNode { name: Some("loop".into()), ..repeat(body, 4) };
        assert_eq!(decoded(vec![named.clone(), join(&[0])]), Ok(2));
        let refused = decoded(vec![named, join(&[]), join(&[])]);
        assert!(matches!(refused, Err(WireError::TooMany { .. })), "{refused:?}");
    }

    #[test]
    fn loops_are_nested_up_to_the_limit() {
        let nested = |times| (0..times).fold(join(&[]), |node, _| repeat(vec![node], 0));
        assert_eq!(decoded(vec![nested(LOOP_DEPTH)]), Ok(1));
        let refused = decoded(vec![nested(LOOP_DEPTH + 1)]);
        assert_eq!(refused, Err(WireError::TooDeep { what: "a loop", limit: LOOP_DEPTH }));
    }

    #[test]
    fn uploads_name_their_bytes_in_the_content() {
        let to = Region { alloc: AllocId(1), offset: 0 };
        let source = HostRegion { block: HostId(9), offset: 2 };
        let upload = || node(Work::Upload { from: source, to, bytes: 3 }, &[]);
        let blocks: [(_, &[u8]); 1] = [(HostId(9), b"\0\0abc")];
        let content = encoded(vec![repeat(vec![upload()], 0)], &blocks);
        let graph = decode_graph(&content).unwrap();
        let Work::Repeat(Repeat { body, .. }) = &graph.nodes[0].work else { panic!("no loop") };
        let Work::Upload { from, bytes: 3, .. } = body.nodes[0].work else { panic!("no upload") };
        assert_eq!(host_bytes(from, 3, &[(CONTENT_BLOCK, &content)]), Some(&b"abc"[..]));
        for (id, bytes, expected) in [
            (HostId(8), &b"\0\0abc"[..], source.missing()),
            (HostId(9), b"\0\0ab", source.outside(3, 4)),
        ] {
            let graph = Graph { nodes: vec![upload()], host: Vec::new() };
            let refused = encode_graph(&graph, &[(id, bytes)], "lease", &mut Vec::new());
            assert_eq!(refused, Err(expected));
        }
    }

    #[test]
    fn other_work_and_counts_beyond_the_content_are_refused() {
        let from = Region { alloc: AllocId(1), offset: 0 };
        let to = HostRegion { block: HostId(9), offset: 0 };
        let change = [NodeChange { node: 0, work: Work::Download { from, to, bytes: 4 } }];
        let refused = encode_changes(&change, &[], "lease", &mut Vec::new());
        assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
        let mut content = Vec::new();
        Writer::new(&mut content).put(1u32).put_sized(|w| {
            w.put(0u32).put(opcode::MEM_READ).put(from).put(1u64).put(4u64);
        });
        let refused = decode_changes(&content);
        assert_eq!(refused, Err(WireError::UnexpectedOpcode { opcode: opcode::MEM_READ }));
        for count in [2u32, GRAPH_NODES as u32, u32::MAX] {
            assert!(decode_graph(&count.to_le_bytes()).is_err(), "{count}");
            assert!(decode_changes(&count.to_le_bytes()).is_err(), "{count}");
        }
    }

    #[test]
    fn launch_without_changes_has_no_changes() {
        let Content::Inline(bytes) = Content::NO_CHANGES else { panic!("it is inline") };
        assert_eq!(decode_changes(bytes), Ok(Vec::new()));
    }
}
