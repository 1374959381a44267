//! The queue of stateless submits of one lease, and the task that passes them to the worker.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use cuda_core::protocol::Status;
use cuda_lease::wire::{Submit, WireError};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
};

use super::{
    memory_budget::{MemoryBudget, Reserved},
    streams::{Refusal, read_frame, send_frame},
};
use crate::{metrics::Meter, worker::jobs::JobDone};

/// The maximum number of submits of a lease that wait or run.
const WAITING: usize = 16;

/// The maximum number of input bytes of the submits that wait or run. With the outputs, the submits of a lease use at
/// most 256 MiB of host memory in the supervisor.
const WAITING_BYTES: u64 = 128 << 20;

/// The maximum number of output bytes that the clients of a lease have not read. A submit runs when its output fits.
const OUTPUT_BYTES: u64 = 128 << 20;

/// The result of a submit.
pub(super) struct Reply {
    pub(super) done: JobDone,
    pub(super) output: Vec<u8>,
    /// The memory of the output, dropped when the output is sent.
    pub(super) place: Reserved,
}

/// The queue of a lease.
pub(super) struct Jobs {
    queue: mpsc::UnboundedSender<Queued>,
    places: Arc<Semaphore>,
    inputs: MemoryBudget,
    meter: Arc<Meter>,
}

/// A place in the queue, with its bytes.
pub(super) type Place = (OwnedSemaphorePermit, Reserved);

/// A submit with its bytes.
struct Queued {
    job: Submit,
    image: Bytes,
    input: Bytes,
    _place: Place,
    /// The time of its arrival.
    at: Instant,
    reply: oneshot::Sender<Reply>,
}

impl Jobs {
    /// Starts the queue of a worker. `ended` is called when the worker serves no more jobs.
    pub(super) fn start(
        socket: UnixStream,
        meter: Arc<Meter>,
        ended: impl FnOnce() + Send + 'static,
    ) -> Arc<Self> {
        // The places bound the queue.
        let (queue, requests) = mpsc::unbounded_channel();
        let own = meter.clone();
        tokio::spawn(async move {
            if let Err(error) = serve(socket, &own, requests).await {
                tracing::debug!(%error, "the submits of a lease ended");
                ended();
            }
        });
        let (places, inputs) = (Semaphore::new(WAITING), MemoryBudget::new(WAITING_BYTES));
        Arc::new(Self { queue, places: Arc::new(places), inputs, meter })
    }

    /// Reserves a place for a submit with an input of `bytes` bytes, before its bytes are read.
    ///
    /// # Errors
    /// The queue is full.
    pub(super) fn reserve(&self, bytes: u64) -> Result<Place, Refusal> {
        let place = self.places.clone().try_acquire_owned().ok();
        place.zip(self.inputs.try_reserve(bytes)).ok_or_else(|| {
            let text = format!(
                "the submit with {bytes} bytes of input is refused: the submits of a lease that wait or run are at most \
                 {WAITING} with {WAITING_BYTES} bytes of input; repeat it after the next reply"
            );
            (Status::CapacityExceeded, text)
        })
    }

    /// Runs a submit behind the earlier ones. Returns `None` if the worker has exited. Dropping the future does not
    /// stop the kernel.
    pub(super) async fn run(
        &self,
        job: Submit,
        image: Bytes,
        input: Bytes,
        _place: Place,
    ) -> Option<Reply> {
        self.meter.uploaded(job.input_bytes);
        let (reply, receiver) = oneshot::channel();
        self.queue.send(Queued { job, image, input, _place, at: Instant::now(), reply }).ok()?;
        let reply = receiver.await.ok()?;
        self.meter.output(reply.done.output_bytes);
        Some(reply)
    }
}

/// Runs one submit after the other, until the lease ends.
async fn serve(
    mut socket: UnixStream,
    meter: &Meter,
    mut requests: mpsc::UnboundedReceiver<Queued>,
) -> io::Result<()> {
    let outputs = MemoryBudget::new(OUTPUT_BYTES);
    loop {
        let next = async {
            let queued = requests.recv().await?;
            let bytes = queued.job.max_output.min(Submit::OUTPUT_LIMIT);
            Some((outputs.reserve(bytes).await?, queued))
        };
        let mut byte = [0];
        let next = tokio::select! {
            next = next => next,
            // Between two jobs the worker sends nothing.
            _ = socket.read(&mut byte) => return Err(io::ErrorKind::ConnectionAborted.into()),
        };
        let Some((place, queued)) = next else { return Ok(()) };
        meter.node.record(queued.at.elapsed(), |latencies| &mut latencies.submit.queue);
        let (done, output) = run(&mut socket, &queued).await?;
        meter.set_memory(done.memory);
        if done.device_nanos > 0 {
            let time = Duration::from_nanos(done.device_nanos);
            meter.node.record(time, |latencies| &mut latencies.submit.device);
        }
        _ = queued.reply.send(Reply { done, output, place });
    }
}

/// Runs a job in the worker. Returns its end and its output.
async fn run(
    socket: &mut UnixStream,
    Queued { job, image, input, .. }: &Queued,
) -> io::Result<(JobDone, Vec<u8>)> {
    send_frame(socket, Submit::OPCODE, 0, |out| job.encode(out)).await?;
    socket.write_all(input).await?;
    let mut done = read_done(socket).await?;
    if done.status == Status::NotFound {
        socket.write_u64_le(image.len() as u64).await?;
        socket.write_all(image).await?;
        done = read_done(socket).await?;
    }
    let (length, limit) = (done.output_bytes, job.max_output.min(Submit::OUTPUT_LIMIT));
    if length > limit {
        return Err(io::Error::other(WireError::TooLong { what: "an output", length, limit }));
    }
    let mut output = vec![0; length as usize];
    socket.read_exact(&mut output).await?;
    Ok((done, output))
}

async fn read_done(socket: &mut UnixStream) -> io::Result<JobDone> {
    match read_frame(socket).await? {
        (JobDone::OPCODE, body) => JobDone::decode(&body).map_err(io::Error::other),
        (opcode, _) => Err(io::Error::other(WireError::UnexpectedOpcode { opcode })),
    }
}
