//! The backend of a leased device: turns submissions, controls and requests into commands.

use std::{any::Any, sync::Arc};

use cuda_core::{
    Backend, DeviceInfo, Error, Result, Ticket,
    protocol::{
        Answer, Capabilities, Control, Foreign, GraphLaunch, HostBlock, ModuleImage, PoolChange,
        Reply, Request, StreamId, Submission, Work,
    },
};

use super::{
    connection::Connection,
    link::{
        Link,
        graph::{changes_content, nodes_content},
    },
};
use crate::wire::{Command, Content, ImageKind, Query, Step};

/// A device that is leased from a node.
pub(super) struct LeaseBackend {
    pub(super) info: DeviceInfo,
    pub(super) capabilities: Capabilities,
    pub(super) link: Arc<Link>,
    /// Ends the lease when it is dropped.
    pub(super) _connection: Arc<Connection>,
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
        Err(Error::unsupported("memory pools", &self.info.address))
    }
}

/// The block that a copy names.
fn block(host: &[Arc<HostBlock>]) -> Result<&Arc<HostBlock>> {
    host.first().ok_or_else(|| Error::OutOfRange {
        what: "a copy between host and device".into(),
        detail: "it names no block of host memory".into(),
    })
}

// SAFETY: the lane keeps the order of commands, and the node carries them out on a backend that keeps the rules. Progress
// is passed on behind the failures and the bytes that it covers (`link`). `accepted` is the number that is complete. Host
// blocks have the requested length.
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
        let send = |step: Step<'_>| {
            self.link.send(&Command::Submit { ticket, after: after.to_vec(), step });
        };
        match work {
            Work::Launch(launch) => send(Step::Launch(launch.borrowed())),
            Work::Join => send(Step::Join),
            Work::Copy { from, to, bytes } => {
                send(Step::Copy { from: *from, to: *to, bytes: *bytes });
            }
            Work::Fill { to, pattern, count } => {
                send(Step::Fill { to: *to, pattern: *pattern, count: *count });
            }
            Work::Timestamp { to } => send(Step::Timestamp { to: *to }),
            Work::Upload { from, to, bytes } if self.link.upload_inline(ticket, *bytes) => {
                // SAFETY: the bytes do not change until the upload is accepted.
                let all = unsafe { block(host)?.shared_bytes() };
                let start = from.offset as usize;
                let found = all.get(start..start.saturating_add(*bytes as usize));
                let bytes = found.ok_or_else(|| outside(all.len(), start, *bytes))?;
                send(Step::Write { to: *to, bytes });
            }
            Work::Upload { from, to, bytes } => {
                let (transfer, block) = (self.link.next_transfer(), block(host)?.clone());
                let (start, count) = (from.offset as usize, *bytes as usize);
                if start.checked_add(count).is_none_or(|end| end > block.len()) {
                    return Err(outside(block.len(), start, *bytes));
                }
                self.link.upload(ticket, transfer, block, start, count).map_err(not_submitted)?;
                send(Step::WriteBulk { to: *to, transfer, bytes: *bytes });
            }
            Work::Download { from, to, bytes } => {
                let (transfer, block) = (self.link.next_transfer(), block(host)?.clone());
                let (start, count) = (to.offset as usize, *bytes as usize);
                if start.checked_add(count).is_none_or(|end| end > block.len()) {
                    return Err(outside(block.len(), start, *bytes));
                }
                self.link.download(ticket, transfer, block, start, count).map_err(not_submitted)?;
                send(Step::Read { from: *from, transfer, bytes: *bytes });
            }
            Work::Graph(GraphLaunch { graph, changes, .. }) if changes.is_empty() => {
                send(Step::Graph { graph: *graph, changes: Content::NO_CHANGES });
            }
            Work::Graph(GraphLaunch { graph, changes, .. }) => {
                let mut content = changes_content(changes, host, &self.info.address)?;
                let changes = self.link.content(&mut content);
                send(Step::Graph { graph: *graph, changes });
            }
            _ => return Err(Error::unsupported("this kind of work", &self.info.address)),
        }
        Ok(())
    }

    unsafe fn control(&self, control: Control) -> Result<()> {
        self.check()?;
        let command = match control {
            Control::CreateStream { id, priority } => {
                self.link.add_stream(id);
                Command::CreateStream { id, priority }
            }
            Control::RetireStream { id } => {
                self.link.retire(id);
                Command::RetireStream { id }
            }
            Control::Allocate { id, bytes, at } => Command::Allocate { id, bytes, at },
            Control::AllocateIn { pool, id, bytes, at } => {
                Command::AllocateIn { pool, id, bytes, at }
            }
            Control::CreatePool { id, spec } => Command::CreatePool { id, spec },
            Control::ChangePool { id, change } => {
                self.check_pools()?;
                if !matches!(change, PoolChange::ReleaseThreshold(_) | PoolChange::ResetPeak) {
                    return Err(Error::unsupported("this change of a pool", &self.info.address));
                }
                Command::ChangePool { id, change }
            }
            Control::DropPool { id } => Command::DropPool { id },
            Control::Free { id, stream, after } => Command::Free { id, stream, after },
            Control::NameVariable { id, module, name, bytes } => {
                Command::NameVariable { id, module, name, bytes }
            }
            Control::LoadModule { id, image } => {
                let (kind, bytes) = match image {
                    ModuleImage::Ptx(text) => (ImageKind::Ptx, text.into_bytes()),
                    ModuleImage::Cubin(image) => (ImageKind::Cubin, image),
                    _ => return Err(Error::unsupported("this kind of module", &self.info.address)),
                };
                let (hash, length) = (*blake3::hash(&bytes).as_bytes(), bytes.len() as u64);
                self.link.keep_image(id, hash, bytes.into());
                Command::LoadModule { id, kind, hash, bytes: length }
            }
            Control::UnloadModule { id } => {
                self.link.drop_image(id);
                Command::UnloadModule { id }
            }
            Control::Want { ticket } => Command::Sync { ticket },
            Control::CreateGraph { id, graph } => {
                let mut content = nodes_content(&graph, &self.info.address)?;
                let nodes = self.link.content(&mut content);
                self.link.send(&Command::CreateGraph { id, nodes });
                return Ok(());
            }
            Control::DropGraph { id } => Command::DropGraph { id },
            _ => return Err(Error::unsupported("this control", &self.info.address)),
        };
        self.link.send(&command);
        Ok(())
    }

    fn request(&self, request: Request, answer: Answer) {
        let query = match request {
            Request::Loaded { module } => Query::Loaded(module),
            Request::GraphReady { graph } => Query::GraphReady(graph),
            Request::Memory => Query::Memory,
            Request::Occupancy { function, config } if self.capabilities.launch_attributes => {
                Query::Occupancy { function, config }
            }
            Request::PoolMemory { pool } => match self.check_pools() {
                Ok(()) => Query::PoolMemory(pool),
                Err(error) => return answer.give(Err(error)),
            },
            Request::TrimPool { pool, keep } => match self.check_pools() {
                Ok(()) => Query::TrimPool(pool, keep),
                Err(error) => return answer.give(Err(error)),
            },
            Request::Reset => Query::Reset,
            // Memory of another device is not reachable: copies go through the host.
            Request::Reach { .. } => return answer.give(Ok(Reply::Reached(false))),
            _ => {
                let error = Error::unsupported("this request", &self.info.address);
                return answer.give(Err(error));
            }
        };
        self.link.query(query, answer);
    }

    unsafe fn peek(&self, stream: StreamId) -> Result<u64> {
        self.link.peek(stream)
    }

    unsafe fn block_until(&self, ticket: Ticket) -> Result<()> {
        if self.link.peek(ticket.stream)? >= ticket.number {
            return Ok(());
        }
        self.link.send(&Command::Sync { ticket });
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

#[cold]
fn outside(length: usize, start: usize, bytes: u64) -> Error {
    Error::OutOfRange {
        what: "a copy between host and device".into(),
        detail: format!("{bytes} bytes at {start} lie outside a block of {length}"),
    }
}
