//! The queue of stateless submits of one lease, and the task that passes them to the worker. A client whose connection
//! is lost repeats its submit with the same id, and gets the answer of the first one.

use std::{
    collections::{HashMap, VecDeque},
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use cuda_core::protocol::Status;
use cuda_lease::wire::{Submit, SubmitId, Submitted, WireError, put_frame};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch},
    task::AbortHandle,
};

use super::{
    blobs::Blobs,
    memory_budget::{MemoryBudget, Reserved},
    streams::{Refusal, make_room, read_frame, send_frame},
};
use crate::{metrics::Meter, worker::jobs::JobDone};

/// The maximum number of submits of a lease that wait or run.
const WAITING: usize = 16;

/// The maximum number of input bytes of the submits that wait or run. With images and outputs, the submits of a lease use
/// at most 384 MiB of host memory in the supervisor.
const WAITING_BYTES: u64 = 128 << 20;

/// The maximum number of bytes of images that the submits of a lease keep in memory while they wait, also for their input.
/// Images of others stay as long as they are among the blobs of the tenant.
const IMAGE_BYTES: u64 = 128 << 20;

/// The maximum number of output bytes that the clients of a lease have not acknowledged. A submit runs when its output fits.
const OUTPUT_BYTES: u64 = 128 << 20;

/// The maximum number of output bytes of the answers that are kept until their clients acknowledge them, as part of
/// [`OUTPUT_BYTES`]. The output of each counts with the size that its submit allowed.
const KEPT_BYTES: u64 = Submit::OUTPUT_LIMIT;

/// The maximum number of answers that are kept.
const KEPT: usize = 64;

/// The answer of a submit. Clones share its memory.
#[derive(Clone)]
pub(super) struct Reply {
    pub(super) status: Status,
    /// The frame for the client, with the output if that is small.
    pub(super) frame: Bytes,
    /// The output that follows the frame.
    pub(super) following: Bytes,
}

/// Bytes of an answer. Their memory counts until nothing has a part of them: neither the answers that are kept, nor `quinn`,
/// which keeps what the client has not acknowledged.
struct AnswerBytes {
    bytes: Vec<u8>,
    _place: Arc<Reserved>,
}

impl AsRef<[u8]> for AnswerBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Reply {
    /// The answer of a submit with this end and this output. `place` is the memory of the output.
    fn new(JobDone { status, text, .. }: JobDone, output: Vec<u8>, place: Reserved) -> Self {
        let is_inline = output.len() <= Submitted::INLINE_LIMIT;
        let (inline, following) =
            if is_inline { (output, Vec::new()) } else { (Vec::new(), output) };
        let following_bytes = following.len() as u64;
        let submitted = Submitted { status, text, output: inline.into(), following_bytes };
        let (mut frame, place) = (Vec::new(), Arc::new(place));
        put_frame(&mut frame, Submitted::OPCODE, 0, 0, |out| submitted.encode(out));
        let [frame, following] = [frame, following]
            .map(|bytes| Bytes::from_owner(AnswerBytes { bytes, _place: place.clone() }));
        Self { status, frame, following }
    }
}

/// The queue of a lease.
pub(super) struct Jobs {
    queue: mpsc::UnboundedSender<Queued>,
    places: Arc<Semaphore>,
    inputs: MemoryBudget,
    images: MemoryBudget,
    meter: Arc<Meter>,
    answers: Arc<Mutex<Answers>>,
    /// The task that passes the submits to the worker.
    task: AbortHandle,
}

/// The answer of a submit: `None` until it arrives.
type Answer = watch::Receiver<Option<Reply>>;

/// The answers of the submits that wait or run, and of those that their clients have not acknowledged, by their ids.
#[derive(Default)]
struct Answers {
    /// With a secret of the hash table: clients choose the ids.
    by_id: HashMap<SubmitId, Answer>,
    /// Those that have arrived, with the bytes that they allow. The oldest is the first.
    arrived: VecDeque<(SubmitId, u64)>,
}

impl Answers {
    /// Keeps an answer that has arrived, and drops the oldest ones beyond the limits.
    fn keep(&mut self, id: SubmitId, bytes: u64) {
        self.arrived.push_back((id, bytes));
        let sum =
            |arrived: &VecDeque<(_, u64)>| arrived.iter().map(|(_, bytes)| bytes).sum::<u64>();
        while self.arrived.len() > KEPT || sum(&self.arrived) > KEPT_BYTES {
            let Some((oldest, _)) = self.arrived.pop_front() else { return };
            self.by_id.remove(&oldest);
        }
    }

    fn forget(&mut self, id: &SubmitId) {
        if let Some(at) = self.arrived.iter().position(|(arrived, _)| arrived == id) {
            self.arrived.remove(at);
            self.by_id.remove(id);
        }
    }
}

/// Waits for an answer. Returns `None` if the worker has exited.
async fn arrival(mut answer: Answer) -> Option<Reply> {
    answer.wait_for(Option::is_some).await.ok()?.clone()
}

/// A place in the queue, with the memory of the input.
pub(super) struct Place {
    _submit: OwnedSemaphorePermit,
    _input: Reserved,
    /// The image, if there is memory for it.
    image: Option<(Bytes, Reserved)>,
}

/// A submit with its bytes.
struct Queued {
    job: Submit,
    input: Bytes,
    place: Place,
    /// The time of its arrival.
    at: Instant,
    reply: watch::Sender<Option<Reply>>,
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
        let (own, answers) = (meter.clone(), Arc::<Mutex<Answers>>::default());
        let kept = answers.clone();
        let task = tokio::spawn(async move {
            if let Err(error) = serve(socket, &blobs, &own, &kept, requests).await {
                tracing::debug!(%error, "the submits of a lease ended");
                ended();
            }
        });
        let places = Arc::new(Semaphore::new(WAITING));
        let (inputs, images) = (MemoryBudget::new(WAITING_BYTES), MemoryBudget::new(IMAGE_BYTES));
        let task = task.abort_handle();
        Arc::new(Self { queue, places, inputs, images, meter, answers, task })
    }

    /// Ends the queue, when its worker is killed. Submits without an answer get none. The task may wait for a worker that
    /// takes no bytes, and whose end it does not notice, because someone else has the other end of the socket.
    pub(super) fn end(&self) {
        self.task.abort();
    }

    /// Waits for the answer of an earlier submit with this id. `None` if there is none: the submit has to run. The future
    /// is ready with `None` if the worker has exited.
    pub(super) fn known(
        &self,
        id: &SubmitId,
    ) -> Option<impl Future<Output = Option<Reply>> + use<>> {
        self.answers.lock().by_id.get(id).cloned().map(arrival)
    }

    /// Forgets an answer, because its client has it.
    pub(super) fn acknowledge(&self, id: &SubmitId) {
        self.answers.lock().forget(id);
    }

    /// Reserves a place for a submit with this image and an input of `bytes` bytes, before the input is read.
    ///
    /// # Errors
    /// The queue is full.
    pub(super) fn reserve(&self, bytes: u64, image: Bytes) -> Result<Place, Refusal> {
        let submit = self.places.clone().try_acquire_owned().ok();
        let reserved = submit.zip(self.inputs.try_reserve(bytes));
        let (_submit, _input) = reserved.ok_or_else(|| {
            let text = format!(
                "the submit with {bytes} bytes of input is refused: the submits of a lease that wait or run are at most \
                 {WAITING} with {WAITING_BYTES} bytes of input; repeat it after the next reply"
            );
            (Status::CapacityExceeded, text)
        })?;
        let memory = self.images.try_reserve(image.len() as u64);
        Ok(Place { _submit, _input, image: memory.map(|memory| (image, memory)) })
    }

    /// Runs a submit behind the earlier ones, unless one with its id is known. Returns `None` if the worker has exited.
    /// The status of the reply is [`Status::NotFound`] if the worker needs the image, and the node has dropped it
    /// meanwhile. Such a reply is not kept.
    /// Dropping the future does not stop the kernel.
    pub(super) async fn run(&self, job: Submit, input: Bytes, place: Place) -> Option<Reply> {
        let answer = {
            let mut answers = self.answers.lock();
            let known = job.id.and_then(|id| answers.by_id.get(&id).cloned());
            match known {
                Some(known) => known,
                None => {
                    let (reply, answer) = watch::channel(None);
                    if let Some(id) = job.id {
                        answers.by_id.insert(id, answer.clone());
                    }
                    self.meter.uploaded(job.input_bytes);
                    let at = Instant::now();
                    self.queue.send(Queued { job, input, place, at, reply }).ok()?;
                    answer
                }
            }
        };
        arrival(answer).await
    }
}

/// Runs one submit after the other, until the lease ends.
async fn serve(
    mut socket: UnixStream,
    blobs: &Blobs,
    meter: &Meter,
    answers: &Mutex<Answers>,
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
        let begun = Instant::now();
        let (done, output) = run(&mut socket, blobs, &queued).await?;
        meter.set_memory(done.memory);
        if done.device_nanos > 0 {
            // The worker may state any time.
            let time = Duration::from_nanos(done.device_nanos).min(begun.elapsed());
            meter.node.record(time, |latencies| &mut latencies.submit.device);
        }
        meter.output(done.output_bytes);
        let status = done.status;
        let place = outputs.shrink(place, output.len() as u64);
        let reply = Reply::new(done, output, place);
        // An acknowledgement waits for the lock, so it comes after the answer is kept.
        let mut answers = answers.lock();
        // If no client waits now, one may repeat the submit.
        queued.reply.send_replace(Some(reply));
        if let Some(id) = queued.job.id {
            match status {
                // The client repeats it with the image.
                Status::NotFound => _ = answers.by_id.remove(&id),
                _ => answers.keep(id, queued.job.max_output.min(Submit::OUTPUT_LIMIT)),
            }
        }
    }
}

/// Runs a job in the worker. Returns its end and its output.
async fn run(
    socket: &mut UnixStream,
    blobs: &Blobs,
    Queued { job, input, place, .. }: &Queued,
) -> io::Result<(JobDone, Vec<u8>)> {
    send_frame(socket, Submit::OPCODE, 0, |out| job.encode(out)).await?;
    socket.write_all(input).await?;
    let mut done = read_done(socket).await?;
    if done.status == Status::NotFound {
        let kept = place.image.as_ref().map(|(image, _)| image.clone());
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
    let mut output = Vec::new();
    if let Err((status, text)) = make_room(&mut output, length as usize) {
        // The next answer of the worker follows the output.
        tokio::io::copy(&mut socket.take(length), &mut tokio::io::sink()).await?;
        return Ok((JobDone { status, text, output_bytes: 0, ..done }, output));
    }
    output.resize(length as usize, 0);
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
        wire::{HEADER_BYTES, ImageKind},
    };

    use super::*;
    use crate::{metrics::NodeMetrics, supervisor::blobs::BlobStore};

    fn blobs() -> Arc<Blobs> {
        Arc::<BlobStore>::default().of(&Tenant::local())
    }

    /// A queue, and the other end of its worker's socket.
    fn start() -> (Arc<Jobs>, UnixStream) {
        let (socket, worker) = UnixStream::pair().unwrap();
        let meter = Arc::new(Meter::new(Arc::new(NodeMetrics::default())));
        (Jobs::start(socket, blobs(), meter, || {}), worker)
    }

    fn submit(id: Option<SubmitId>, max_output: u64) -> Submit {
        Submit {
            lease: 1,
            token: Bytes::new(),
            kind: ImageKind::Ptx,
            hash: [0; 32],
            image: None,
            kernel: "k".into(),
            grid: [1; 3],
            block: [1; 3],
            shared_bytes: 0,
            arguments: Vec::new(),
            region_bytes: 0,
            input_bytes: 0,
            output_offset: 0,
            max_output,
            trace: None,
            id,
        }
    }

    impl Reply {
        /// The output of a small answer.
        fn output(&self) -> Bytes {
            Submitted::decode(&self.frame[HEADER_BYTES..]).unwrap().output
        }
    }

    /// Runs a submit. The result arrives in the task.
    fn run(jobs: &Arc<Jobs>, submit: Submit) -> tokio::task::JoinHandle<Option<Reply>> {
        let (jobs, place) = (jobs.clone(), jobs.reserve(0, Bytes::new()).unwrap());
        tokio::spawn(async move { jobs.run(submit, Bytes::new(), place).await })
    }

    /// Serves one submit with this output, as the worker does.
    async fn serve_one(worker: &mut UnixStream, output: &[u8]) {
        serve_with_time(worker, output, 1).await;
    }

    /// As [`serve_one`], for a submit that took this time.
    async fn serve_with_time(worker: &mut UnixStream, output: &[u8], device_nanos: u64) {
        assert_eq!(read_frame(worker).await.unwrap().0, Submit::OPCODE);
        let output_bytes = output.len() as u64;
        let (status, text, memory) = (Status::Ok, String::new(), 0);
        let done = JobDone { status, text, output_bytes, device_nanos, memory };
        let mut out = Vec::new();
        put_frame(&mut out, JobDone::OPCODE, 0, 0, |out| done.encode(out));
        worker.write_all(&out).await.unwrap();
        worker.write_all(output).await.unwrap();
    }

    #[tokio::test]
    async fn repeated_submit_gets_the_answer_of_the_first() {
        let (jobs, mut worker) = start();
        let id = [7; 16];
        // Its client goes while the kernel runs.
        let first = run(&jobs, submit(Some(id), 8));
        tokio::task::yield_now().await;
        assert!(jobs.known(&id).is_some());
        first.abort();
        _ = first.await;
        // Repeated while it runs, and once more when it is done.
        let second = run(&jobs, submit(Some(id), 8));
        serve_one(&mut worker, b"once").await;
        assert_eq!(second.await.unwrap().unwrap().output(), "once");
        let third = run(&jobs, submit(Some(id), 8)).await.unwrap().unwrap();
        assert_eq!(third.output(), "once");
        // After the acknowledgement it is forgotten, and the same id runs again.
        jobs.acknowledge(&id);
        assert!(jobs.known(&id).is_none());
        let fourth = run(&jobs, submit(Some(id), 8));
        serve_one(&mut worker, b"again").await;
        assert_eq!(fourth.await.unwrap().unwrap().output(), "again");
    }

    #[tokio::test]
    async fn answer_that_is_acknowledged_while_it_is_repeated_arrives() {
        let (jobs, mut worker) = start();
        let id = [7; 16];
        let first = run(&jobs, submit(Some(id), 8));
        serve_one(&mut worker, b"once").await;
        first.await.unwrap().unwrap();
        let known = jobs.known(&id).unwrap();
        jobs.acknowledge(&id);
        jobs.acknowledge(&id);
        assert_eq!(known.await.unwrap().output(), "once");
    }

    #[tokio::test]
    async fn submits_without_an_id_are_not_kept() {
        let (jobs, mut worker) = start();
        for output in ["a", "b"] {
            let submitted = run(&jobs, submit(None, 8));
            serve_one(&mut worker, output.as_bytes()).await;
            assert_eq!(submitted.await.unwrap().unwrap().output(), output);
        }
    }

    #[tokio::test]
    async fn oldest_answers_are_dropped_beyond_the_limits() {
        let (jobs, mut worker) = start();
        let id = |number: u8| [number; 16];
        // Of 20 MiB each: three fit.
        for number in 0..5 {
            let submitted = run(&jobs, submit(Some(id(number)), 20 << 20));
            serve_one(&mut worker, &[number]).await;
            submitted.await.unwrap().unwrap();
        }
        let known: Vec<_> = (0..5).map(|number| jobs.known(&id(number)).is_some()).collect();
        assert_eq!(known, [false, false, true, true, true]);
        // An output of the largest size fits alone.
        let submitted = run(&jobs, submit(Some(id(5)), 64 << 20));
        serve_one(&mut worker, b"x").await;
        submitted.await.unwrap().unwrap();
        let known: Vec<_> = (0..6).map(|number| jobs.known(&id(number)).is_some()).collect();
        assert_eq!(known, [false, false, false, false, false, true]);
        // Their number is limited too.
        for number in 0..=KEPT as u8 {
            let submitted = run(&jobs, submit(Some(id(100 + number)), 0));
            serve_one(&mut worker, b"").await;
            submitted.await.unwrap().unwrap();
        }
        assert!(jobs.known(&id(100)).is_none() && jobs.known(&id(101)).is_some());
    }

    /// `quinn` keeps the bytes until the client has acknowledged them, and a part keeps all memory.
    #[tokio::test]
    async fn output_counts_until_nothing_has_a_part_of_it() {
        let (jobs, mut worker) = start();
        let mut parts = Vec::new();
        // Of what the first two submits may return, little stays reserved.
        for length in [1 << 20, 1 << 20, 64 << 20] {
            let submitted = run(&jobs, submit(None, 64 << 20));
            serve_one(&mut worker, &vec![1; length]).await;
            let mut output = submitted.await.unwrap().unwrap().following;
            parts.push(output.split_off(length - 1));
        }
        let third = run(&jobs, submit(None, 64 << 20));
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let runs = worker.try_read(&mut [0]).is_ok();
        assert!(!runs, "the third submit runs although the outputs of the others are in memory");
        drop(parts);
        serve_one(&mut worker, b"third").await;
        assert_eq!(third.await.unwrap().unwrap().output(), "third");
    }

    #[tokio::test]
    async fn repeated_submit_of_a_worker_that_has_ended_has_no_answer() {
        let (jobs, worker) = start();
        let first = run(&jobs, submit(Some([7; 16]), 8));
        tokio::task::yield_now().await;
        let second = jobs.known(&[7; 16]).unwrap();
        drop(worker);
        assert!(first.await.unwrap().is_none());
        assert!(second.await.is_none());
    }

    #[tokio::test]
    async fn end_of_the_queue_ends_a_submit_that_nobody_takes() {
        let (jobs, mut worker) = start();
        // More than the socket takes.
        let input = Bytes::from(vec![0; 16 << 20]);
        let place = jobs.reserve(input.len() as u64, Bytes::new()).unwrap();
        let job = Submit { input_bytes: input.len() as u64, ..submit(None, 0) };
        let own = jobs.clone();
        let first = tokio::spawn(async move { own.run(job, input, place).await });
        let second = run(&jobs, submit(None, 0));
        assert_eq!(read_frame(&mut worker).await.unwrap().0, Submit::OPCODE);
        jobs.end();
        let ends = async { (first.await.unwrap(), second.await.unwrap()) };
        let ends = tokio::time::timeout(Duration::from_secs(30), ends).await;
        assert!(matches!(ends.expect("the submits wait"), (None, None)));
        worker.read_to_end(&mut Vec::new()).await.unwrap();
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
        let blobs = blobs();
        let meter = Arc::new(Meter::new(Arc::<NodeMetrics>::default()));
        let (socket, worker) = UnixStream::pair().unwrap();
        let jobs = Jobs::start(socket, blobs.clone(), meter, || ());
        let mut waiting = tokio::task::JoinSet::new();
        for number in 0..10 {
            let (hash, image) = ([number; 32], Bytes::from(vec![0; 60 << 20]));
            blobs.insert(hash, image.clone());
            let (jobs, place) = (jobs.clone(), jobs.reserve(0, image).unwrap());
            waiting.spawn(async move {
                let job = Submit { hash, ..submit(Some([number; 16]), 0) };
                let reply = jobs.run(job, Bytes::new(), place).await.unwrap();
                (number, reply.status)
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

    #[test]
    fn collisions_of_ids_cannot_be_foreseen() {
        use std::hash::BuildHasher;
        let hashed = || Answers::default().by_id.hasher().hash_one([1; 16]);
        assert_ne!(hashed(), hashed());
    }

    /// Otherwise one answer of a hostile worker hides the times of all other leases.
    #[tokio::test]
    async fn device_time_of_a_submit_is_at_most_its_own_time() {
        let (jobs, mut worker) = start();
        let started = Instant::now();
        let submitted = run(&jobs, submit(None, 8));
        serve_with_time(&mut worker, b"x", u64::MAX).await;
        submitted.await.unwrap().unwrap();
        let device = jobs.meter.node.latencies().submit.device;
        assert_eq!(device.count(), 1);
        assert!(device.sum() <= started.elapsed().as_secs_f64(), "{} s", device.sum());
    }
}
