//! A lane of a session, on the node: frames between connections, which come and go, and the worker.
//!
//! The worker numbers the events, acknowledges commands, and keeps events until the client has acknowledged them. The
//! lane passes frames on, and decides when commands reach the worker. Its own events have the number 0: a client gets
//! them once on each connection.

use std::{
    num::NonZeroU32,
    ops::RangeInclusive,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use bytes::{Bytes, BytesMut};
use cuda_lease::{
    session::SessionError,
    wire::{
        Ack, Attached, Event, Frame, FrameBuffer, Frames, WireError, complete_frames, put_frame,
    },
};
use parking_lot::Mutex;
use quinn::SendStream;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::unix::{OwnedReadHalf, OwnedWriteHalf},
    sync::{Notify, mpsc, oneshot, watch},
};

use super::drain_time::DrainTime;
use crate::{
    supervisor::{
        memory_budget::{MemoryBudget, Reserved},
        rate::Rate,
        streams::{End, FrameStream, send_bytes, send_reply},
    },
    worker::{Resume, Resumed},
};

/// The bytes that a read of the worker's socket makes room for.
const READ: usize = 256 << 10;

/// Batches for the client that have less than this part of their buffer are copied. `quinn` counts the bytes of a batch,
/// and keeps all of its buffer until the client has acknowledged them. In front of them a hostile worker may have written
/// frames for the supervisor.
const SMALL_PART: usize = 4;

/// The maximum number of batches of frames that wait for the worker, and of those that wait for the client. Each has at
/// most 256 KiB and a frame.
const BATCHES: usize = 32;

/// The maximum memory of the batches that wait for the worker, and of those that wait for the client, in bytes. Both may send
/// the largest frames.
pub(super) const BATCH_BYTES: u64 = (BATCHES * READ) as u64;

/// The same for the batches to the worker of a session that takes turns: the request for the turn waits behind them, and
/// commands cost the worker time.
pub(super) const BATCH_BYTES_IN_TURNS: u64 = READ as u64;

/// The connections of a lane per second, after a burst of [`CONNECTIONS`]. Each one makes the worker send everything again
/// that the client has not acknowledged.
const CONNECTIONS_PER_SECOND: u32 = 2;

/// The largest burst of connections of a lane: a client with a bad network connects again at once.
const CONNECTIONS: u32 = 16;

/// The maximum number of bytes of own events that wait.
const OWN_EVENTS: usize = 4 << 20;

/// The frames of a worker per second that no client gets, after a burst of [`UNSENT`]: those for the supervisor, and those
/// that arrive without a connection. Each KiB of them counts as a frame more. The worker waits meanwhile: nothing else
/// limits what a hostile one writes, and the supervisor has few threads.
const UNSENT_PER_SECOND: u32 = 32 << 10;

/// The largest burst of such frames: the events and downloads of a client whose connection was lost have fewer.
const UNSENT: u32 = 256 << 10;

/// One lane of a session.
pub(super) struct Lane {
    /// The epoch of the session.
    epoch: u32,
    /// The opcodes that the client may send here.
    opcodes: RangeInclusive<u16>,
    client: Mutex<Client>,
    /// Own events were added.
    filled: Notify,
    /// Counts connections. A task stops when a later connection has attached the lane.
    attached: watch::Sender<u64>,
    /// Locked by the task that serves the lane on the current connection. The rate of connections.
    serving: tokio::sync::Mutex<Rate>,
    to_worker: Batches,
    /// The number of the last frame that was passed to the worker.
    passed: AtomicU64,
    admission: watch::Sender<Admission>,
    /// Frames have arrived while the session is paused, or those that waited have passed or are gone.
    waits: Notify,
    /// Whether frames wait because the session is paused. Until they have passed: a session that has the turn, no work and
    /// no frames that wait gives the turn back.
    is_waiting: AtomicBool,
    /// The rate of the worker's frames that no client gets.
    unsent: Rate,
}

/// The current connection of the client.
#[derive(Default)]
struct Client {
    /// Takes the answer of the worker to `Resume`. Until then, its frames are those of an earlier connection.
    resumed: Option<oneshot::Sender<Resumed>>,
    /// Takes the frames of the worker.
    frames: Option<Batches>,
    /// Own events that were not sent.
    own: Vec<u8>,
    /// Too many own events waited.
    has_overflowed: bool,
    /// Whether the worker has exited.
    is_over: bool,
}

/// Frames, with their memory.
pub(super) type Batch = (Bytes, Reserved);

/// A queue of batches of frames.
#[derive(Clone)]
struct Batches {
    sender: mpsc::Sender<Batch>,
    memory: MemoryBudget,
}

/// A place in a queue of batches.
struct Place<'a> {
    permit: mpsc::Permit<'a, Batch>,
    memory: Reserved,
}

impl Batches {
    fn new(bytes: u64) -> (Self, mpsc::Receiver<Batch>) {
        let (sender, receiver) = mpsc::channel(BATCHES);
        (Self { sender, memory: MemoryBudget::new(bytes) }, receiver)
    }

    /// Waits for a place for a batch that keeps this number of bytes. Returns `None` if the receiver is dropped.
    async fn reserve(&self, bytes: usize) -> Option<Place<'_>> {
        let memory = self.memory.reserve(bytes as u64).await?;
        let permit = self.sender.reserve().await.ok()?;
        Some(Place { permit, memory })
    }
}

impl Place<'_> {
    fn send(self, frames: Bytes) {
        self.permit.send((frames, self.memory));
    }
}

/// Whether frames reach the worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admission {
    Open,
    /// They wait.
    Paused,
    /// They are discarded: the lease ends.
    Closed,
}

/// The cost of frames of a worker that no client gets, in the unit of [`UNSENT`].
fn cost(frames: u32, bytes: usize) -> u32 {
    frames + (bytes >> 10) as u32
}

impl Lane {
    /// Creates a lane, and the receiver of its frames for the worker, of which at most `bytes` bytes wait.
    pub(super) fn new(
        epoch: u32,
        opcodes: RangeInclusive<u16>,
        bytes: u64,
    ) -> (Self, mpsc::Receiver<Batch>) {
        let (to_worker, receiver) = Batches::new(bytes);
        let lane = Self {
            epoch,
            opcodes,
            client: Mutex::default(),
            filled: Notify::new(),
            attached: watch::Sender::new(0),
            serving: tokio::sync::Mutex::new(Rate::with_burst(CONNECTIONS_PER_SECOND, CONNECTIONS)),
            to_worker,
            passed: AtomicU64::new(0),
            admission: watch::Sender::new(Admission::Open),
            waits: Notify::new(),
            is_waiting: AtomicBool::new(false),
            unsent: Rate::with_burst(UNSENT_PER_SECOND, UNSENT),
        };
        (lane, receiver)
    }

    /// Sends an own event to the client that is connected. A client that can cause events again and again loses its
    /// connection if it takes none.
    pub(super) fn push(&self, event: &Event) {
        let mut client = self.client.lock();
        if client.own.len() > OWN_EVENTS {
            client.has_overflowed = true;
        } else {
            put_frame(&mut client.own, event.opcode(), self.epoch, 0, |out| event.encode(out));
        }
        drop(client);
        self.filled.notify_one();
    }

    /// Sends the first bytes to the worker.
    pub(super) fn send_first(&self, frames: Bytes) {
        // The queue has room, and its receiver lives.
        let memory = self.to_worker.memory.try_reserve(frames.len() as u64);
        _ = memory.map(|memory| self.to_worker.sender.try_send((frames, memory)));
    }

    /// Sends bytes to the worker. Returns `false` if it has exited.
    pub(super) async fn send_to_worker(&self, frames: Bytes) -> bool {
        let place = self.to_worker.reserve(frames.len()).await;
        place.map(|place| place.send(frames)).is_some()
    }

    /// Discards the frames that arrive from now on.
    pub(super) fn stop_admission(&self) {
        self.admission.send_replace(Admission::Closed);
    }

    /// Passes frames to the worker, or lets them wait.
    pub(super) fn set_running(&self, is_running: bool) {
        self.admission.send_if_modified(|admission| {
            let wanted = if is_running { Admission::Open } else { Admission::Paused };
            let is_change = *admission != Admission::Closed && *admission != wanted;
            if is_change {
                *admission = wanted;
            }
            is_change
        });
    }

    /// Passes frames of the worker on, until its socket ends. `take` takes frames that are not for the client.
    pub(super) async fn read_worker(
        &self,
        mut socket: OwnedReadHalf,
        mut take: impl FnMut(&Frame<'_>) -> bool,
    ) {
        let (mut buffer, mut capacity) = (FrameBuffer::default(), 0);
        loop {
            let bytes = buffer.buffer();
            if !bytes.try_reclaim(READ) {
                // `reserve` could double the capacity.
                let mut larger = BytesMut::with_capacity(bytes.len() + READ);
                larger.extend_from_slice(bytes);
                *bytes = larger;
                capacity = bytes.capacity();
            }
            match socket.read_buf(bytes).await {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
            match buffer.take() {
                Ok(frames) => self.forward(&frames, capacity, &mut take).await,
                Err(error) => {
                    tracing::error!(%error, "a worker broke the protocol");
                    break;
                }
            }
        }
        let mut client = self.client.lock();
        client.is_over = true;
        // A connection that waits for the answer of the worker goes on without one.
        client.resumed = None;
    }

    /// Passes frames of the worker to the client that is connected. Their buffer has this capacity.
    async fn forward(
        &self,
        frames: &Frames,
        capacity: usize,
        take: &mut impl FnMut(&Frame<'_>) -> bool,
    ) {
        // Usually all frames are for the client, and nothing is copied.
        let bytes = frames.bytes();
        let (mut start, mut at, mut count, mut unsent) = (0, 0, 0, 0);
        for frame in frames.iter() {
            let is_resumed = frame.header.opcode == Resumed::OPCODE;
            if is_resumed || take(&frame) {
                unsent += self.send(bytes.slice(start..at), count, capacity).await;
                unsent += cost(1, frame.bytes.len());
                (start, count) = (at + frame.bytes.len(), 0);
            } else {
                count += 1;
            }
            if is_resumed && let Ok(resumed) = Resumed::decode(frame.body) {
                let waiting = self.client.lock().resumed.take();
                // Without a receiver, a later connection waits for a later answer.
                waiting.map(|waiting| waiting.send(resumed));
            }
            at += frame.bytes.len();
        }
        unsent += self.send(bytes.slice(start..), count, capacity).await;
        if let Some(unsent) = NonZeroU32::new(unsent) {
            self.unsent.wait(unsent).await;
            // Also within a burst, other tasks do not wait for many reads.
            tokio::task::yield_now().await;
        }
    }

    /// Sends `count` frames of the worker to the client. Without a connection they are dropped, because the next one gets
    /// them again. Returns the [`cost`] of those that were dropped.
    async fn send(&self, frames: Bytes, count: u32, capacity: usize) -> u32 {
        if frames.is_empty() {
            return 0;
        }
        let dropped = cost(count, frames.len());
        let to_client = {
            let client = self.client.lock();
            client.frames.clone().filter(|_| client.resumed.is_none())
        };
        let Some(batches) = to_client else { return dropped };
        let is_small = frames.len() < capacity / SMALL_PART;
        let (frames, bytes) = match is_small {
            true => (Bytes::copy_from_slice(&frames), frames.len()),
            false => (frames, capacity),
        };
        // A connection that has ended takes no more.
        let Some(place) = batches.reserve(bytes).await else { return dropped };
        place.send(frames);
        0
    }

    /// Serves the lane on one connection, until that ends or a later connection attaches the lane. `time` limits the
    /// time for which frames wait for the client. `own` are the own events that a new connection gets. `seen` gets the
    /// frames that were passed to the worker, with the number of the last frame before them.
    pub(super) async fn serve(
        &self,
        mut send: SendStream,
        mut receive: FrameStream,
        resume: Option<u64>,
        time: &DrainTime,
        own: impl FnOnce() -> Vec<Event>,
        mut seen: impl FnMut(&Frames, u64),
    ) -> Result<(), End> {
        let mut number = 0;
        self.attached.send_modify(|count| {
            *count += 1;
            number = *count;
        });
        let mut superseded = self.attached.subscribe();
        let superseded = async { _ = superseded.wait_for(|count| *count > number).await };
        let serve = async {
            // The task of an earlier connection ends first.
            let connections = self.serving.lock().await;
            connections.wait(NonZeroU32::MIN).await;
            let (received, mut frames) = self.attach(resume).await?;
            // The frames of the worker wait behind this reply, as behind all that `write_client` sends.
            let attached = |out: &mut Vec<u8>| Attached { received }.encode(out);
            let reply = send_reply(&mut send, Attached::OPCODE, 0, attached, Bytes::new());
            time.limit(reply).await?;
            own().iter().for_each(|event| self.push(event));
            tokio::try_join!(
                self.write_client(&mut send, &mut frames, time),
                self.read_client(&mut receive, &mut seen),
            )
            .map(drop)
        };
        tokio::select! {
            served = serve => served,
            () = superseded => Ok(()),
        }
    }

    /// Makes a connection the current one. Returns the number of the last frame that the worker has received, and its
    /// frames.
    async fn attach(&self, resume: Option<u64>) -> Result<(u64, mpsc::Receiver<Batch>), End> {
        let (frames, receiver) = Batches::new(BATCH_BYTES);
        let (resumed, answer) = oneshot::channel();
        let is_over = {
            let mut client = self.client.lock();
            let is_over = client.is_over;
            let resumed = (!is_over).then_some(resumed);
            *client = Client { resumed, frames: Some(frames), is_over, ..Client::default() };
            is_over
        };
        let request = Resume { epoch: self.epoch, received: resume.unwrap_or(0) };
        let mut out = Vec::new();
        put_frame(&mut out, Resume::OPCODE, 0, 0, |out| request.encode(out));
        if is_over || !self.send_to_worker(out.into()).await {
            return Ok((self.passed.load(Ordering::Acquire), receiver));
        }
        let received = match answer.await {
            // The worker has exited meanwhile.
            Err(_) => self.passed.load(Ordering::Acquire),
            Ok(Resumed { error, .. }) if !error.is_empty() => {
                return Err(SessionError::Command(error).into());
            }
            Ok(Resumed { received, .. }) if received > 0 && resume.is_none() => {
                let message = "the lane exists already; attach it as resumed";
                return Err(SessionError::Command(message.into()).into());
            }
            Ok(Resumed { received, .. }) => received,
        };
        // Of a worker that an earlier supervisor had.
        self.passed.fetch_max(received, Ordering::AcqRel);
        Ok((received, receiver))
    }

    /// Sends the frames of the worker, and own events behind those that have arrived. Ends a connection on which the client
    /// takes none, or takes them too slowly while the session keeps the turn from others: messages of the worker for the
    /// supervisor wait behind these frames, among them the one with which a session gives its turn back.
    async fn write_client(
        &self,
        stream: &mut SendStream,
        frames: &mut mpsc::Receiver<Batch>,
        time: &DrainTime,
    ) -> Result<(), End> {
        loop {
            tokio::select! {
                biased;
                Some((frames, _reserved)) = frames.recv() => {
                    time.limit(send_bytes(stream, &mut [frames])).await?;
                }
                () = self.filled.notified() => {
                    let (own, has_overflowed) = {
                        let mut client = self.client.lock();
                        (std::mem::take(&mut client.own), client.has_overflowed)
                    };
                    if has_overflowed {
                        let message =
                            format!("more than {OWN_EVENTS} bytes of events wait for the client");
                        return Err(SessionError::Command(message).into());
                    }
                    time.limit(send_bytes(stream, &mut [own.into()])).await?;
                }
            }
        }
    }

    /// Passes the frames of the client to the worker.
    async fn read_client(
        &self,
        stream: &mut FrameStream,
        seen: &mut impl FnMut(&Frames, u64),
    ) -> Result<(), End> {
        let mut waiting = None;
        loop {
            let Some(place) = self.to_worker.reserve(stream.buffer().buffer().capacity()).await
            else {
                // The worker has exited, and the client gets the reason.
                return std::future::pending().await;
            };
            if self.pass(stream.buffer(), place, seen)? {
                waiting = None;
                stream.fill().await?;
            } else {
                // Before the notification: see `Session::report_waiting`.
                waiting.get_or_insert_with(|| Waiting::new(self));
                self.waits.notify_one();
                self.admitted().await;
            }
        }
    }

    /// Passes the frames that have arrived to the worker, or discards them. Returns `false` if they wait, because the session
    /// is paused. Part of a frame asks for no turn: a client could send one byte at a time. There is no `.await` between
    /// taking frames and sending them, so a task that is cancelled has either passed frames on or leaves them to the client,
    /// which sends them again.
    fn pass(
        &self,
        buffer: &mut FrameBuffer,
        place: Place<'_>,
        seen: &mut impl FnMut(&Frames, u64),
    ) -> Result<bool, WireError> {
        // `set_running` waits for this lock. So after it no frames pass, and `seen` knows of those before it.
        let admission = self.admission.borrow();
        if *admission == Admission::Paused && complete_frames(buffer.buffer(), 1)? > 0 {
            return Ok(false);
        }
        let frames = buffer.take()?;
        let last = self.check(&frames)?;
        if *admission == Admission::Open && !frames.bytes().is_empty() {
            place.send(frames.bytes().clone());
            let before = self.passed.fetch_max(last, Ordering::AcqRel);
            seen(&frames, before);
        }
        Ok(true)
    }

    /// Checks that the client may send frames here. Returns the number of the last one. The worker checks the numbers.
    fn check(&self, frames: &Frames) -> Result<u64, WireError> {
        let mut last = 0;
        // An acknowledgement has no number, whatever the client writes there.
        for frame in frames.iter().filter(|frame| frame.header.opcode != Ack::OPCODE) {
            let opcode = frame.header.opcode;
            // Other opcodes are those of messages between supervisor and worker, among others.
            if !self.opcodes.contains(&opcode) {
                return Err(WireError::UnexpectedOpcode { opcode });
            }
            last = last.max(frame.header.sequence);
        }
        Ok(last)
    }

    /// Waits until frames wait because the session is paused, or wait no longer.
    pub(super) async fn waits(&self) {
        self.waits.notified().await;
    }

    /// Whether frames wait because the session is paused.
    pub(super) fn is_waiting(&self) -> bool {
        self.is_waiting.load(Ordering::SeqCst)
    }

    /// Waits while the session is paused.
    async fn admitted(&self) {
        let mut admission = self.admission.subscribe();
        _ = admission.wait_for(|admission| *admission != Admission::Paused).await;
    }
}

/// Frames wait until this is dropped: they have passed, or their connection has ended.
struct Waiting<'a>(&'a Lane);

impl<'a> Waiting<'a> {
    fn new(lane: &'a Lane) -> Self {
        lane.is_waiting.store(true, Ordering::SeqCst);
        Self(lane)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.is_waiting.store(false, Ordering::SeqCst);
        self.0.waits.notify_one();
    }
}

/// Writes frames to the worker, until the lane is dropped or the socket ends.
pub(super) async fn write_worker(mut socket: OwnedWriteHalf, mut frames: mpsc::Receiver<Batch>) {
    while let Some((frames, _memory)) = frames.recv().await {
        if socket.write_all(&frames).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use cuda_lease::wire::FRAME_LIMIT;
    use tokio::net::UnixStream;

    use super::*;

    /// Whether a batch keeps more memory than [`SMALL_PART`] times its bytes, also in front of it.
    fn keeps_much(batch: Bytes) -> bool {
        let bytes = batch.len();
        let Ok(mut batch) = batch.try_into_mut() else { return true };
        batch.clear();
        batch.try_reclaim(SMALL_PART * bytes + 1)
    }

    /// A place for a batch to the worker, which is there at once.
    fn place(lane: &Lane) -> Place<'_> {
        let Batches { sender, memory } = &lane.to_worker;
        Place { permit: sender.try_reserve().unwrap(), memory: memory.try_reserve(0).unwrap() }
    }

    /// A client that acknowledges no packets keeps all batches in memory. A hostile worker writes frames for the supervisor
    /// in front of them.
    #[tokio::test]
    async fn small_batches_of_the_worker_keep_little_memory() {
        for (own, of_client) in [(None, 0), (None, 16 << 10), (Some(1 << 20), 64 << 10)] {
            let (lane, _to_worker) = Lane::new(1, 0..=u16::MAX, BATCH_BYTES);
            let (socket, mut worker) = UnixStream::pair().unwrap();
            let (frames, mut batches) = Batches::new(BATCH_BYTES);
            *lane.client.lock() = Client { frames: Some(frames), ..Client::default() };
            let (socket, _) = socket.into_split();
            let mut out = Vec::new();
            for (number, bytes) in own.into_iter().map(|own| (0, own)).chain([(1, of_client)]) {
                put_frame(&mut out, Ack::OPCODE, 0, number, |out| out.resize(out.len() + bytes, 1));
            }
            let write = async {
                let mut kept = Vec::new();
                for _ in 0..20 {
                    worker.write_all(&out).await.unwrap();
                    kept.push(batches.recv().await.unwrap().0);
                }
                drop(worker);
                kept
            };
            let take = |frame: &Frame<'_>| frame.header.sequence == 0;
            let ((), kept) = tokio::join!(lane.read_worker(socket, take), write);
            assert!(!kept.into_iter().any(keeps_much), "{own:?}, {of_client}");
        }
    }

    /// A hostile worker writes the largest frames, and its client takes none for a while.
    #[tokio::test]
    async fn batches_for_the_client_keep_bounded_memory() {
        const FRAMES: usize = 64;
        for bytes in [READ - 100, FRAME_LIMIT as usize] {
            let (lane, _to_worker) = Lane::new(1, 0..=u16::MAX, BATCH_BYTES);
            let (socket, mut worker) = UnixStream::pair().unwrap();
            let (frames, mut batches) = Batches::new(BATCH_BYTES);
            *lane.client.lock() = Client { frames: Some(frames), ..Client::default() };
            let mut frame = Vec::new();
            put_frame(&mut frame, Ack::OPCODE, 0, 1, |out| out.resize(out.len() + bytes, 1));
            let write = async {
                for _ in 0..FRAMES {
                    worker.write_all(&frame).await.unwrap();
                }
                drop(worker);
            };
            let take = async {
                let mut taken = 0;
                while taken < FRAMES * frame.len() {
                    for _ in 0..10_000 {
                        tokio::task::yield_now().await;
                    }
                    let waiting = std::iter::from_fn(|| batches.try_recv().ok());
                    let sum = waiting.map(|(batch, _)| batch.len()).sum::<usize>();
                    assert!(sum as u64 <= BATCH_BYTES, "{sum} bytes wait");
                    taken += sum;
                }
            };
            tokio::join!(lane.read_worker(socket.into_split().0, |_| false), write, take);
        }
    }

    /// A hostile worker writes frames for the supervisor, or frames while no client is connected, of which nothing else
    /// limits the rate. Otherwise a few of them take all threads of the supervisor.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn frames_that_no_client_gets_are_limited_by_time() {
        for (is_taken, bytes) in [(true, 0), (false, 0), (false, READ)] {
            let (lane, _to_worker) = Lane::new(1, 0..=u16::MAX, BATCH_BYTES);
            let (socket, mut worker) = UnixStream::pair().unwrap();
            let (mut out, mut count) = (Vec::new(), 0);
            while out.len() <= READ {
                put_frame(&mut out, Ack::OPCODE, 0, 1, |out| out.resize(out.len() + bytes, 1));
                count += 1;
            }
            let each = count + (out.len() >> 10) as u32;
            let started = std::time::Instant::now();
            let write = async {
                // As much as two seconds more than a burst allow.
                for _ in 0..=(UNSENT + 2 * UNSENT_PER_SECOND).div_ceil(each) {
                    worker.write_all(&out).await.unwrap();
                }
                drop(worker);
            };
            tokio::join!(lane.read_worker(socket.into_split().0, |_| is_taken), write);
            let elapsed = started.elapsed();
            assert!(elapsed.as_millis() >= 1900, "{is_taken}, {bytes}: {elapsed:?}");
        }
    }

    /// A client sends the largest frames to a worker that reads nothing.
    #[tokio::test]
    async fn batches_for_the_worker_keep_bounded_memory() {
        let (lane, mut batches) = Lane::new(1, 0..=u16::MAX, BATCH_BYTES);
        let frame = Bytes::from(vec![0; FRAME_LIMIT as usize]);
        let send = async { while lane.send_to_worker(frame.clone()).await {} };
        let take = async {
            for _ in 0..10_000 {
                tokio::task::yield_now().await;
            }
            let waiting = std::iter::from_fn(|| batches.try_recv().ok());
            waiting.map(|(batch, _)| batch.len() as u64).sum::<u64>()
        };
        let most = tokio::select! {
            () = send => panic!("the worker has exited"),
            waiting = take => waiting,
        };
        assert!((BATCH_BYTES / 2..=BATCH_BYTES).contains(&most), "{most} bytes wait");
    }

    /// Otherwise a batch runs while another session has the turn.
    #[test]
    fn lane_that_has_closed_passes_no_batch() {
        let (lane, mut to_worker) = Lane::new(1, 0..=u16::MAX, BATCH_BYTES);
        let (mut buffer, mut frame) = (FrameBuffer::default(), Vec::new());
        put_frame(&mut frame, Ack::OPCODE, 0, 0, |_| {});
        let place = || place(&lane);
        buffer.extend(&frame);
        std::thread::scope(|scope| {
            let mut closes_meanwhile = |_: &Frames, _| {
                let closing = scope.spawn(|| lane.set_running(false));
                std::thread::sleep(std::time::Duration::from_millis(50));
                assert!(!closing.is_finished());
            };
            assert!(lane.pass(&mut buffer, place(), &mut closes_meanwhile).unwrap());
        });
        drop(to_worker.try_recv().unwrap());
        buffer.extend(&frame);
        assert!(!lane.pass(&mut buffer, place(), &mut |_, _| panic!("a batch passes")).unwrap());
        assert_eq!(buffer.buffer().len(), frame.len());
    }

    /// Otherwise a client that sends one byte at a time takes a time slice for each of them.
    #[test]
    fn part_of_a_frame_asks_for_no_turn() {
        let (lane, _to_worker) = Lane::new(1, 0..=u16::MAX, BATCH_BYTES);
        let (mut buffer, mut frame) = (FrameBuffer::default(), Vec::new());
        put_frame(&mut frame, Ack::OPCODE, 0, 0, |out| out.push(0));
        lane.set_running(false);
        for (arrived, byte) in frame.iter().enumerate() {
            let place = place(&lane);
            let asks = !lane.pass(&mut buffer, place, &mut |_, _| panic!("it passes")).unwrap();
            assert!(!asks, "{arrived} bytes of a frame ask for the turn");
            buffer.extend(&[*byte]);
        }
        let place = place(&lane);
        assert!(!lane.pass(&mut buffer, place, &mut |_, _| panic!("it passes")).unwrap());
        assert_eq!(buffer.buffer().len(), frame.len());
    }
}
