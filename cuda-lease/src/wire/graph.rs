//! The content of graphs: the nodes of a new graph, and the changes of a launch.
//!
//! Content travels in its command, or on the bulk lane if it is long ([`Content`]). Its bytes are a list of [`Node`]s
//! or of [`Change`]s. Each item has its length in front, so later versions can add fields to it.

use std::borrow::Cow;

use cuda_core::protocol::Region;

use super::{Field, Reader, Step, TransferId, WireError, Writer, opcode};

/// The maximum number of nodes of a graph, with those in the bodies of its loops.
pub const GRAPH_NODES: usize = 1 << 16;

/// The maximum number of loops inside each other.
pub const LOOP_DEPTH: u32 = 8;

/// The maximum number of bytes of the content of one command.
pub const CONTENT_LIMIT: u64 = 64 << 20;

/// The tag of the additional field of a [`Node`] with its name.
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

/// A node of a graph.
#[derive(Debug, Clone, PartialEq)]
pub struct Node<'a> {
    /// The work.
    pub work: NodeWork<'a>,
    /// The nodes that come directly before this one, in ascending order. Their indices are smaller than this one's.
    pub after: Vec<u32>,
    /// The name, for people.
    pub name: Option<Cow<'a, str>>,
}

/// The work of a node.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeWork<'a> {
    /// A join, a write with its bytes, a copy, a fill, a timestamp or a launch.
    Step(Step<'a>),
    /// Nodes that are repeated while a word of device memory is not 0.
    Repeat {
        /// The word, a `u32`.
        condition: Region,
        /// The nodes of one pass.
        body: Vec<Node<'a>>,
    },
}

/// The new work of a node, for a launch and for later ones.
#[derive(Debug, Clone, PartialEq)]
pub struct Change<'a> {
    /// The index of the node.
    pub node: u32,
    /// The work, of the same kind as before. No loop.
    pub step: Step<'a>,
}

/// Appends the content of a new graph.
pub fn encode_nodes(nodes: &[Node<'_>], out: &mut Vec<u8>) {
    put_nodes(&mut Writer::new(out), nodes);
}

/// Reads the content of a new graph.
///
/// # Errors
/// The error of a field, [`WireError::TooMany`] beyond [`GRAPH_NODES`], [`WireError::TooDeep`] beyond [`LOOP_DEPTH`],
/// or [`WireError::NodeOrder`] for a node that comes after itself or a later one.
pub fn decode_nodes(content: &[u8]) -> Result<Vec<Node<'_>>, WireError> {
    let mut r = Reader::new(content);
    let nodes = get_nodes(&mut r, &mut 0, 0)?;
    r.finish()?;
    Ok(nodes)
}

/// Appends the content of a launch.
pub fn encode_changes(changes: &[Change<'_>], out: &mut Vec<u8>) {
    Writer::new(out).put_list(changes, |w, change| {
        w.put_sized(|w| {
            w.put(change.node).put(change.step.opcode());
            change.step.encode(w);
        });
    });
}

/// Reads the content of a launch.
///
/// # Errors
/// The error of a field, or [`WireError::TooMany`] beyond [`GRAPH_NODES`].
pub fn decode_changes(content: &[u8]) -> Result<Vec<Change<'_>>, WireError> {
    let mut r = Reader::new(content);
    check_count(&r, &mut 0)?;
    let changes = r.get_list(ITEM_BYTES, |r| {
        let r = &mut Reader::new(r.get_bytes()?);
        let (node, code) = (r.get()?, r.get()?);
        let change = Change { node, step: get_step(code, r)? };
        r.clone().finish()?;
        Ok(change)
    })?;
    r.finish()?;
    Ok(changes)
}

fn put_nodes(w: &mut Writer<'_>, nodes: &[Node<'_>]) {
    w.put_list(nodes, |w, node| _ = w.put_sized(|w| put_node(w, node)));
}

fn put_node(w: &mut Writer<'_>, node: &Node<'_>) {
    match &node.work {
        NodeWork::Step(step) => {
            w.put(step.opcode());
            step.encode(w);
        }
        NodeWork::Repeat { condition, body } => {
            w.put(opcode::REPEAT).put(*condition);
            put_nodes(w, body);
        }
    }
    w.put_list(&node.after, |w, it| _ = w.put(*it));
    if let Some(name) = &node.name {
        w.put(NAME).put_sized(|w| _ = w.put_raw_text(name));
    }
}

fn get_nodes<'a>(
    r: &mut Reader<'a>,
    count: &mut usize,
    depth: u32,
) -> Result<Vec<Node<'a>>, WireError> {
    if depth > LOOP_DEPTH {
        return Err(WireError::TooDeep { what: "a loop", limit: LOOP_DEPTH });
    }
    check_count(r, count)?;
    let mut index = 0;
    r.get_list(ITEM_BYTES, |r| {
        let mut r = Reader::new(r.get_bytes()?);
        let node = get_node(&mut r, index, count, depth)?;
        index += 1;
        Ok(node)
    })
}

fn get_node<'a>(
    r: &mut Reader<'a>,
    index: u32,
    count: &mut usize,
    depth: u32,
) -> Result<Node<'a>, WireError> {
    let work = match r.get()? {
        opcode::REPEAT => {
            let condition = r.get()?;
            NodeWork::Repeat { condition, body: get_nodes(r, count, depth + 1)? }
        }
        code => NodeWork::Step(get_step(code, r)?),
    };
    let after = r.get_list(4, u32::get)?;
    let mut smallest = 0;
    for &it in &after {
        if it < smallest || it >= index {
            return Err(WireError::NodeOrder { node: index, after: it });
        }
        smallest = it + 1;
    }
    let mut name = None;
    r.clone().finish_with(|tag, field| {
        if tag == NAME {
            name = Some(Cow::Borrowed(field.rest_text()?));
        }
        Ok(tag == NAME)
    })?;
    Ok(Node { work, after, name })
}

/// A step that a graph can have: one whose bytes are here.
fn get_step<'a>(code: u16, r: &mut Reader<'a>) -> Result<Step<'a>, WireError> {
    match code {
        opcode::JOIN
        | opcode::MEM_WRITE
        | opcode::MEM_COPY
        | opcode::MEM_FILL
        | opcode::TIMESTAMP
        | opcode::LAUNCH
        | opcode::LAUNCH_WITH => Step::decode(code, r),
        opcode => Err(WireError::UnexpectedOpcode { opcode }),
    }
}

/// Adds the count of the list that comes next to `count`, before anything is allocated for it.
fn check_count(r: &Reader<'_>, count: &mut usize) -> Result<(), WireError> {
    *count = count.saturating_add(r.clone().get::<u32>()? as usize);
    if *count > GRAPH_NODES {
        let (count, limit) = (*count as u64, GRAPH_NODES as u64);
        return Err(WireError::TooMany { what: "nodes of a graph", count, limit });
    }
    Ok(())
}

impl<'a> Content<'a> {
    pub(super) fn put(&self, w: &mut Writer<'_>) {
        match self {
            Content::Inline(bytes) => w.put(0u8).put_bytes(bytes),
            Content::Bulk { transfer, bytes } => w.put(1u8).put(*transfer).put(*bytes),
        };
    }

    pub(super) fn get(r: &mut Reader<'a>) -> Result<Self, WireError> {
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
    use super::*;

    fn join(after: &[u32]) -> Node<'static> {
        Node { work: NodeWork::Step(Step::Join), after: after.to_vec(), name: None }
    }

    fn decoded(nodes: &[Node<'_>]) -> Result<usize, WireError> {
        let mut content = Vec::new();
        encode_nodes(nodes, &mut content);
        let decoded = decode_nodes(&content)?;
        assert_eq!(decoded, nodes);
        Ok(decoded.len())
    }

    #[test]
    fn node_comes_after_smaller_indices_in_ascending_order() {
        assert_eq!(decoded(&[join(&[]), join(&[0]), join(&[0, 1])]), Ok(3));
        for (after, wrong) in [(&[2][..], 2), (&[3], 3), (&[1, 0], 0), (&[1, 1], 1)] {
            let nodes = [join(&[]), join(&[]), join(after)];
            assert_eq!(decoded(&nodes), Err(WireError::NodeOrder { node: 2, after: wrong }));
        }
    }

    #[test]
    fn nodes_are_limited_over_all_loops() {
        let body: Vec<_> = (0..GRAPH_NODES - 2).map(|_| join(&[])).collect();
        let condition = Region { alloc: cuda_core::protocol::AllocId(1), offset: 4 };
        let repeat = |body: &[Node<'static>]| {
            let work = NodeWork::Repeat { condition, body: body.to_vec() };
            Node { work, after: Vec::new(), name: Some("loop".into()) }
        };
        assert_eq!(decoded(&[repeat(&body), join(&[0])]), Ok(2));
        let refused = decoded(&[repeat(&body), join(&[]), join(&[])]);
        assert!(matches!(refused, Err(WireError::TooMany { .. })), "{refused:?}");
    }

    #[test]
    fn loops_are_nested_up_to_the_limit() {
        let condition = Region { alloc: cuda_core::protocol::AllocId(1), offset: 0 };
        let nested = |times| {
            (0..times).fold(join(&[]), |node, _| {
                let work = NodeWork::Repeat { condition, body: vec![node] };
                Node { work, after: Vec::new(), name: None }
            })
        };
        assert_eq!(decoded(&[nested(LOOP_DEPTH)]), Ok(1));
        let refused = decoded(&[nested(LOOP_DEPTH + 1)]);
        assert_eq!(refused, Err(WireError::TooDeep { what: "a loop", limit: LOOP_DEPTH }));
    }

    #[test]
    fn work_with_bytes_elsewhere_and_counts_beyond_the_content_are_refused() {
        let region = Region { alloc: cuda_core::protocol::AllocId(1), offset: 0 };
        let read = Step::Read { from: region, transfer: TransferId(1), bytes: 4 };
        let mut content = Vec::new();
        encode_changes(&[Change { node: 0, step: read }], &mut content);
        let refused = decode_changes(&content);
        assert_eq!(refused, Err(WireError::UnexpectedOpcode { opcode: opcode::MEM_READ }));
        for count in [2u32, GRAPH_NODES as u32, u32::MAX] {
            assert!(decode_nodes(&count.to_le_bytes()).is_err(), "{count}");
            assert!(decode_changes(&count.to_le_bytes()).is_err(), "{count}");
        }
    }

    #[test]
    fn launch_without_changes_has_no_changes() {
        let Content::Inline(bytes) = Content::NO_CHANGES else { panic!("it is inline") };
        assert_eq!(decode_changes(bytes), Ok(Vec::new()));
    }
}
