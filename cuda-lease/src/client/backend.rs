//! A leased device: the provider that opens it, and the backend that turns submissions, controls and requests into
//! commands. Graphs are the content of commands.

use std::{any::Any, convert::Infallible, future::pending, sync::Arc};

use cuda_core::{
    Backend, DeviceInfo, Error, NoticeSink, Provider, Result, Ticket,
    protocol::{
        Answer, Capabilities, Control, Feature, Foreign, Graph, GraphLaunch, HostBlock, HostId,
        HostRegion, Limit, ModuleImage, NodeChange, Quantity, Repeat, Reply, Request, StreamId,
        Submission, Work,
    },
};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::{
    connection::{self, LeaseConnection, LeaseTerms, Opened},
    end::not_submitted,
    link::Link,
};
use crate::wire::{
    CONTENT_LIMIT, Command, Content, GRAPH_NODES, ImageKind, LOOP_DEPTH, Step, Variants,
    encode_changes, encode_graph, features,
};

/// The maximum number of submissions in flight on a stream, as the worker of a node holds them. A node may allow less, and
/// less host memory for copies than a local device. One that breaks the rules would allow any amount.
const SUBMISSIONS: u64 = 1 << 16;

/// The provider of one lease.
pub(super) struct LeaseProvider {
    terms: LeaseTerms,
    opened: Mutex<Option<(Arc<LeaseConnection>, Arc<Link>)>>,
    withdrawn: Mutex<Option<Withdrawn>>,
}

/// Ends when the sender is dropped: then a request for a lease is withdrawn.
pub(super) type Withdrawn = oneshot::Receiver<Infallible>;

impl LeaseProvider {
    pub(super) fn new(terms: LeaseTerms) -> Self {
        Self { terms, opened: Mutex::default(), withdrawn: Mutex::default() }
    }

    /// As [`new`](Self::new), with a request that can be withdrawn.
    pub(super) fn withdrawn_by(terms: LeaseTerms, withdrawn: Withdrawn) -> Self {
        Self { withdrawn: Mutex::new(Some(withdrawn)), ..Self::new(terms) }
    }

    /// The connection that [`open`](Provider::open) made.
    pub(super) fn take(&self) -> Option<(Arc<LeaseConnection>, Arc<Link>)> {
        self.opened.lock().take()
    }
}

// SAFETY: `LeaseBackend` keeps the rules of a backend, and `notices` goes to its link alone.
unsafe impl Provider for LeaseProvider {
    fn scheme(&self) -> &'static str {
        "lease"
    }

    /// Returns an empty list. Use [`NodeClient::inventory`](super::NodeClient::inventory) to list the devices of a
    /// node.
    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        Ok(Vec::new())
    }

    fn open(&self, _: u32, notices: Arc<dyn NoticeSink>) -> Result<Arc<dyn Backend>> {
        let withdrawn = self.withdrawn.lock().take();
        let withdrawn = async {
            match withdrawn {
                Some(withdrawn) => _ = withdrawn.await,
                None => pending().await,
            }
        };
        let opened = connection::open(self.terms.clone(), notices, withdrawn)?;
        let Opened { granted, features, link, connection } = opened;
        let mut info = granted.device;
        info.address = format!("lease://{}/{}", self.terms.address, info.address);
        info.memory = granted.limits.memory;
        let mut capabilities = Capabilities::local(granted.limits.memory);
        capabilities.submissions_in_flight = granted.limits.submissions_in_flight.min(SUBMISSIONS);
        capabilities.host_bytes_in_flight =
            granted.limits.host_bytes_in_flight.min(capabilities.host_bytes_in_flight);
        capabilities.ordered_visibility = false;
        capabilities.graphs = features & features::GRAPHS != 0;
        capabilities.loops = features & features::LOOPS != 0;
        capabilities.launch_attributes = features & features::ATTRIBUTES != 0;
        capabilities.cancels = features & features::CANCEL != 0;
        let has_pools = features & features::POOLS != 0;
        capabilities.pools = if has_pools { features::MAX_POOLS } else { 0 };
        capabilities.streams = granted.limits.streams;
        capabilities.only_thread = Some(connection.connection.channel.thread());
        *self.opened.lock() = Some((connection.clone(), link.clone()));
        Ok(Arc::new(LeaseBackend { info, capabilities, link, _connection: connection }))
    }
}

/// A device that is leased from a node.
pub(super) struct LeaseBackend {
    pub(super) info: DeviceInfo,
    capabilities: Capabilities,
    pub(super) link: Arc<Link>,
    /// Ends the lease when it is dropped.
    _connection: Arc<LeaseConnection>,
}

impl LeaseBackend {
    /// # Errors
    /// The lease is lost: the operation does not run.
    #[inline]
    fn check(&self) -> Result<()> {
        self.link.lost().map_or(Ok(()), |error| Err(not_submitted(error)))
    }

    /// # Errors
    /// [`Error::Unsupported`] if the node does not know memory pools, and so no commands about them.
    fn check_pools(&self) -> Result<()> {
        if self.capabilities.pools > 0 {
            return Ok(());
        }
        Err(Error::unsupported(Feature::MemoryPool, &self.info.address))
    }
}

/// The block that a copy names.
fn block(host: &[Arc<HostBlock>], region: HostRegion) -> Result<&Arc<HostBlock>> {
    host.first().ok_or_else(|| region.missing())
}

/// The block that a copy names, and the range of its bytes.
fn place(
    host: &[Arc<HostBlock>],
    region: HostRegion,
    bytes: u64,
) -> Result<(Arc<HostBlock>, usize, usize)> {
    let block = block(host, region)?.clone();
    let (start, count) = (region.offset as usize, bytes as usize);
    if start.checked_add(count).is_none_or(|end| end > block.len()) {
        return Err(region.outside(bytes, block.len() as u64));
    }
    Ok((block, start, count))
}

// SAFETY: the lane keeps the order of commands, and the node carries them out on a backend that keeps the rules.
// Progress is passed on behind the failures and the bytes that it covers (`link`). `accepted` is the number that is
// complete. Host blocks have the requested length.
unsafe impl Backend for LeaseBackend {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    unsafe fn submit(&self, submission: &Submission<'_>, host: &[Arc<HostBlock>]) -> Result<()> {
        self.check()?;
        let Submission { ticket, after, work } = *submission;
        let mut content;
        let step = match work {
            Work::Upload { from, to, bytes } if self.link.upload_inline(ticket, *bytes) => {
                // SAFETY: the bytes do not change until the upload is accepted.
                let all = unsafe { block(host, *from)?.shared_bytes() };
                let start = from.offset as usize;
                let found = all.get(start..start.saturating_add(*bytes as usize));
                let bytes = found.ok_or_else(|| from.outside(*bytes, all.len() as u64))?;
                Step::Write { to: *to, bytes }
            }
            Work::Upload { from, to, bytes } => {
                let (block, start, count) = place(host, *from, *bytes)?;
                let transfer = self.link.next_transfer();
                self.link.upload(ticket, transfer, block, start, count).map_err(not_submitted)?;
                Step::WriteBulk { to: *to, transfer, bytes: *bytes }
            }
            Work::Download { from, to, bytes } => {
                let (block, start, count) = place(host, *to, *bytes)?;
                let transfer = self.link.next_transfer();
                self.link.download(ticket, transfer, block, start, count).map_err(not_submitted)?;
                Step::Read { from: *from, transfer, bytes: *bytes }
            }
            Work::Graph(GraphLaunch { graph, changes, .. }) if changes.is_empty() => {
                Step::Graph { graph: *graph, changes: Content::NO_CHANGES }
            }
            Work::Graph(GraphLaunch { graph, changes, .. }) => {
                content = changes_content(changes, host, &self.info.address)?;
                let changes = self.link.content(Some(ticket), &mut content);
                Step::Graph { graph: *graph, changes: changes.map_err(not_submitted)? }
            }
            work => Step::Work(work.borrowed()),
        };
        self.link.send(&Command::Submit { ticket, after: after.to_vec(), step })
    }

    unsafe fn control(&self, control: Control) -> Result<()> {
        self.check()?;
        match &control {
            Control::CreateStream { id, .. } => self.link.add_stream(*id),
            Control::RetireStream { id } => self.link.retire(*id),
            Control::UnloadModule { id } => self.link.drop_image(*id),
            Control::ChangePool { change, .. } => {
                self.check_pools()?;
                if change.tag().is_none() {
                    return Err(Error::unsupported(Feature::PoolChange, &self.info.address));
                }
            }
            _ => {}
        }
        let mut content;
        let command = match control {
            Control::LoadModule { id, image } => {
                let (kind, image) = match image {
                    ModuleImage::Ptx(text) => (ImageKind::Ptx, text.into_bytes()),
                    ModuleImage::Cubin(image) => (ImageKind::Cubin, image),
                    _ => return Err(Error::unsupported(Feature::ModuleImage, &self.info.address)),
                };
                let (hash, bytes) = (*blake3::hash(&image).as_bytes(), image.len() as u64);
                self.link.keep_image(id, hash, image.into());
                Command::LoadModule { id, kind, hash, bytes }
            }
            Control::CreateGraph { id, graph } => {
                content = nodes_content(&graph, &self.info.address)?;
                Command::CreateGraph { id, nodes: self.link.content(None, &mut content)? }
            }
            control => Command::Control(control),
        };
        self.link.send(&command)
    }

    fn request(&self, request: Request, answer: Answer) {
        let supported = match request {
            // Memory of another device is not reachable: copies go through the host.
            Request::Reach { .. } => return answer.give(Ok(Reply::Reached(false))),
            Request::Occupancy { .. } => self.capabilities.launch_attributes,
            Request::PoolMemory { .. } | Request::TrimPool { .. } => {
                if let Err(error) = self.check_pools() {
                    return answer.give(Err(error));
                }
                true
            }
            ref request => request.tag().is_some(),
        };
        if supported {
            self.link.request(request, answer);
        } else {
            answer.give(Err(Error::unsupported(Feature::Request, &self.info.address)));
        }
    }

    unsafe fn peek(&self, stream: StreamId) -> Result<u64> {
        self.link.peek(stream)
    }

    unsafe fn block_until(&self, ticket: Ticket) -> Result<()> {
        if self.link.peek(ticket.stream)? >= ticket.number {
            return Ok(());
        }
        self.link.send(&Control::Want { ticket }.into())?;
        self.link.wait(ticket)
    }

    fn foreign(&self) -> Option<&dyn Foreign> {
        None
    }

    /// The link holds the blocks of copies in flight itself.
    fn close(&self, retained: Vec<(Ticket, Box<dyn Any + Send + Sync>)>) {
        drop(retained);
    }
}

/// The content of a new graph.
///
/// # Errors
/// An error for a graph that is larger than a lease allows, or that has work that no graph has.
fn nodes_content(graph: &Graph, address: &str) -> Result<Vec<u8>> {
    let (mut count, mut blocks, mut content) = Default::default();
    collect(graph, &mut count, 0, &mut blocks)?;
    encode_graph(graph, &bytes_of(&blocks), address, &mut content)?;
    check_length(content)
}

/// The content of a launch. The blocks of its uploads are passed beside it.
///
/// # Errors
/// The errors of [`nodes_content`].
fn changes_content(
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
