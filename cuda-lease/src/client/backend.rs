//! The backend of a leased device: turns submissions, controls and requests into commands.

use std::{any::Any, sync::Arc};

use cuda_core::{
    Backend, DeviceInfo, Error, Result, Ticket,
    protocol::{
        Answer, Capabilities, Control, Feature, Foreign, GraphLaunch, HostBlock, HostRegion,
        ModuleImage, Reply, Request, StreamId, Submission, Work,
    },
};

use super::{
    connection::LeaseConnection,
    link::{
        Link,
        graph::{changes_content, nodes_content},
    },
};
use crate::wire::{Command, Content, ImageKind, Step, Variants};

/// A device that is leased from a node.
pub(super) struct LeaseBackend {
    pub(super) info: DeviceInfo,
    pub(super) capabilities: Capabilities,
    pub(super) link: Arc<Link>,
    /// Ends the lease when it is dropped.
    pub(super) _connection: Arc<LeaseConnection>,
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
                Step::Graph { graph: *graph, changes: self.link.content(&mut content) }
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
                Command::CreateGraph { id, nodes: self.link.content(&mut content) }
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

/// Returns the error that lost the lease, for an operation that did not run.
fn not_submitted(lost: Error) -> Error {
    match lost {
        Error::Disconnected { address, cause, .. } => {
            Error::Disconnected { address, cause, may_have_run: false }
        }
        error => error,
    }
}
