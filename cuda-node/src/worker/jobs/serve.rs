//! The thread of a worker that serves jobs.

use std::{
    io::{self, Write},
    mem,
    net::Shutdown,
    os::unix::net::UnixStream,
    sync::Arc,
    thread,
    time::Duration,
};

use cuda_core::Provider;
use cuda_lease::wire::{Frame, Submit, WireError, put_frame};

use super::{
    messages::{JOB_PART, JobDone, JobPart, NeedImage},
    runner::{Done, Runner},
};
use crate::worker::{
    messages::{Assign, WorkerBlob},
    quota::Quota,
    sockets::read_frames,
};

/// Serves the stateless submits of one lease. [`Worker::jobs`](super::super::Worker::jobs) makes one.
pub struct JobServer {
    runner: Runner,
    quota: Arc<Quota>,
    /// The job whose bytes are arriving.
    current: Option<Arriving>,
    /// The bytes of an image that are arriving.
    image: Vec<u8>,
    out: Vec<u8>,
}

/// A thread that serves jobs.
#[must_use = "end it, so that the worker ends when its kernel does"]
pub struct Serving {
    stop: UnixStream,
    thread: thread::JoinHandle<()>,
}

impl Serving {
    /// Ends the thread. Waits until the kernel that runs has ended.
    pub fn end(self) {
        _ = self.stop.shutdown(Shutdown::Both);
        _ = self.thread.join();
    }
}

struct Arriving {
    job: Submit,
    input: Vec<u8>,
}

/// Whether the worker serves more jobs.
#[derive(PartialEq, Eq)]
enum Next {
    Continue,
    End,
}

#[derive(Debug, thiserror::Error)]
enum ServeError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("the supervisor sent a frame that is not expected in this state")]
    Order,
}

impl JobServer {
    pub(in crate::worker) fn new(
        provider: Arc<dyn Provider>,
        ordinal: u32,
        quota: Arc<Quota>,
    ) -> Self {
        let runner = Runner::new(provider, ordinal, quota.clone());
        Self { runner, quota, current: None, image: Vec::new(), out: Vec::new() }
    }

    /// Starts a thread that serves jobs until the supervisor closes the socket, or a fault makes the device unusable for
    /// this process. It closes the socket at the end.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(self, socket: UnixStream) -> io::Result<Serving> {
        let stop = socket.try_clone()?;
        let thread = thread::Builder::new().name("lease-jobs".into());
        let thread = thread.spawn(move || self.serve(&socket))?;
        Ok(Serving { stop, thread })
    }

    fn serve(mut self, socket: &UnixStream) {
        let ended = read_frames(socket, |frame| match self.take(socket, &frame) {
            Ok(next) => next == Next::Continue,
            Err(error) => {
                tracing::error!(%error, "the jobs of a lease ended");
                false
            }
        });
        if let Err(error) = ended {
            tracing::debug!(%error, "the jobs of a lease ended");
        }
        _ = socket.shutdown(Shutdown::Both);
    }

    fn take(&mut self, socket: &UnixStream, frame: &Frame<'_>) -> Result<Next, ServeError> {
        match frame.header.opcode {
            Assign::OPCODE => {
                self.quota.set_limit(Assign::decode(frame.body)?.limits.memory);
                return Ok(Next::Continue);
            }
            Submit::OPCODE if self.current.is_none() => {
                let job = Submit::decode(frame.body)?;
                if job.input_bytes > Submit::INPUT_LIMIT {
                    return Err(ServeError::Order);
                }
                self.current = Some(Arriving { job, input: Vec::new() });
            }
            JobPart::OPCODE => {
                let Some(current) = &mut self.current else { return Err(ServeError::Order) };
                let part = JobPart::decode(frame.body)?.part;
                current.input.extend_from_slice(&part);
            }
            WorkerBlob::OPCODE => {
                let Some(current) = &self.current else { return Err(ServeError::Order) };
                let WorkerBlob { total, part, .. } = WorkerBlob::decode(frame.body)?;
                self.image.extend_from_slice(&part);
                if (self.image.len() as u64) < total {
                    return Ok(Next::Continue);
                }
                let image = mem::take(&mut self.image);
                if let Err(done) = self.runner.load(current.job.kind, current.job.hash, &image) {
                    self.current = None;
                    return self.reply(socket, &done, Duration::ZERO);
                }
            }
            _ => return Err(ServeError::Order),
        }
        self.run_if_complete(socket)
    }

    fn run_if_complete(&mut self, socket: &UnixStream) -> Result<Next, ServeError> {
        let Some(Arriving { job, input }) = &self.current else { return Ok(Next::Continue) };
        let arrived = input.len() as u64;
        if arrived > job.input_bytes {
            return Err(ServeError::Order);
        }
        if arrived < job.input_bytes {
            return Ok(Next::Continue);
        }
        if !self.runner.has(&job.hash) {
            put_frame(&mut self.out, NeedImage::OPCODE, 0, 0, |out| NeedImage {}.encode(out));
            self.send(socket)?;
            return Ok(Next::Continue);
        }
        let (done, device) = self.runner.run(job, input);
        self.current = None;
        self.reply(socket, &done, device)
    }

    fn reply(
        &mut self,
        socket: &UnixStream,
        done: &Done,
        device: Duration,
    ) -> Result<Next, ServeError> {
        let output = done.output();
        let (status, text) = (done.status, done.text.clone());
        let end = JobDone {
            status,
            text,
            output_bytes: output.len() as u64,
            device_nanos: device.as_nanos().try_into().unwrap_or(u64::MAX),
            memory: self.quota.limit_and_used().1,
        };
        put_frame(&mut self.out, JobDone::OPCODE, 0, 0, |out| end.encode(out));
        for part in output.chunks(JOB_PART) {
            put_frame(&mut self.out, JobPart::OPCODE, 0, 0, |out| {
                cuda_lease::wire::Writer::new(out).put_bytes(part);
            });
            self.send(socket)?;
        }
        self.send(socket)?;
        Ok(if self.runner.is_lost() { Next::End } else { Next::Continue })
    }

    fn send(&mut self, mut socket: &UnixStream) -> io::Result<()> {
        let sent = socket.write_all(&self.out);
        self.out.clear();
        sent
    }
}
