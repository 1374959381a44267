//! The queue of stateless submits of one lease, and the task that passes them to the worker.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use cuda_core::protocol::Status;
use cuda_lease::wire::{FrameBuffer, Submit, WireError, Writer, put_frame};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    sync::{mpsc, oneshot},
};

use super::{
    memory_budget::{MemoryBudget, Reserved},
    streams::Refusal,
};
use crate::{
    metrics::Meter,
    worker::{
        Assign, WorkerBlob,
        jobs::{JOB_PART, JobDone, JobPart, NeedImage},
    },
};

/// The maximum number of submits of a lease that wait or run.
const WAITING: usize = 16;

/// The maximum number of input bytes of the submits that wait or run. With the outputs, the submits of a lease use at most
/// 256 MiB of host memory in the supervisor.
const WAITING_BYTES: u64 = 128 << 20;

/// The maximum number of output bytes that the clients of a lease have not read. A submit runs when its output fits.
const OUTPUT_BYTES: u64 = 128 << 20;

/// A submit with its bytes.
pub(super) struct JobRequest {
    pub(super) job: Submit,
    pub(super) image: Bytes,
    pub(super) input: Bytes,
}

/// The result of a submit.
pub(super) struct Reply {
    pub(super) status: Status,
    pub(super) text: String,
    pub(super) output: Vec<u8>,
    /// The memory of the output, dropped when the output is sent.
    pub(super) place: Reserved,
}

/// The queue of a lease.
pub(super) struct Jobs {
    queue: mpsc::UnboundedSender<Queued>,
    load: Arc<Mutex<Load>>,
    meter: Arc<Meter>,
}

/// The places and bytes of the queue that are in use.
#[derive(Default)]
struct Load {
    places: usize,
    bytes: u64,
}

/// A place in the queue, with its bytes.
pub(super) struct Place {
    load: Arc<Mutex<Load>>,
    bytes: u64,
}

struct Queued {
    request: JobRequest,
    _place: Place,
    /// The time of its arrival.
    at: Instant,
    reply: oneshot::Sender<Reply>,
}

#[derive(Debug, thiserror::Error)]
enum WorkerError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("the worker closed the socket")]
    Closed,
}

impl Jobs {
    /// Starts the queue of a worker. `ended` is called when the worker serves no more jobs.
    pub(super) fn start(
        socket: UnixStream,
        assign: Assign,
        meter: Arc<Meter>,
        ended: impl FnOnce() + Send + 'static,
    ) -> Arc<Self> {
        // The places bound the queue.
        let (queue, requests) = mpsc::unbounded_channel();
        let own = meter.clone();
        tokio::spawn(async move {
            let buffer = FrameBuffer::default();
            let outputs = MemoryBudget::new(OUTPUT_BYTES);
            let mut worker = JobSocket { socket, buffer, meter: own, outputs };
            if let Err(error) = worker.serve(assign, requests).await {
                tracing::debug!(%error, "the submits of a lease ended");
                ended();
            }
        });
        Arc::new(Self { queue, load: Arc::default(), meter })
    }

    /// Returns the meter of the lease.
    pub(super) fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// Reserves a place for a submit with an input of `bytes` bytes, before its bytes are read.
    ///
    /// # Errors
    /// The queue is full.
    pub(super) fn reserve(&self, bytes: u64) -> Result<Place, Refusal> {
        let mut load = self.load.lock();
        if load.places == WAITING || load.bytes + bytes > WAITING_BYTES {
            let text = format!(
                "the submit with {bytes} bytes of input is refused: {} submits with {} bytes of input wait or run, and \
                 the limits of a lease are {WAITING} submits and {WAITING_BYTES} bytes; repeat it after the next reply",
                load.places, load.bytes
            );
            return Err((Status::CapacityExceeded, text));
        }
        load.places += 1;
        load.bytes += bytes;
        Ok(Place { load: self.load.clone(), bytes })
    }

    /// Runs a submit behind the earlier ones. Returns `None` if the worker has exited. Dropping the future does not
    /// stop the kernel.
    pub(super) async fn run(&self, request: JobRequest, place: Place) -> Option<Reply> {
        let (reply, receiver) = oneshot::channel();
        self.queue.send(Queued { request, _place: place, at: Instant::now(), reply }).ok()?;
        receiver.await.ok()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut load = self.load.lock();
        load.places -= 1;
        load.bytes -= self.bytes;
    }
}

/// The socket to the worker.
struct JobSocket {
    socket: UnixStream,
    buffer: FrameBuffer,
    meter: Arc<Meter>,
    /// The memory for outputs.
    outputs: MemoryBudget,
}

impl JobSocket {
    /// Runs one submit after the other, until the lease ends.
    async fn serve(
        &mut self,
        assign: Assign,
        mut requests: mpsc::UnboundedReceiver<Queued>,
    ) -> Result<(), WorkerError> {
        self.send(Assign::OPCODE, |out| assign.encode(out)).await?;
        loop {
            let queued = tokio::select! {
                queued = requests.recv() => queued,
                // Between two jobs the worker sends nothing.
                ended = self.next() => return ended.and(Err(WorkerError::Closed)),
            };
            let Some(queued) = queued else { return Ok(()) };
            let bytes = queued.request.job.max_output.min(Submit::OUTPUT_LIMIT);
            let outputs = self.outputs.clone();
            let place = tokio::select! {
                place = outputs.reserve(bytes) => place,
                ended = self.next() => return ended.and(Err(WorkerError::Closed)),
            };
            let Some(place) = place else { return Ok(()) };
            self.meter.node.record(queued.at.elapsed(), |it| &mut it.submit.queue);
            let reply = self.run(&queued.request, place).await?;
            _ = queued.reply.send(reply);
        }
    }

    async fn run(&mut self, request: &JobRequest, place: Reserved) -> Result<Reply, WorkerError> {
        let JobRequest { job, image, input } = request;
        self.send(Submit::OPCODE, |out| job.encode(out)).await?;
        for part in input.chunks(JOB_PART) {
            let body = |out: &mut Vec<u8>| _ = Writer::new(out).put_bytes(part);
            self.send(JobPart::OPCODE, body).await?;
        }
        let (opcode, body) = self.next().await?;
        let (opcode, body) = if opcode == NeedImage::OPCODE {
            let total = image.len() as u64;
            // An empty image is one frame too.
            let parts = image.chunks(JOB_PART).chain(image.is_empty().then_some(&[][..]));
            for part in parts {
                let body = |out: &mut Vec<u8>| {
                    _ = Writer::new(out).put(job.hash).put(total).put_bytes(part)
                };
                self.send(WorkerBlob::OPCODE, body).await?;
            }
            self.next().await?
        } else {
            (opcode, body)
        };
        if opcode != JobDone::OPCODE {
            return Err(WireError::UnexpectedOpcode { opcode }.into());
        }
        let done = JobDone::decode(&body)?;
        let JobDone { status, text, output_bytes, device_nanos, memory } = done;
        self.meter.set_memory(memory);
        if device_nanos > 0 {
            let time = Duration::from_nanos(device_nanos);
            self.meter.node.record(time, |it| &mut it.submit.device);
        }
        check_output(output_bytes, job)?;
        let mut output = Vec::new();
        while (output.len() as u64) < output_bytes {
            let (opcode, body) = self.next().await?;
            if opcode != JobPart::OPCODE {
                return Err(WireError::UnexpectedOpcode { opcode }.into());
            }
            output.extend_from_slice(&JobPart::decode(&body)?.part);
            check_output(output.len() as u64, job)?;
        }
        Ok(Reply { status, text, output, place })
    }

    async fn send(
        &mut self,
        opcode: u16,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), WorkerError> {
        let mut out = Vec::new();
        put_frame(&mut out, opcode, 0, 0, body);
        Ok(self.socket.write_all(&out).await?)
    }

    /// Reads the next frame. Cancelling this loses nothing.
    async fn next(&mut self) -> Result<(u16, Vec<u8>), WorkerError> {
        loop {
            if let Some(frames) = self.buffer.take_first()?
                && let Some(frame) = frames.iter().next()
            {
                return Ok((frame.header.opcode, frame.body.to_vec()));
            }
            if self.socket.read_buf(self.buffer.buffer()).await? == 0 {
                return Err(WorkerError::Closed);
            }
        }
    }
}

fn check_output(length: u64, job: &Submit) -> Result<(), WireError> {
    let limit = job.max_output.min(Submit::OUTPUT_LIMIT);
    if length <= limit {
        Ok(())
    } else {
        Err(WireError::TooLong { what: "an output", length, limit })
    }
}
