//! Stateless submits: one kernel, its input and its output in one round trip.
//!
//! A [`Job`] describes the kernel. A [`Submit`] is a job that has a lease, and runs. Its frames travel on a stream of
//! the connection that the [`Channel`] keeps. A submit uses the connection of the lease, and no session.

use std::{
    fmt,
    sync::{Arc, mpsc::sync_channel},
    thread::{self, ThreadId},
};

use bytes::Bytes;
use cuda_core::{Element, Error, LaunchConfig, Limit, Misuse, Quantity, Result, protocol::Status};
use quinn::{SendStream, WriteError};
use tokio::{runtime::Handle, sync::watch};
use tracing::Instrument;

use super::{
    end::{End, Refusal},
    random::random,
    spans,
    streams::{next_reply, put_blob},
};
use crate::wire::{self, FrameBuffer, ImageKind, TraceContext, WireError, put_frame};

/// The bytes of an input between two reports of its progress.
const REPORTED: usize = 256 << 10;

/// A kernel with its launch shape, its arguments and its input, as a [`Submit`] sends them.
///
/// The kernel's first parameter is a pointer to the *region*, device memory of the lease. The other parameters are the
/// arguments of the job, in order. Before the launch, the node writes the input to the start of the region and zeros to
/// the rest. After the launch, it reads the output from the region. The output therefore depends only on the job, and a
/// job can be repeated.
///
/// `L` is the lease that runs the job. A job without one can be built before there is a lease, and cloned for several.
#[derive(Clone)]
#[must_use = "a job does nothing until it is launched"]
pub struct Job<L = ()> {
    payload: Payload,
    lease: L,
}

/// The request of a job, and the bytes that travel beside it.
#[derive(Clone)]
struct Payload {
    /// The request, without the token, the image and the number of input bytes. It has no lease until the job has one.
    request: wire::Submit,
    image: Bytes,
    input: Bytes,
    /// Returns the token of the lease at the time of a request: a renewal, or a new key, replaces it while a job waits or
    /// runs.
    token: Arc<dyn Fn() -> Bytes + Send + Sync>,
    /// The callback that counts the sent bytes of the input.
    progress: Option<Arc<dyn Fn(u64) + Send + Sync>>,
}

impl Job {
    /// Creates a job of a kernel of a PTX text: one thread, no arguments, no input, no output.
    pub fn new(kernel: impl Into<String>, ptx: impl Into<String>) -> Self {
        Self::with_image(kernel.into(), ImageKind::Ptx, ptx.into().into())
    }

    /// Creates a job of a kernel of a cubin or a fatbin.
    pub fn from_cubin(kernel: impl Into<String>, image: impl Into<Bytes>) -> Self {
        Self::with_image(kernel.into(), ImageKind::Cubin, image.into())
    }

    fn with_image(kernel: String, kind: ImageKind, image: Bytes) -> Self {
        let request = wire::Submit {
            lease: 0,
            token: Bytes::new(),
            kind,
            hash: *blake3::hash(&image).as_bytes(),
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
            id: None,
        };
        let (input, token, progress) = (Bytes::new(), Arc::new(Bytes::new), None);
        Self { payload: Payload { request, image, input, token, progress }, lease: () }
    }
}

impl<L> Job<L> {
    /// Sets the number of blocks of a one-dimensional launch. The default is 1.
    pub fn grid(mut self, blocks: u32) -> Self {
        self.payload.request.grid = [blocks, 1, 1];
        self
    }

    /// Sets the number of threads of a block of a one-dimensional launch. The default is 1.
    pub fn block(mut self, threads: u32) -> Self {
        self.payload.request.block = [threads, 1, 1];
        self
    }

    /// Sets the whole shape of the launch.
    pub fn config(mut self, config: LaunchConfig) -> Self {
        let request = &mut self.payload.request;
        (request.grid, request.block) = (config.grid, config.block);
        self.shared_bytes(config.shared_bytes)
    }

    /// Sets the dynamic shared memory of a block in bytes.
    pub fn shared_bytes(mut self, bytes: u32) -> Self {
        self.payload.request.shared_bytes = bytes;
        self
    }

    /// Adds an argument behind the pointer of the region.
    pub fn arg<T: Element>(self, value: &T) -> Self {
        self.arg_bytes(bytemuck::bytes_of(value))
    }

    /// Adds the bytes of an argument, such as a struct that is passed by value.
    pub fn arg_bytes(mut self, bytes: &[u8]) -> Self {
        self.payload.request.arguments.push(Bytes::copy_from_slice(bytes));
        self
    }

    /// Sets the input: the values that the node writes to the start of the region before the launch. At most 64 MiB.
    pub fn input<T: Element>(self, values: &[T]) -> Self {
        self.input_bytes(Bytes::copy_from_slice(bytemuck::cast_slice(values)))
    }

    /// Sets the input as [`input`](Self::input) does, from bytes, without a copy.
    pub fn input_bytes(mut self, bytes: impl Into<Bytes>) -> Self {
        self.payload.input = bytes.into();
        self
    }

    /// Returns the number of bytes of the input.
    pub fn input_len(&self) -> usize {
        self.payload.input.len()
    }

    /// Sets the size of the region in bytes. The default, 0, is the smallest region that holds input and output. A
    /// kernel that needs more memory of its own needs a larger one, up to the quota of the lease minus the memory of
    /// its session.
    pub fn region_bytes(mut self, bytes: u64) -> Self {
        self.payload.request.region_bytes = bytes;
        self
    }

    /// Sets the offset of the output in the region, in bytes. The default is 0.
    pub fn output_offset(mut self, bytes: u64) -> Self {
        self.payload.request.output_offset = bytes;
        self
    }

    /// Sets the maximum number of bytes of the output, at most 64 MiB. The output is shorter if the region ends before.
    /// The default is 0: no output.
    pub fn max_output(mut self, bytes: u64) -> Self {
        self.payload.request.max_output = bytes;
        self
    }

    /// Sets a callback that is called with the number of bytes of the input that were sent so far. It runs on the
    /// thread of the connection and must return quickly: it delays the renewal and all other traffic of the lease. If
    /// the callback panics, the submit fails. If the client sends the job again, the number starts at 0 again.
    pub fn on_sent(mut self, progress: impl Fn(u64) + Send + Sync + 'static) -> Self {
        self.payload.progress = Some(Arc::new(progress));
        self
    }

    /// Sets the span that the submit belongs to, in a trace of the program. Each submit gets a span of its own in that
    /// trace. By default the submit belongs to the span of its lease.
    pub fn trace_parent(mut self, parent: TraceContext) -> Self {
        self.payload.request.trace = Some(parent);
        self
    }
}

impl<L> fmt::Debug for Job<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wire::Submit { lease, kernel, grid, block, arguments, .. } = &self.payload.request;
        // The token is a secret.
        f.debug_struct("Job")
            .field("lease", lease)
            .field("kernel", kernel)
            .field("grid", grid)
            .field("block", block)
            .field("arguments", arguments)
            .finish_non_exhaustive()
    }
}

/// A stateless submit: a [`Job`] with the lease that runs it. [`Lease::submit`](crate::Lease::submit) makes one.
pub type Submit<'a> = Job<&'a Channel>;

/// The result of a stateless submit.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Submitted {
    /// The status of the run: always [`Status::Ok`], because the call returns every other status as an error.
    pub exit_code: Status,
    /// The bytes of the region from the output offset on.
    pub output: Bytes,
    /// The text that the kernel printed. On a GPU it is empty: the driver writes such text to the output of the worker,
    /// which the node logs.
    pub text: String,
}

impl Submitted {
    /// Returns the output as values of a type.
    ///
    /// ```
    /// # use cuda_lease::Submitted;
    /// # fn of(submitted: Submitted) -> cuda_core::Result<()> {
    /// let sums: Vec<f32> = submitted.output_as()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if the number of bytes is not a multiple of the size of `T`.
    pub fn output_as<T: Element>(&self) -> Result<Vec<T>> {
        let (length, size) = (self.output.len() as u64, size_of::<T>() as u64);
        Limit::MultipleOf(size).check("the output of a submit", Quantity::Bytes, length)?;
        Ok(bytemuck::pod_collect_to_vec(&self.output))
    }
}

impl Job {
    /// Returns the job with the lease that runs it. `token` returns the token of the lease. `trace` is the span that it
    /// belongs to if the job states none.
    pub(crate) fn with_lease(
        self,
        channel: &Channel,
        lease: u64,
        token: impl Fn() -> Bytes + Send + Sync + 'static,
        trace: Option<TraceContext>,
    ) -> Submit<'_> {
        let mut payload = Payload { token: Arc::new(token), ..self.payload };
        let request = &mut payload.request;
        (request.lease, request.trace) = (lease, request.trace.or(trace));
        Job { payload, lease: channel }
    }
}

impl Submit<'_> {
    /// Runs the kernel, and blocks the calling thread until its output has arrived.
    ///
    /// The submit names the image by its hash. If the node does not have the image, the client sends it, which takes
    /// one more round trip. The submits of a lease run one after the other. If the connection is lost, the job is
    /// repeated on the next one.
    ///
    /// # Errors
    /// [`Error::Remote`] with the status of the node: `BadRequest` for an input above its
    /// limit, `LoadFailed` with the compiler's log, `LaunchFailed` (launch shape, arguments, faults), `WriteFailed` for
    /// an input that lies outside the region, `ReadFailed` for an output that lies outside it or is above its limit,
    /// `CapacityExceeded` if the region exceeds the free memory of the lease or too many submits wait, or the status
    /// with which the lease ended (`LeaseExpired`, `Revoked` and so on).
    /// [`Error::Disconnected`] if the connection is lost and not resumed. [`Error::Misuse`] inside a waker of the leased
    /// device.
    pub fn launch_blocking(self) -> Result<Submitted> {
        self.lease.check()?;
        self.lease.wait(perform(self.lease.clone(), self.payload)?)?
    }

    /// Runs the kernel on any executor, without blocking the calling thread. The job is sent at the first poll.
    /// Dropping the future does not stop the kernel.
    ///
    /// # Errors
    /// The errors of [`launch_blocking`](Self::launch_blocking).
    pub async fn launch(self) -> Result<Submitted> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let work = perform(self.lease.clone(), self.payload)?;
        self.lease.check()?;
        self.lease.spawn(work, move |submitted| _ = sender.send(submitted));
        receiver.await.unwrap_or_else(|_| Err(self.lease.ended(true)))
    }
}

/// Runs a job in a span of its own, whose parent is the current span.
///
/// # Errors
/// The operating system gives no random numbers for the ids of the span and of the submit.
fn perform(
    channel: Channel,
    mut job: Payload,
) -> Result<impl Future<Output = Result<Submitted>> + Send + 'static> {
    let trace = spans::next(job.request.trace)?;
    job.request.trace = Some(trace);
    // A job that is repeated on the next connection has the same id.
    job.request.id = Some(random()?);
    let span = spans::submit(&trace, &channel.address, job.request.lease);
    Ok(repeat(channel, job).instrument(span))
}

/// Runs a job. Repeats it on the next connection if one is lost.
async fn repeat(mut channel: Channel, job: Payload) -> Result<Submitted> {
    let mut may_have_run = false;
    loop {
        let connection = channel.next(may_have_run).await?;
        match attempt(&connection, &channel.images, &job, &mut may_have_run).await {
            Ok(Ok(wire::Submitted { status: Status::Ok, text, output, .. })) => {
                return Ok(Submitted { exit_code: Status::Ok, output, text });
            }
            Ok(Ok(wire::Submitted { status, text, .. })) => {
                return Err(channel.refused((status, text)));
            }
            Ok(Err(refused)) => return Err(channel.refused(refused)),
            Err(End::Lost(cause)) => {
                if connection.close_reason().is_none() {
                    let detail = format!("the node ended the stream of the submit: {cause}");
                    return Err(channel.refused((Status::Internal, detail)));
                }
                tracing::debug!(cause, "a submit is repeated on the next connection");
            }
            Err(End::Refused(status, detail) | End::Full(status, detail)) => {
                return Err(channel.refused((status, detail)));
            }
            Err(End::Broken(error)) => {
                let detail = format!("the node broke the protocol: {error}");
                return Err(channel.refused((Status::Internal, detail)));
            }
            Err(End::Stopped(cause)) => {
                let address = channel.address.clone();
                return Err(Error::Disconnected { address, cause, may_have_run });
            }
            Err(End::Closed) => return Err(channel.ended(may_have_run)),
        }
    }
}

/// The maximum number of times that a job is sent with its image. Images of other submits may take its place at the node
/// before the job runs.
const IMAGE_SENDS: usize = 4;

/// Sends the job by the hash of its image, and again with the image while the node does not have it. A job that got this
/// answer has not run, and the node keeps no answer for its id. Sets `may_have_run` while the node may have the job.
/// `images` is locked while a large image travels.
async fn attempt(
    connection: &quinn::Connection,
    images: &tokio::sync::Mutex<()>,
    job: &Payload,
    may_have_run: &mut bool,
) -> Result<Result<wire::Submitted, Refusal>, End> {
    // A repeated job may have run on an earlier connection.
    let had_run = *may_have_run;
    let mut answer = send(connection, job, None, may_have_run).await?;
    for _ in 0..IMAGE_SENDS {
        if !matches!(answer, Err((Status::NotFound, _))) {
            break;
        }
        *may_have_run = had_run;
        let mut image = Some(job.image.clone());
        if job.image.len() > wire::Submit::IMAGE_LIMIT {
            let wire::Submit { lease, hash, .. } = &job.request;
            let put = async {
                let _only = images.lock().await;
                put_blob(connection, *lease, (job.token)(), *hash, job.image.clone()).await
            };
            if let Err(refused) = put.await? {
                return Ok(Err(refused));
            }
            image = None;
        }
        answer = send(connection, job, image, may_have_run).await?;
    }
    Ok(answer)
}

async fn send(
    connection: &quinn::Connection,
    job: &Payload,
    image: Option<Bytes>,
    may_have_run: &mut bool,
) -> Result<Result<wire::Submitted, Refusal>, End> {
    let input_bytes = job.input.len() as u64;
    let (mut send, mut receive) = connection.open_bi().await?;
    let submit = wire::Submit { image, input_bytes, token: (job.token)(), ..job.request.clone() };
    let mut out = Vec::new();
    put_frame(&mut out, wire::Submit::OPCODE, 0, 0, |out| submit.encode(out));
    if out.len() > wire::HEADER_BYTES + wire::FRAME_LIMIT as usize {
        let (length, limit) = (out.len() as u64, wire::FRAME_LIMIT.into());
        return Err(
            WireError::TooLong { what: "a submit with its arguments", length, limit }.into()
        );
    }
    *may_have_run = true;
    // A node that refuses stops the stream, and its reply has the reason.
    if send.write_all(&out).await.is_ok() && send_input(&mut send, job).await.is_ok() {
        _ = send.finish();
    }
    let mut buffer = FrameBuffer::default();
    let reply = next_reply(&mut receive, &mut buffer).await?;
    let reply = reply.ok_or(WireError::Truncated { missing: 1 })?;
    let body = match reply.to(wire::Submit::OPCODE)? {
        Ok(body) => body,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let mut submitted = wire::Submitted::decode(&body)?;
    let (length, inline) = (submitted.following_bytes, submitted.output.len() as u64);
    let limit = job.request.max_output.min(wire::Submit::OUTPUT_LIMIT);
    if length.max(inline) > limit {
        let length = length.max(inline);
        return Err(WireError::TooLong { what: "an output", length, limit }.into());
    }
    if length > 0 {
        let buffered = buffer.buffer();
        let mut output = buffered.split_to(buffered.len().min(length as usize)).to_vec();
        while output.len() < length as usize {
            let missing = length as usize - output.len();
            let chunk = receive.read_chunk(missing, true).await?;
            output.extend_from_slice(&chunk.ok_or(WireError::Truncated { missing })?.bytes);
        }
        submitted.output = output.into();
    }
    Ok(Ok(submitted))
}

/// Sends the input behind the frame.
async fn send_input(send: &mut SendStream, job: &Payload) -> std::result::Result<(), WriteError> {
    let Some(progress) = &job.progress else { return send.write_chunk(job.input.clone()).await };
    let (mut input, mut sent) = (job.input.clone(), 0);
    progress(sent);
    while !input.is_empty() {
        let part = input.split_to(input.len().min(REPORTED));
        let length = part.len() as u64;
        send.write_chunk(part).await?;
        sent += length;
        progress(sent);
    }
    Ok(())
}

/// The current connection, the reason for which no further one comes, or `None` before the first one.
pub(crate) type Current = Option<Result<quinn::Connection, String>>;

/// The current connection to a node, and the runtime of its thread.
#[derive(Clone)]
pub struct Channel {
    /// The address of the node as the user wrote it.
    address: String,
    runtime: Handle,
    /// The thread of that runtime.
    thread: ThreadId,
    connections: watch::Receiver<Current>,
    /// Images travel one after the other. Several that wait for memory of the node would use the whole flow-control
    /// window of the connection, and everything else would wait too.
    images: Arc<tokio::sync::Mutex<()>>,
}

impl Channel {
    /// Creates a channel on the runtime and the thread that call this, and the sender of its connections.
    pub(crate) fn new(address: String) -> (Self, watch::Sender<Current>) {
        let (sender, connections) = watch::channel(None);
        let (runtime, thread) = (Handle::current(), thread::current().id());
        (Self { address, runtime, thread, connections, images: Arc::default() }, sender)
    }

    /// Waits for a connection that this value has not returned before. `may_have_run` is for the error.
    ///
    /// # Errors
    /// No further connection comes.
    async fn next(&mut self, may_have_run: bool) -> Result<quinn::Connection, Error> {
        loop {
            let current = self.connections.borrow_and_update().clone();
            match current {
                Some(Ok(connection)) if connection.close_reason().is_none() => {
                    return Ok(connection);
                }
                Some(Err(_)) => return Err(self.ended(may_have_run)),
                _ => {}
            }
            self.connections.changed().await.map_err(|_| self.ended(may_have_run))?;
        }
    }

    /// Starts `work` on the thread of the connection. The result arrives in `reply`.
    fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
        reply: impl FnOnce(T) + Send + 'static,
    ) {
        // If the runtime has ended, the task is dropped, and `reply` with it.
        self.runtime.spawn(async move { reply(work.await) });
    }

    /// Runs `work` on the thread of the connection, and blocks the calling thread until it is done. Unlike
    /// `blocking_recv` it does not panic inside of another runtime.
    ///
    /// # Errors
    /// The connection has ended. [`Error::Misuse`] on the thread of the connection, as inside a waker.
    pub(crate) fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Error> {
        self.check_thread()?;
        let (sender, receiver) = sync_channel(1);
        self.spawn(work, move |result| _ = sender.send(result));
        receiver.recv().map_err(|_| self.ended(true))
    }

    /// The thread of the connection.
    pub(crate) const fn thread(&self) -> ThreadId {
        self.thread
    }

    /// Checks that the calling thread is not the thread of the connection, which must not wait for itself.
    ///
    /// # Errors
    /// [`Error::Misuse`] on the thread of the connection.
    pub(crate) fn check_thread(&self) -> Result<(), Error> {
        if thread::current().id() == self.thread {
            return Err(Misuse::BlockingWaker.into());
        }
        Ok(())
    }

    /// # Errors
    /// No further connection comes, so a request does not run.
    fn check(&self) -> Result<(), Error> {
        let has_ended = matches!(&*self.connections.borrow(), Some(Err(_)));
        if has_ended { Err(self.ended(false)) } else { Ok(()) }
    }

    /// The error of a request after the end of the last connection.
    pub(crate) fn ended(&self, may_have_run: bool) -> Error {
        let cause = match &*self.connections.borrow() {
            Some(Err(cause)) => cause.clone(),
            _ => "the connection to the node has ended".into(),
        };
        Error::Disconnected { address: self.address.clone(), cause, may_have_run }
    }

    pub(crate) fn refused(&self, (status, detail): (cuda_core::protocol::Status, String)) -> Error {
        Error::Remote { address: self.address.clone(), status, detail }
    }
}
