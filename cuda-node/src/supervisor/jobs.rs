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
    blobs::Blobs,
    memory_budget::{MemoryBudget, Reserved},
    streams::{Refusal, read_frame, send_frame},
};
use crate::{metrics::Meter, worker::jobs::JobDone};

/// The maximum number of submits of a lease that wait or run.
const WAITING: usize = 16;

/// The maximum number of input bytes of the submits that wait or run. With images and outputs, the submits of a lease use
/// at most 384 MiB of host memory in the supervisor.
const WAITING_BYTES: u64 = 128 << 20;

/// The maximum number of bytes of images that the submits of a lease keep in memory while they wait. Images of others
/// stay as long as they are among the blobs of the tenant.
const IMAGE_BYTES: u64 = 128 << 20;

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
    images: MemoryBudget,
    meter: Arc<Meter>,
}

/// A place in the queue, with its bytes.
pub(super) type Place = (OwnedSemaphorePermit, Reserved);

/// A submit with its bytes.
struct Queued {
    job: Submit,
    /// The image, with its memory.
    image: Option<(Bytes, Reserved)>,
    input: Bytes,
    _place: Place,
    /// The time of its arrival.
    at: Instant,
    reply: oneshot::Sender<Reply>,
}

impl Jobs {
    /// Starts the queue of a worker. `blobs` has the images. `ended` is called when the worker serves no more jobs.
    pub(super) fn start(
        socket: UnixStream,
        blobs: Arc<Blobs>,
        meter: Arc<Meter>,
        ended: impl FnOnce() + Send + 'static,
    ) -> Arc<Self> {
        // The places bound the queue.
        let (queue, requests) = mpsc::unbounded_channel();
        let own = meter.clone();
        tokio::spawn(async move {
            if let Err(error) = serve(socket, &blobs, &own, requests).await {
                tracing::debug!(%error, "the submits of a lease ended");
                ended();
            }
        });
        let places = Arc::new(Semaphore::new(WAITING));
        let (inputs, images) = (MemoryBudget::new(WAITING_BYTES), MemoryBudget::new(IMAGE_BYTES));
        Arc::new(Self { queue, places, inputs, images, meter })
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

    /// Runs a submit behind the earlier ones. Returns `None` if the worker has exited. The status of the reply is
    /// [`Status::NotFound`] if the worker needs the image, and the node has dropped it meanwhile.
    /// Dropping the future does not stop the kernel.
    pub(super) async fn run(
        &self,
        job: Submit,
        image: Bytes,
        input: Bytes,
        _place: Place,
    ) -> Option<Reply> {
        self.meter.uploaded(job.input_bytes);
        let (reply, receiver) = oneshot::channel();
        let image = self.images.try_reserve(image.len() as u64).map(|memory| (image, memory));
        self.queue.send(Queued { job, image, input, _place, at: Instant::now(), reply }).ok()?;
        let reply = receiver.await.ok()?;
        self.meter.output(reply.done.output_bytes);
        Some(reply)
    }
}

/// Runs one submit after the other, until the lease ends.
async fn serve(
    mut socket: UnixStream,
    blobs: &Blobs,
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
        let (done, output) = run(&mut socket, blobs, &queued).await?;
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
    blobs: &Blobs,
    Queued { job, image, input, .. }: &Queued,
) -> io::Result<(JobDone, Vec<u8>)> {
    send_frame(socket, Submit::OPCODE, 0, |out| job.encode(out)).await?;
    socket.write_all(input).await?;
    let mut done = read_done(socket).await?;
    if done.status == Status::NotFound {
        let kept = image.as_ref().map(|(image, _)| image.clone());
        let image = kept.or_else(|| blobs.get(&job.hash));
        // Without the image the job fails.
        let bytes = image.clone().unwrap_or_default();
        socket.write_u64_le(bytes.len() as u64).await?;
        socket.write_all(&bytes).await?;
        drop(bytes);
        done = read_done(socket).await?;
        if image.is_none() {
            let (status, output_bytes) = (Status::NotFound, 0);
            return Ok((JobDone { status, output_bytes, ..done }, Vec::new()));
        }
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

#[cfg(test)]
mod tests {
    use cuda_lease::{
        authority::Tenant,
        wire::{Hash, ImageKind},
    };

    use super::*;
    use crate::{metrics::NodeMetrics, supervisor::blobs::BlobStore};

    fn job(hash: Hash) -> Submit {
        let (kernel, token) = ("k".to_owned(), Bytes::new());
        Submit {
            lease: 1,
            token,
            kind: ImageKind::Ptx,
            hash,
            image: None,
            kernel,
            grid: [1; 3],
            block: [1; 3],
            shared_bytes: 0,
            arguments: Vec::new(),
            region_bytes: 0,
            input_bytes: 0,
            output_offset: 0,
            max_output: 0,
            trace: None,
        }
    }

    /// A worker that never has an image. Returns when its socket ends.
    async fn work(mut socket: UnixStream) -> io::Result<()> {
        let done = |status| {
            let text = String::new();
            JobDone { status, text, output_bytes: 0, device_nanos: 0, memory: 0 }
        };
        loop {
            read_frame(&mut socket).await?;
            let missing = done(Status::NotFound);
            send_frame(&mut socket, JobDone::OPCODE, 0, |out| missing.encode(out)).await?;
            let bytes = socket.read_u64_le().await?;
            tokio::io::copy(&mut (&mut socket).take(bytes), &mut tokio::io::sink()).await?;
            let status = if bytes > 0 { Status::Ok } else { Status::LoadFailed };
            let done = done(status);
            send_frame(&mut socket, JobDone::OPCODE, 0, |out| done.encode(out)).await?;
        }
    }

    #[tokio::test]
    async fn images_of_submits_that_wait_are_limited() {
        let blobs = Arc::<BlobStore>::default().of(&Tenant::local());
        let meter = Arc::new(Meter::new(Arc::<NodeMetrics>::default()));
        let (socket, worker) = UnixStream::pair().unwrap();
        let jobs = Jobs::start(socket, blobs.clone(), meter, || ());
        let mut waiting = tokio::task::JoinSet::new();
        for number in 0..10 {
            let (hash, image) = ([number; 32], Bytes::from(vec![0; 60 << 20]));
            blobs.insert(hash, image.clone());
            let (jobs, place) = (jobs.clone(), jobs.reserve(0).unwrap());
            waiting.spawn(async move {
                let reply = jobs.run(job(hash), image, Bytes::new(), place).await.unwrap();
                (number, reply.done.status)
            });
            // The submit is in the queue.
            tokio::task::yield_now().await;
        }
        let worker = tokio::spawn(work(worker));
        let mut replies = waiting.join_all().await;
        replies.sort_unstable_by_key(|(number, _)| *number);
        // The first two are within the limit. The last four are still among the blobs.
        let expected = |number| match number {
            0 | 1 | 6.. => Status::Ok,
            _ => Status::NotFound,
        };
        assert!(replies.iter().all(|(number, status)| *status == expected(*number)), "{replies:?}");
        drop(jobs);
        _ = worker.await.unwrap();
    }
}
