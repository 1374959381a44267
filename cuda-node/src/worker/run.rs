//! The threads of a worker, and the frames on its sockets.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    sync::{
        Arc, Weak,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
};

use cuda_core::{
    Access, Arguments, Backend, Device, DeviceBuffer, DeviceInfo, Error, LaunchConfig,
    PinnedBuffer, Provider, protocol::Status,
};
use cuda_lease::{
    session::SessionError,
    wire::{
        Chunk, Command, FRAME_LIMIT, Frame, HEADER_BYTES, Lane, Limits, TransferId,
        complete_frames, features, frames_in, put_frame,
    },
};
use tracing::{
    field::{Empty, display},
    info_span,
};

use super::{
    engine::Engine,
    inbox::Inbox,
    jobs::JobServer,
    messages::{Assign, Drain, Measured, ReadError, Ready, SetTurn, WorkerBlob, read_message},
    outbox::{Batch, Outbox},
    reports::{Reports, Sink, StagedDownload},
    sockets::{Connected, Sockets},
    staging::{PIECE, Staged},
};
use crate::process::{SandboxReport, Successors, WorkerEnds, limit_host_memory};

/// The bytes that a read can take behind an incomplete frame.
const READ: usize = 256 << 10;

/// The host memory of a worker for staging and commands, code of modules and its compiled or decoded form, inputs and
/// outputs of submits, in bytes.
const HOST_BYTES: u64 = 2 << 30;

/// The host memory that a worker may use for a lease besides that which it uses before, in bytes. The memory of a lease
/// on the CPU is host memory.
pub(crate) fn host_memory(device: &DeviceInfo, limits: &Limits) -> u64 {
    let of_lease = if device.driver.is_none() { limits.memory } else { 0 };
    of_lease.saturating_add(HOST_BYTES)
}

/// Opens the device, and serves one session and the stateless submits of the same lease, until the supervisor closes
/// the socket of commands. On a GPU it uses the device once before: that takes a quarter of a second, so a node keeps
/// spare workers. A worker with a process of its own reports its `sandbox` to the supervisor, and on a CPU device it limits
/// the host memory of the process when it gets a lease. A worker that is a thread has `None`. With `successors`, a worker
/// that has a lease serves the supervisors that follow the first one.
///
/// # Errors
/// The error of the provider, of a socket, or of a thread that cannot be started.
pub fn run(
    provider: Arc<dyn Provider>,
    ordinal: u32,
    ends: WorkerEnds,
    sandbox: Option<&SandboxReport>,
    successors: Option<Successors>,
) -> cuda_core::Result<()> {
    let (bulk, downloads): (Sender<StagedDownload>, _) = channel();
    let reports = Reports::new(bulk);
    let backend = provider.open(ordinal, Arc::new(Sink(reports.clone())))?;
    if backend.info().driver.is_some() {
        warm_up(&*provider, ordinal)?;
    }
    let served =
        serve((provider, ordinal), &backend, &reports, downloads, (ends, successors), sandbox);
    served.map_err(|error| Error::host("a socket or a thread of the worker failed", &error))
}

/// Reports that the device is open, and serves a lease. Submits open the device `ordinal` of `provider` once more.
fn serve(
    (provider, ordinal): (Arc<dyn Provider>, u32),
    backend: &Arc<dyn Backend>,
    reports: &Arc<Reports>,
    downloads: Receiver<StagedDownload>,
    (ends, successors): (WorkerEnds, Option<Successors>),
    sandbox: Option<&SandboxReport>,
) -> io::Result<()> {
    let device = backend.info().clone();
    let features = features::of_device(backend.capabilities());
    let report = sandbox.map(serde_json::to_string).transpose()?.unwrap_or_default();
    let ready = Ready { device, features, sandbox: report };
    let mut out = Vec::new();
    put_frame(&mut out, Ready::OPCODE, 0, 0, |out| ready.encode(out));
    (&ends.commands).write_all(&out)?;
    let assigned = read_message(&ends.commands, Assign::OPCODE);
    let assign = match assigned.and_then(|body| Ok(Assign::decode(&body)?)) {
        Ok(assign) => assign,
        Err(error) => {
            tracing::debug!(%error, "the worker ends without a lease");
            return Ok(());
        }
    };
    let span = info_span!("worker", trace_id = Empty, lease = assign.lease);
    if let Some(trace) = &assign.trace {
        span.record("trace_id", display(trace.trace_id()));
    }
    let _entered = span.entered();
    if let Some(successors) = &successors {
        successors.outlive();
    }
    tracing::info!("the worker has a lease");
    if sandbox.is_some() && backend.info().driver.is_none() {
        limit_host_memory(host_memory(backend.info(), &assign.limits))?;
    }
    let engine = Engine::new(backend.clone(), reports.clone(), assign.limits);
    let (quota, code) = (engine.quota(), engine.code().clone());
    let sockets = Arc::new(Sockets::new(ends, successors.is_some()));
    if let Some(successors) = successors {
        let own = sockets.clone();
        drop(spawn("lease-successors", move || follow(&own, &successors))?);
    }
    let own = sockets.clone();
    reports.outbox.on_overflow(move || own.end_commands());

    let of_session = engine.clone();
    let server = JobServer {
        provider,
        ordinal,
        quota: quota.clone(),
        take_memory: Arc::new(move |bytes| of_session.take_memory(bytes)),
        code,
        sockets: sockets.clone(),
    };
    let server = spawn("lease-jobs", move || server.run())?;
    let (own, outgoing, measured) = (sockets.clone(), reports.clone(), engine.clone());
    let writer = spawn("lease-events", move || write_events(&own, &outgoing, &measured))?;
    let bulk = Arc::<Outbox>::default();
    let (own, outbox) = (sockets.clone(), bulk.clone());
    let bulk_writer = spawn("lease-downloads", move || write_downloads(&own, &outbox))?;
    // Ends when the reports are dropped.
    let (outbox, pumped) = (bulk.clone(), Arc::downgrade(reports));
    drop(spawn("lease-staged", move || encode_downloads(&downloads, &outbox, &pumped))?);
    let uploads = start_uploads(&sockets, engine.clone(), bulk.clone(), reports)?;

    // This thread submits almost everything.
    let entered = backend.enter();
    read_commands(&sockets, &engine, reports);
    drop(entered);
    engine.close();
    reports.outbox.close();
    bulk.close();
    _ = writer.join();
    _ = bulk_writer.join();
    sockets.close();
    _ = uploads.join();
    // A kernel that runs ends first, or the supervisor kills this process.
    _ = server.join();
    Ok(())
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<thread::JoinHandle<()>> {
    thread::Builder::new().name(name.into()).spawn(run)
}

/// Gives the sockets of each later supervisor to the worker, until the session ends.
fn follow(sockets: &Sockets, successors: &Successors) {
    loop {
        let connected = sockets.current();
        let next = successors.await_end(&connected.ends).and_then(|()| {
            if !sockets.has_next() {
                return Ok(None);
            }
            tracing::warn!("the supervisor has ended; the worker waits for the next one");
            successors.accept().map(Some)
        });
        match next {
            Ok(Some(ends)) => sockets.replace(ends),
            Ok(None) => return,
            Err(error) => {
                tracing::error!(%error, "the worker cannot wait for the next supervisor");
                return sockets.close();
            }
        }
        tracing::info!("the worker has another supervisor");
    }
}

/// Reads the commands of all supervisors, until the session ends.
fn read_commands(sockets: &Sockets, engine: &Engine, reports: &Reports) {
    let mut inbox = Inbox::new(reports.outbox.clone());
    let mut connected = sockets.current();
    loop {
        let mut broken = None;
        let ended = read_frames(
            &connected.ends.commands,
            &mut inbox,
            |has_begun| if has_begun { engine.begin_batch() } else { engine.end_batch() },
            |inbox, frame| {
                let taken = inbox.take(&frame);
                let done =
                    taken.and_then(|is_new| if is_new { take(engine, &frame) } else { Ok(()) });
                broken = done.err();
                broken.is_none()
            },
        );
        if let Err(error) = &ended {
            tracing::debug!(%error, "the commands of a supervisor ended");
        }
        if let Some(error) = broken.or_else(|| ended.err().and_then(ReadError::broken)) {
            return reports.outbox.push_lost(lost(&error));
        }
        match sockets.next(&connected) {
            Some(next) => connected = next,
            None => return,
        }
        reports.outbox.detach();
        engine.rejoined();
    }
}

/// Starts the thread that reads uploads. If the client breaks the protocol there, it ends the session.
fn start_uploads(
    sockets: &Arc<Sockets>,
    engine: Arc<Engine>,
    bulk: Arc<Outbox>,
    reports: &Arc<Reports>,
) -> io::Result<thread::JoinHandle<()>> {
    let (sockets, reports) = (sockets.clone(), reports.clone());
    spawn("lease-uploads", move || {
        if let Err(error) = read_uploads(&sockets, &engine, bulk) {
            reports.outbox.push_lost(lost(&error));
            // The thread that reads commands ends, and with it the worker.
            sockets.end_commands();
        }
    })
}

fn take(engine: &Engine, frame: &Frame<'_>) -> Result<(), SessionError> {
    if frame.header.opcode == WorkerBlob::OPCODE {
        let blob = WorkerBlob::decode(frame.body)?;
        engine.blob(blob.hash, blob.total, &blob.part);
        return Ok(());
    }
    if frame.header.opcode == Drain::OPCODE {
        engine.drain(Drain::decode(frame.body)?.request);
        return Ok(());
    }
    if frame.header.opcode == SetTurn::OPCODE {
        engine.turn(SetTurn::decode(frame.body)?.has_turn);
        return Ok(());
    }
    engine.command(Command::decode(frame.header.opcode, frame.body)?, frame.bytes.len())
}

/// The end of a session whose client broke the protocol.
fn lost(error: &SessionError) -> Error {
    Error::Remote {
        address: "the lease".into(),
        status: Status::BadRequest,
        detail: format!("the client broke the protocol: {error}"),
    }
}

/// Writes events and reports to the socket of commands, until the session ends.
fn write_events(sockets: &Sockets, reports: &Reports, engine: &Engine) {
    let mut connected = sockets.current();
    loop {
        let mut batch = reports.outbox.wait();
        if batch.is_report_due {
            let used = || engine.quota().limit_and_used().1;
            let measured = reports.telemetry.report(used, || engine.report_backlog());
            let out = &mut batch.unnumbered;
            put_frame(out, Measured::OPCODE, 0, 0, |out| measured.encode(out));
        }
        if !write(sockets, &mut connected, Lane::Commands, &batch) {
            return;
        }
        if reports.outbox.written(&batch) || engine.is_paused() {
            reports.after_progress();
        }
    }
}

/// Writes large downloads to the socket of bulk bytes, until the session ends.
fn write_downloads(sockets: &Sockets, bulk: &Outbox) {
    let mut connected = sockets.current();
    while write(sockets, &mut connected, Lane::Bulk, &bulk.wait()) {}
}

/// Writes a batch. Frames that a supervisor did not take, the client gets from the next one. Returns `false` at the end
/// of the session.
fn write(sockets: &Sockets, connected: &mut Connected, lane: Lane, batch: &Batch) -> bool {
    sockets.refresh(connected);
    let mut socket = match lane {
        Lane::Commands => &connected.ends.commands,
        Lane::Bulk => &connected.ends.bulk,
    };
    let frames = batch.frames.as_deref().unwrap_or_default();
    let written = socket.write_all(&batch.unnumbered).and_then(|()| socket.write_all(frames));
    if written.is_err() {
        match sockets.next(connected) {
            Some(next) => *connected = next,
            None => return false,
        }
    }
    batch.is_open
}

/// Adds the bytes of large downloads to the bulk lane.
fn encode_downloads(downloads: &Receiver<StagedDownload>, bulk: &Outbox, reports: &Weak<Reports>) {
    for download in downloads {
        // SAFETY: the download is complete, and no other submission names the block.
        let bytes = unsafe { download.block.block().shared_bytes() };
        for (index, bytes) in bytes[..download.bytes].chunks(Chunk::LIMIT).enumerate() {
            let offset = download.offset + (index * Chunk::LIMIT) as u64;
            if !bulk.push_chunk_in_turn(&Chunk { transfer: download.transfer, offset, bytes }) {
                return;
            }
        }
        drop(download);
        // A download that waits for staging memory can go on.
        if let Some(reports) = reports.upgrade() {
            reports.after_progress();
        }
    }
}

/// Collects the bytes of large uploads in pieces, from all supervisors.
///
/// # Errors
/// The client broke the protocol.
fn read_uploads(sockets: &Sockets, engine: &Engine, bulk: Arc<Outbox>) -> Result<(), SessionError> {
    let mut inbox = Inbox::new(bulk.clone());
    let mut filling = None;
    let mut connected = sockets.current();
    loop {
        let mut broken = None;
        let mut goes_on = true;
        let ended = read_frames(
            &connected.ends.bulk,
            &mut inbox,
            |_| {},
            |inbox, frame| {
                let taken = inbox.take(&frame).and_then(|is_new| match is_new {
                    true => add(engine, &Chunk::decode(frame.body)?, &mut filling),
                    false => Ok(true),
                });
                match taken {
                    Ok(on) => goes_on = on,
                    Err(error) => broken = Some(error),
                }
                goes_on && broken.is_none()
            },
        );
        if let Some(error) = broken.or_else(|| ended.err().and_then(ReadError::broken)) {
            return Err(error);
        }
        if !goes_on {
            return Ok(());
        }
        match sockets.next(&connected) {
            Some(next) => connected = next,
            None => return Ok(()),
        }
        bulk.detach();
    }
}

/// A piece of an upload, and the bytes in it.
struct Filling {
    transfer: TransferId,
    piece: Staged,
    filled: usize,
}

/// Adds a chunk to the piece that is filled. Returns `false` at the end of the session.
///
/// # Errors
/// The chunk is not the one that comes next.
fn add(
    engine: &Engine,
    chunk: &Chunk<'_>,
    filling: &mut Option<Filling>,
) -> Result<bool, SessionError> {
    let mut bytes = chunk.bytes;
    while !bytes.is_empty() {
        let Some((arrived, left)) = engine.expected(chunk.transfer) else { return Ok(false) };
        let wanted = left.min(PIECE as u64) as usize;
        let mut current = match filling.take() {
            Some(current) => current,
            None => match engine.staging().take(wanted) {
                None => return Ok(false),
                Some(Err(error)) => return Err(SessionError::Command(error.to_string())),
                Some(Ok(piece)) => Filling { transfer: chunk.transfer, piece, filled: 0 },
            },
        };
        let offset = chunk.offset + (chunk.bytes.len() - bytes.len()) as u64;
        if current.transfer != chunk.transfer || arrived + current.filled as u64 != offset {
            let transfer = chunk.transfer.0;
            return Err(SessionError::Command(format!(
                "bytes of upload {transfer} came out of order"
            )));
        }
        let count = bytes.len().min(wanted - current.filled);
        current.piece.fill(current.filled, &bytes[..count]);
        current.filled += count;
        bytes = &bytes[count..];
        if current.filled == wanted {
            engine.piece(current.transfer, current.piece, current.filled)?;
        } else {
            *filling = Some(current);
        }
    }
    Ok(true)
}

/// Reads frames until the socket ends, or `take` returns `false`. Calls `batch` with `true` before the
/// frames of each read, and with `false` after them.
fn read_frames(
    mut socket: &UnixStream,
    inbox: &mut Inbox,
    mut batch: impl FnMut(bool),
    mut take: impl FnMut(&mut Inbox, Frame<'_>) -> bool,
) -> Result<(), ReadError> {
    // A frame is handled where it was read. Only an incomplete one moves.
    let mut buffer = vec![0; HEADER_BYTES + FRAME_LIMIT as usize + READ];
    let mut filled = 0;
    loop {
        match socket.read(&mut buffer[filled..]) {
            Ok(0) => return Ok(()),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        }
        let complete = complete_frames(&buffer[..filled], usize::MAX)?;
        batch(true);
        let goes_on = frames_in(&buffer[..complete]).all(|frame| take(inbox, frame));
        batch(false);
        if !goes_on {
            return Ok(());
        }
        inbox.acknowledge();
        buffer.copy_within(complete..filled, 0);
        filled -= complete;
    }
}

/// A kernel that sets the first byte of its memory, for [`warm_up`].
const PTX: &str = "
.version 7.0
.target sm_50
.address_size 64
.visible .entry touch(.param .u64 memory)
{
    .reg .b64 %address;
    .reg .b16 %one;
    ld.param.u64 %address, [memory];
    cvta.to.global.u64 %address, %address;
    mov.u16 %one, 1;
    st.global.u8 [%address], %one;
    ret;
}";

/// Uses a GPU before a lease does: allocates, copies, loads a kernel and launches it.
///
/// The first use of each part of the driver is slow: on an H200 the first allocation takes 10 ms, the first pinned
/// block 1 ms, and the first compilation loads the compiler. A spare worker pays for that while it waits.
///
/// # Errors
/// The device does not work.
fn warm_up(provider: &dyn Provider, ordinal: u32) -> cuda_core::Result<()> {
    let device = Device::open(provider, ordinal)?;
    let stream = device.new_stream()?;
    let mut memory = DeviceBuffer::<u8>::uninitialized(&stream, PIECE)?;
    memory.upload(&stream, 0, device.pinned_uninitialized(PIECE)?)?;
    let touch = device.load_ptx_blocking(PTX)?.function("touch")?;
    let mut arguments = Arguments::new();
    arguments.buffer(&memory, Access::Write);
    // SAFETY: writes the first byte of `memory`.
    unsafe { touch.launch(&stream, LaunchConfig::new(1, 1), &arguments) }?;
    let host: PinnedBuffer<u8> = device.pinned_uninitialized(1)?;
    memory.download(&stream, 0..1, host)?.wait().map(drop)
}

#[cfg(test)]
mod tests {
    use cuda_core::{
        Ticket,
        protocol::{AllocId, Control, GraphId, Region, StreamId},
    };
    use cuda_lease::wire::{Content, Step};

    use super::*;
    use crate::worker::engine::tests::limits;

    #[test]
    fn warm_up_works_on_the_cpu_device() {
        warm_up(&cuda_cpu::CpuProvider::default(), 0).unwrap();
    }

    /// A transfer brings the content of a graph, and meanwhile becomes one of an upload with fewer bytes, or the other way
    /// around.
    #[test]
    fn transfer_with_two_uses_is_refused() {
        let reports = Reports::new(channel().0);
        let provider = cuda_cpu::CpuProvider::default();
        let backend = provider.open(0, Arc::new(Sink(reports.clone()))).unwrap();
        let engine = Engine::new(backend, reports, limits());
        let command = |command| engine.command(command, 64);
        command(Command::Control(Control::CreateStream { id: StreamId(1), priority: 0 })).unwrap();
        let create = |graph, transfer| {
            let nodes = Content::Bulk { transfer: TransferId(transfer), bytes: 2 << 20 };
            command(Command::CreateGraph { id: GraphId(graph), nodes })
        };
        let upload = |number, transfer| {
            let to = Region { alloc: AllocId(1), offset: 0 };
            let step = Step::WriteBulk { to, transfer: TransferId(transfer), bytes: 4 };
            let ticket = Ticket { stream: StreamId(1), number };
            command(Command::Submit { ticket, after: Vec::new(), step })
        };
        create(1, 5).unwrap();
        let chunk = Chunk { transfer: TransferId(5), offset: 0, bytes: &[0; 1000] };
        add(&engine, &chunk, &mut None).unwrap();
        upload(1, 6).unwrap();
        for refused in [create(2, 6), upload(2, 5)] {
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains("already in use"), "{refused}");
        }
    }
}
