//! A lane of a session, on the node: frames between connections, which come and go, and the worker.

use std::{
    ops::RangeInclusive,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use bytes::Bytes;
use cuda_lease::{
    session::{Incoming, Outgoing, SessionError},
    wire::{Ack, Attached, Event, Frame, FrameBuffer, Frames, WireError, put_frame},
};
use parking_lot::Mutex;
use quinn::SendStream;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::unix::{OwnedReadHalf, OwnedWriteHalf},
    sync::{Notify, mpsc, watch},
};

use crate::supervisor::streams::{End, FrameStream, send_frame};

/// Received bytes are acknowledged in steps of this size.
const ACKNOWLEDGE: usize = 256 << 10;

/// The maximum number of batches of frames that wait for the worker. Each has at most 256 KiB and a frame.
const TO_WORKER: usize = 32;

/// The bytes of events of the supervisor itself that may wait beyond the window.
const OWN_EVENTS: usize = 4 << 20;

/// One lane of a session.
pub(super) struct Lane {
    /// Frames to the client.
    outgoing: Mutex<Outgoing>,
    /// Frames were added to `outgoing`.
    filled: Notify,
    /// Frames of `outgoing` were acknowledged.
    drained: Notify,
    /// The most bytes in `outgoing`.
    window: usize,
    /// The opcodes that the client may send here.
    opcodes: RangeInclusive<u16>,
    /// Frames from the client. Locked by the task that serves the lane on the current connection.
    incoming: tokio::sync::Mutex<Incoming>,
    /// Counts connections. A task stops when a later connection has attached the lane.
    attached: watch::Sender<u64>,
    to_worker: mpsc::Sender<Bytes>,
    admission: watch::Sender<Admission>,
    /// Frames have arrived while the session is paused.
    waits: Notify,
    /// Whether frames wait because the session is paused.
    is_waiting: AtomicBool,
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

impl Lane {
    /// Creates a lane, and the receiver of its frames for the worker.
    pub(super) fn new(
        epoch: u32,
        window: usize,
        opcodes: RangeInclusive<u16>,
    ) -> (Self, mpsc::Receiver<Bytes>) {
        let (to_worker, receiver) = mpsc::channel(TO_WORKER);
        let lane = Self {
            outgoing: Mutex::new(Outgoing::new(epoch)),
            filled: Notify::new(),
            drained: Notify::new(),
            window,
            opcodes,
            incoming: tokio::sync::Mutex::new(Incoming::new(epoch)),
            attached: watch::Sender::new(0),
            to_worker,
            admission: watch::Sender::new(Admission::Open),
            waits: Notify::new(),
            is_waiting: AtomicBool::new(false),
        };
        (lane, receiver)
    }

    /// Sends an event to the client.
    pub(super) fn push(&self, event: &Event) {
        self.outgoing.lock().push(event.opcode(), |out| event.encode(out));
        self.filled.notify_one();
    }

    /// As [`push`](Self::push), for events that a client can cause again and again.
    ///
    /// # Errors
    /// The client acknowledges too few events.
    pub(super) fn push_limited(&self, event: &Event) -> Result<(), SessionError> {
        let limit = self.window + OWN_EVENTS;
        if self.outgoing.lock().bytes() > limit {
            let message = format!("more than {limit} bytes of events wait for an acknowledgement");
            return Err(SessionError::Command(message));
        }
        self.push(event);
        Ok(())
    }

    /// Sends a frame to the client.
    fn forward(&self, frames: &Frames, mut take: impl FnMut(&Frame<'_>) -> bool) {
        let mut outgoing = self.outgoing.lock();
        for frame in frames.iter() {
            if !take(&frame) {
                outgoing.forward(&frame);
            }
        }
        drop(outgoing);
        self.filled.notify_one();
    }

    /// Sends bytes to the worker.
    pub(super) async fn send_to_worker(&self, frames: Bytes) -> bool {
        self.to_worker.send(frames).await.is_ok()
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
        let mut buffer = FrameBuffer::default();
        loop {
            while self.outgoing.lock().bytes() >= self.window {
                self.drained.notified().await;
            }
            buffer.buffer().reserve(ACKNOWLEDGE);
            match socket.read_buf(buffer.buffer()).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            match buffer.take() {
                Ok(frames) => self.forward(&frames, &mut take),
                Err(error) => return tracing::error!(%error, "a worker broke the protocol"),
            }
        }
    }

    /// Serves the lane on one connection, until that ends or a later connection attaches the lane. `seen` gets the
    /// frames that were passed to the worker.
    pub(super) async fn serve(
        &self,
        mut send: SendStream,
        mut receive: FrameStream,
        resume: Option<u64>,
        mut seen: impl FnMut(&Frames) -> Result<(), SessionError>,
    ) -> Result<(), End> {
        let mut own = 0;
        self.attached.send_modify(|count| {
            *count += 1;
            own = *count;
        });
        let mut superseded = self.attached.subscribe();
        let superseded = async { _ = superseded.wait_for(|count| *count > own).await };
        let serve = async {
            // The task of an earlier connection ends first.
            let mut incoming = self.incoming.lock().await;
            match resume {
                Some(received) => self.outgoing.lock().resume(received)?,
                None if incoming.received() > 0 => {
                    let message = "the lane exists already; attach it as resumed";
                    return Err(SessionError::Command(message.into()).into());
                }
                None => {}
            }
            let attached = Attached { received: incoming.received() };
            send_frame(&mut send, Attached::OPCODE, 0, |out| attached.encode(out)).await?;
            let acknowledge = Acknowledge::default();
            tokio::try_join!(
                self.send(&mut send, &acknowledge),
                self.receive(&mut receive, &mut incoming, &acknowledge, &mut seen),
            )
            .map(drop)
        };
        tokio::select! {
            served = serve => served,
            () = superseded => Ok(()),
        }
    }

    async fn send(&self, stream: &mut SendStream, acknowledge: &Acknowledge) -> Result<(), End> {
        loop {
            let received = acknowledge.0.swap(0, Ordering::Relaxed);
            if received > 0 {
                let mut out = Vec::new();
                put_frame(&mut out, Ack::OPCODE, 0, 0, |out| Ack { received }.encode(out));
                stream.write_chunk(out.into()).await?;
            }
            let frames = self.outgoing.lock().take();
            match frames {
                Some(frames) => stream.write_chunk(frames).await?,
                None => self.filled.notified().await,
            }
        }
    }

    async fn receive(
        &self,
        stream: &mut FrameStream,
        incoming: &mut Incoming,
        acknowledge: &Acknowledge,
        seen: &mut impl FnMut(&Frames) -> Result<(), SessionError>,
    ) -> Result<(), End> {
        loop {
            // There is no `.await` between `accept`, which counts frames as received, and `send`. Cancelling the task
            // therefore cannot lose a frame that is counted as received.
            let place = self.to_worker.reserve().await.map_err(|_| End::Closed)?;
            let admission = self.admitted(!stream.buffer().is_empty()).await;
            let frames = stream.buffer().take()?;
            let accepted = self.accept(&frames, incoming)?;
            if admission == Admission::Open && !accepted.bytes().is_empty() {
                place.send(accepted.bytes().clone());
                seen(&accepted)?;
            }
            if let Some(received) = incoming.acknowledgement(ACKNOWLEDGE) {
                acknowledge.0.store(received, Ordering::Relaxed);
                self.filled.notify_one();
            }
            stream.fill().await?;
        }
    }

    /// Waits until frames arrive while the session is paused.
    pub(super) async fn waits(&self) {
        self.waits.notified().await;
    }

    /// Whether frames wait because the session is paused.
    pub(super) fn is_waiting(&self) -> bool {
        self.is_waiting.load(Ordering::SeqCst)
    }

    /// Waits while the session is paused.
    async fn admitted(&self, has_frames: bool) -> Admission {
        let now = *self.admission.borrow();
        if now != Admission::Paused || !has_frames {
            return now;
        }
        // Before the notification: see `Session::report_waiting`.
        self.is_waiting.store(true, Ordering::SeqCst);
        let _waiting = Waiting(&self.is_waiting);
        self.waits.notify_one();
        let mut admission = self.admission.subscribe();
        let admitted = admission.wait_for(|admission| *admission != Admission::Paused).await;
        admitted.map_or(Admission::Closed, |admission| *admission)
    }

    /// Checks frames of the client. Returns those for the worker.
    fn accept(&self, frames: &Frames, incoming: &mut Incoming) -> Result<Frames, End> {
        // Usually all frames are for the worker, and nothing is copied.
        let mut runs = Vec::new();
        let (mut start, mut at) = (0, 0);
        for frame in frames.iter() {
            let is_for_worker = match frame.header.opcode {
                Ack::OPCODE => {
                    self.acknowledged(Ack::decode(frame.body)?.received)?;
                    false
                }
                opcode if self.opcodes.contains(&opcode) => incoming.accept(&frame.header)?,
                // Other opcodes are those of messages between supervisor and worker, among others.
                opcode => return Err(WireError::UnexpectedOpcode { opcode }.into()),
            };
            let end = at + frame.bytes.len();
            if !is_for_worker {
                runs.push(start..at);
                start = end;
            }
            at = end;
        }
        let bytes = frames.bytes();
        if runs.is_empty() {
            return Ok(Frames::new(bytes.clone()));
        }
        runs.push(start..at);
        let kept: Vec<u8> = runs.into_iter().flat_map(|run| &bytes[run]).copied().collect();
        Ok(Frames::new(kept.into()))
    }

    fn acknowledged(&self, received: u64) -> Result<(), End> {
        self.outgoing.lock().acknowledge(received)?;
        // Wakes those that wait now, or the next one that does.
        self.drained.notify_waiters();
        self.drained.notify_one();
        Ok(())
    }
}

/// Frames wait until this is dropped.
struct Waiting<'a>(&'a AtomicBool);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// The acknowledgement that the sending half sends next, or 0.
#[derive(Default)]
struct Acknowledge(AtomicU64);

/// Writes frames to the worker, until the lane is dropped or the socket ends.
pub(super) async fn write_worker(mut socket: OwnedWriteHalf, mut frames: mpsc::Receiver<Bytes>) {
    while let Some(frames) = frames.recv().await {
        if socket.write_all(&frames).await.is_err() {
            return;
        }
    }
}
