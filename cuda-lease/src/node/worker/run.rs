//! The threads of a worker.

use std::{
    io::{self, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
};

use cuda_core::{Backend, Error, Provider, Result};
use parking_lot::Mutex;

use super::{
    engine::Engine,
    jobs::JobServer,
    messages::{Assign, Ready, WorkerBlob},
    quota::Quota,
    reports::{Landing, Reports, Sink},
    sockets::read_frames,
    staging::{PIECE, Staged},
};
use crate::{
    session::SessionError,
    wire::{BlobId, Chunk, Command, Event, Frame, put_frame},
};

/// A worker whose device is open, and that has no lease yet.
pub struct Worker {
    backend: Arc<dyn Backend>,
    reports: Arc<Reports>,
    landed: Receiver<Landing>,
    quota: Arc<Quota>,
}

impl Worker {
    /// Opens the device. On a GPU that takes a quarter of a second, so a node keeps spare workers.
    ///
    /// # Errors
    /// The error of the provider.
    pub fn open(provider: &dyn Provider, ordinal: u32) -> Result<Self> {
        let (bulk, landed): (Sender<Landing>, _) = channel();
        let reports = Reports::new(bulk);
        let backend = provider.open(ordinal, Arc::new(Sink(reports.clone())))?;
        Ok(Self { backend, reports, landed, quota: Arc::default() })
    }

    /// Returns the server of the stateless submits of the same lease. It opens a device of its own when the first one
    /// arrives, so it costs nothing before.
    pub fn jobs(&self, provider: Arc<dyn Provider>, ordinal: u32) -> JobServer {
        JobServer::new(provider, ordinal, self.quota.clone())
    }

    /// Serves one session, until the supervisor closes the sockets.
    ///
    /// # Errors
    /// An error if a thread cannot be started or a socket fails.
    pub fn serve(self, commands: UnixStream, bulk: UnixStream) -> io::Result<()> {
        let Self { backend, reports, landed, quota } = self;
        let device = backend.info().clone();
        reports.outbox.push_frame(Ready::OPCODE, |out| Ready { device }.encode(out));
        let engine: Arc<Mutex<Option<Arc<Engine>>>> = Arc::default();

        let (events, outgoing) = (commands.try_clone()?, reports.clone());
        let writer = spawn("lease-events", move || write_events(&events, &outgoing))?;
        let (downloads, pumped) = (bulk.try_clone()?, engine.clone());
        let bulk_writer =
            spawn("lease-downloads", move || write_downloads(&downloads, &landed, &pumped))?;

        let mut uploads = None;
        let ended = read_frames(&commands, |frame| {
            let current = engine.lock().clone();
            let Some(current) = current else {
                let assigned = assign(&frame, &backend, &reports, &quota);
                let Some(made) = assigned else { return false };
                *engine.lock() = Some(made.clone());
                let bulk = bulk.try_clone();
                uploads = bulk
                    .and_then(|bulk| spawn("lease-uploads", move || read_uploads(&bulk, &made)))
                    .ok();
                return uploads.is_some();
            };
            match take(&current, &frame) {
                Ok(()) => true,
                Err(error) => {
                    reports.outbox.push(&Event::Lost { error: broken(&backend, &error) });
                    false
                }
            }
        });
        if let Err(error) = ended {
            tracing::debug!(%error, "the commands of the session ended");
        }
        let engine = engine.lock().take();
        if let Some(engine) = engine {
            engine.close();
        }
        reports.outbox.close();
        _ = writer.join();
        _ = bulk.shutdown(Shutdown::Both);
        _ = commands.shutdown(Shutdown::Both);
        if let Some(uploads) = uploads {
            _ = uploads.join();
        }
        drop(bulk_writer);
        Ok(())
    }
}

/// Opens the device and serves one session.
///
/// # Errors
/// The error of the provider, or of a socket.
pub fn run(
    provider: &dyn Provider,
    ordinal: u32,
    commands: UnixStream,
    bulk: UnixStream,
) -> Result<()> {
    let served = Worker::open(provider, ordinal)?.serve(commands, bulk);
    served.map_err(|error| Error::host("failed to serve a session", &error))
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<thread::JoinHandle<()>> {
    thread::Builder::new().name(name.into()).spawn(run)
}

fn assign(
    frame: &Frame<'_>,
    backend: &Arc<dyn Backend>,
    reports: &Arc<Reports>,
    quota: &Arc<Quota>,
) -> Option<Arc<Engine>> {
    let assign =
        Assign::decode(frame.body).ok().filter(|_| frame.header.opcode == Assign::OPCODE)?;
    Some(Engine::new(backend.clone(), reports.clone(), assign.limits, quota.clone()))
}

fn take(engine: &Engine, frame: &Frame<'_>) -> std::result::Result<(), SessionError> {
    if frame.header.opcode == WorkerBlob::OPCODE {
        let blob = WorkerBlob::decode(frame.body)?;
        engine.blob(blob.hash, blob.total, &blob.part);
        return Ok(());
    }
    engine.command(Command::decode(frame.header.opcode, frame.body)?)
}

fn broken(backend: &Arc<dyn Backend>, error: &SessionError) -> Error {
    Error::Remote {
        address: backend.info().address.clone(),
        status: cuda_core::protocol::Status::BadRequest,
        detail: format!("the client broke the protocol: {error}"),
    }
}

fn write_events(mut socket: &UnixStream, reports: &Reports) {
    let mut out = Vec::new();
    while reports.outbox.wait(&mut out) {
        if socket.write_all(&out).is_err() {
            return;
        }
    }
}

/// Sends the bytes of large downloads.
fn write_downloads(
    mut socket: &UnixStream,
    landed: &Receiver<Landing>,
    engine: &Mutex<Option<Arc<Engine>>>,
) {
    let mut out = Vec::new();
    for landing in landed {
        out.clear();
        // SAFETY: the download is complete, and no other submission names the block.
        let bytes = unsafe { landing.block.block().shared_bytes() };
        for (index, bytes) in bytes[..landing.bytes].chunks(Chunk::LIMIT).enumerate() {
            let offset = landing.offset + (index * Chunk::LIMIT) as u64;
            let chunk = Chunk { blob: landing.blob, offset, bytes };
            put_frame(&mut out, Chunk::OPCODE, 0, 0, |out| chunk.encode(out));
        }
        drop(landing);
        // A download that waits for staging memory can go on.
        let engine = engine.lock().clone();
        if let Some(engine) = engine {
            engine.pump();
        }
        if socket.write_all(&out).is_err() {
            return;
        }
    }
}

/// Collects the bytes of large uploads in pieces.
fn read_uploads(socket: &UnixStream, engine: &Engine) {
    let mut filling: Option<(BlobId, Staged, usize)> = None;
    let ended = read_frames(socket, |frame| {
        let Ok(chunk) = Chunk::decode(frame.body) else { return false };
        add(engine, &chunk, &mut filling).is_some()
    });
    if let Err(error) = ended {
        tracing::debug!(%error, "the uploads of the session ended");
    }
}

/// Adds a chunk to the piece that is filled. Returns `None` at the end of the session.
fn add(
    engine: &Engine,
    chunk: &Chunk<'_>,
    filling: &mut Option<(BlobId, Staged, usize)>,
) -> Option<()> {
    let mut bytes = chunk.bytes;
    while !bytes.is_empty() {
        let left = engine.expected(chunk.blob)?;
        let (blob, mut piece, mut filled) = match filling.take() {
            Some(filling) => filling,
            None => {
                let size = left.min(PIECE as u64) as usize;
                (chunk.blob, engine.staging().take(size)?.ok()?, 0)
            }
        };
        if blob != chunk.blob {
            return None;
        }
        let wanted = left.min(PIECE as u64) as usize;
        let count = bytes.len().min(wanted - filled);
        if count == 0 || !piece.fill(filled, &bytes[..count]) {
            return None;
        }
        filled += count;
        bytes = &bytes[count..];
        if filled == wanted {
            engine.piece(blob, piece, filled);
        } else {
            *filling = Some((blob, piece, filled));
        }
    }
    Some(())
}
