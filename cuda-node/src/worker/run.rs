//! The threads of a worker, and the frames on its sockets.

use std::{
    io::{self, Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    sync::{
        Arc, Weak,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
};

use cuda_core::{
    Access, Arguments, Backend, Device, DeviceBuffer, Error, LaunchConfig, PinnedBuffer, Provider,
    protocol::{Notice, Status},
};
use cuda_lease::{
    session::SessionError,
    wire::{
        Chunk, Command, FRAME_LIMIT, Frame, HEADER_BYTES, TransferId, complete_frames, features,
        frames_in, put_frame,
    },
};
use tracing::{
    field::{Empty, display},
    info_span,
};

use super::{
    engine::Engine,
    jobs::JobServer,
    messages::{Assign, Drain, Measured, ReadError, Ready, WorkerBlob, read_message},
    reports::{Reports, Sink, StagedDownload},
    staging::{PIECE, Staged},
};
use crate::process::{SandboxReport, WorkerEnds, limit_host_memory};

/// The bytes that a read can take behind an incomplete frame.
const READ: usize = 256 << 10;

/// The host memory of a CPU worker beside the memory of its lease, in bytes: staging and commands, code of modules and
/// its decoded form, inputs and outputs of submits.
const HOST_BYTES: u64 = 2 << 30;

/// Opens the device, and serves one session and the stateless submits of the same lease, until the supervisor closes
/// the socket of commands. On a GPU it uses the device once before: that takes a quarter of a second, so a node keeps
/// spare workers. A worker with a process of its own reports its `sandbox` to the supervisor, and on a CPU device it limits
/// the host memory of the process when it gets a lease. A worker that is a thread has `None`.
///
/// # Errors
/// The error of the provider, of a socket, or of a thread that cannot be started.
pub fn run(
    provider: Arc<dyn Provider>,
    ordinal: u32,
    ends: WorkerEnds,
    sandbox: Option<&SandboxReport>,
) -> cuda_core::Result<()> {
    let (bulk, downloads): (Sender<StagedDownload>, _) = channel();
    let reports = Reports::new(bulk);
    let backend = provider.open(ordinal, Arc::new(Sink(reports.clone())))?;
    if backend.info().driver.is_some() {
        warm_up(&*provider, ordinal)?;
    }
    let served = serve((provider, ordinal), &backend, &reports, downloads, &ends, sandbox);
    served.map_err(|error| Error::host("a socket or a thread of the worker failed", &error))
}

/// Reports that the device is open, and serves a lease. Submits open the device `ordinal` of `provider` once more.
fn serve(
    (provider, ordinal): (Arc<dyn Provider>, u32),
    backend: &Arc<dyn Backend>,
    reports: &Arc<Reports>,
    downloads: Receiver<StagedDownload>,
    WorkerEnds { commands, bulk, jobs }: &WorkerEnds,
    sandbox: Option<&SandboxReport>,
) -> io::Result<()> {
    let device = backend.info().clone();
    let features = features::of_device(backend.capabilities());
    let report = sandbox.map(serde_json::to_string).transpose()?.unwrap_or_default();
    let ready = Ready { device, features, sandbox: report };
    let mut out = Vec::new();
    put_frame(&mut out, Ready::OPCODE, 0, 0, |out| ready.encode(out));
    let mut socket = commands;
    socket.write_all(&out)?;
    let assigned = read_message(commands, Assign::OPCODE);
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
    tracing::info!("the worker has a lease");
    if sandbox.is_some() && backend.info().driver.is_none() {
        limit_host_memory(assign.limits.memory.saturating_add(HOST_BYTES))?;
    }
    let engine = Engine::new(backend.clone(), reports.clone(), assign.limits);
    let (quota, code) = (engine.quota(), engine.code().clone());
    reports.outbox.set_commands(commands.try_clone()?);

    let server =
        JobServer { provider, ordinal, quota: quota.clone(), code, socket: jobs.try_clone()? };
    let server = spawn("lease-jobs", move || server.run())?;
    let (events, outgoing, measured) = (commands.try_clone()?, reports.clone(), engine.clone());
    let writer = spawn("lease-events", move || write_events(&events, &outgoing, &measured))?;
    // Ends when the reports are dropped.
    let (socket, pumped) = (bulk.try_clone()?, Arc::downgrade(reports));
    drop(spawn("lease-downloads", move || write_downloads(&socket, &downloads, &pumped))?);
    let uploads = start_uploads(bulk, commands, engine.clone(), reports)?;

    // This thread submits almost everything.
    let entered = backend.enter();
    let begin = || engine.begin_batch();
    let ended = read_frames(commands, begin, |frame| {
        let taken = take(&engine, &frame);
        if let Err(error) = &taken {
            let error = broken(error);
            reports.outbox.push(&Notice::Lost { error }.into());
        }
        taken.is_ok()
    });
    if let Err(error) = ended {
        tracing::debug!(%error, "the commands of the session ended");
    }
    drop(entered);
    engine.close();
    reports.outbox.close();
    _ = writer.join();
    for socket in [bulk, commands, jobs] {
        _ = socket.shutdown(Shutdown::Both);
    }
    _ = uploads.join();
    // A kernel that runs ends first, or the supervisor kills this process.
    _ = server.join();
    Ok(())
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<thread::JoinHandle<()>> {
    thread::Builder::new().name(name.into()).spawn(run)
}

/// Starts the thread that reads uploads. If the client breaks the protocol there, it ends the session.
fn start_uploads(
    bulk: &UnixStream,
    commands: &UnixStream,
    engine: Arc<Engine>,
    reports: &Arc<Reports>,
) -> io::Result<thread::JoinHandle<()>> {
    let (bulk, commands, reports) = (bulk.try_clone()?, commands.try_clone()?, reports.clone());
    let broke = move |error: SessionError| {
        let error = broken(&error);
        reports.outbox.push(&Notice::Lost { error }.into());
        // The thread that reads commands ends, and with it the worker.
        _ = commands.shutdown(Shutdown::Read);
    };
    spawn("lease-uploads", move || read_uploads(&bulk, &engine, broke))
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
    engine.command(Command::decode(frame.header.opcode, frame.body)?, frame.bytes.len())
}

fn broken(error: &SessionError) -> Error {
    Error::Remote {
        address: "the lease".into(),
        status: Status::BadRequest,
        detail: format!("the client broke the protocol: {error}"),
    }
}

fn write_events(mut socket: &UnixStream, reports: &Reports, engine: &Engine) {
    let mut out = Vec::new();
    loop {
        let wake = reports.outbox.wait(&mut out);
        if wake.is_report_due {
            let used = || engine.quota().limit_and_used().1;
            let measured = reports.telemetry.report(used, || engine.report_backlog());
            put_frame(&mut out, Measured::OPCODE, 0, 0, |out| measured.encode(out));
        }
        if socket.write_all(&out).is_err() || !wake.is_open {
            return;
        }
        if reports.outbox.written(&wake) {
            reports.after_progress();
        }
    }
}

/// Sends the bytes of large downloads.
fn write_downloads(
    mut socket: &UnixStream,
    downloads: &Receiver<StagedDownload>,
    reports: &Weak<Reports>,
) {
    let mut out = Vec::new();
    for download in downloads {
        out.clear();
        // SAFETY: the download is complete, and no other submission names the block.
        let bytes = unsafe { download.block.block().shared_bytes() };
        for (index, bytes) in bytes[..download.bytes].chunks(Chunk::LIMIT).enumerate() {
            let offset = download.offset + (index * Chunk::LIMIT) as u64;
            let chunk = Chunk { transfer: download.transfer, offset, bytes };
            put_frame(&mut out, Chunk::OPCODE, 0, 0, |out| chunk.encode(out));
        }
        drop(download);
        // A download that waits for staging memory can go on.
        if let Some(reports) = reports.upgrade() {
            reports.after_progress();
        }
        if socket.write_all(&out).is_err() {
            return;
        }
    }
}

/// Collects the bytes of large uploads in pieces.
fn read_uploads(socket: &UnixStream, engine: &Engine, broke: impl FnOnce(SessionError)) {
    let mut filling = None;
    let mut broken = None;
    let ended = read_frames(
        socket,
        || {},
        |frame| {
            let added = Chunk::decode(frame.body).map_err(SessionError::from);
            match added.and_then(|chunk| add(engine, &chunk, &mut filling)) {
                Ok(goes_on) => goes_on,
                Err(error) => {
                    broken = Some(error);
                    false
                }
            }
        },
    );
    match (broken, ended) {
        (Some(error), _) => broke(error),
        (None, Err(ReadError::Wire(error))) => broke(error.into()),
        (None, Err(error)) => tracing::debug!(%error, "the uploads of the session ended"),
        (None, Ok(())) => {}
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

/// Reads frames until the socket ends, or `take` returns `false`. Calls `begin` before the frames of each read.
fn read_frames(
    mut socket: &UnixStream,
    mut begin: impl FnMut(),
    mut take: impl FnMut(Frame<'_>) -> bool,
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
        begin();
        let complete = complete_frames(&buffer[..filled], usize::MAX)?;
        for frame in frames_in(&buffer[..complete]) {
            if !take(frame) {
                return Ok(());
            }
        }
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
    use super::*;

    #[test]
    fn warm_up_works_on_the_cpu_device() {
        warm_up(&cuda_cpu::CpuProvider::default(), 0).unwrap();
    }
}
