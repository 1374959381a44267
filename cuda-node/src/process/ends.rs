//! The sockets between a supervisor and a worker.

use std::{
    io,
    os::{fd::RawFd, unix::net::UnixStream as BlockingStream},
    sync::atomic::{AtomicBool, Ordering},
};

use tokio::net::UnixStream;

use super::{
    descriptors::{self, BULK_DESCRIPTOR, COMMANDS_DESCRIPTOR, JOBS_DESCRIPTOR},
    error::{Error, Result},
};

/// The supervisor's ends of the sockets to one worker.
#[derive(Debug)]
pub struct SupervisorEnds {
    /// Carries commands to the worker and events from it.
    pub commands: UnixStream,
    /// Carries bulk bytes in both directions.
    pub bulk: UnixStream,
    /// Carries stateless submits to the worker and replies from it.
    pub jobs: UnixStream,
}

/// A worker's ends of the sockets to its supervisor, in blocking mode.
#[derive(Debug)]
pub struct WorkerEnds {
    /// Carries commands from the supervisor and events to it.
    pub commands: BlockingStream,
    /// Carries bulk bytes in both directions.
    pub bulk: BlockingStream,
    /// Carries stateless submits from the supervisor and replies to it.
    pub jobs: BlockingStream,
}

impl WorkerEnds {
    /// Takes the sockets that this process inherited from its supervisor.
    ///
    /// Call it at the start of `main`, once. Code that this process starts later does not inherit the sockets.
    ///
    /// # Errors
    /// [`Error::AlreadyTaken`] on a second call, also if the first one failed. [`Error::Descriptor`] if a descriptor is not open, was not inherited or
    /// is not a Unix stream socket, for example because a user started the worker by hand.
    pub fn take() -> Result<Self> {
        static TAKEN: AtomicBool = AtomicBool::new(false);
        if TAKEN.swap(true, Ordering::AcqRel) {
            return Err(Error::AlreadyTaken);
        }
        Ok(Self {
            commands: inherited(COMMANDS_DESCRIPTOR, "commands")?,
            bulk: inherited(BULK_DESCRIPTOR, "bulk")?,
            jobs: inherited(JOBS_DESCRIPTOR, "jobs")?,
        })
    }
}

fn inherited(descriptor: RawFd, name: &'static str) -> Result<BlockingStream> {
    match descriptors::take(descriptor) {
        Ok(owned) => Ok(owned.into()),
        Err(problem) => Err(Error::Descriptor { descriptor, name, problem }),
    }
}

fn non_blocking(stream: BlockingStream) -> io::Result<UnixStream> {
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

/// Creates the sockets between a supervisor and a worker, without a process.
///
/// Tests use it to run a worker's code on a thread of their own process.
///
/// # Errors
/// [`Error::Sockets`] if the process has too many open files.
///
/// # Panics
/// Outside a tokio runtime with I/O enabled.
pub fn pair() -> Result<(SupervisorEnds, WorkerEnds)> {
    let make = || -> io::Result<_> {
        let (supervisor_commands, worker_commands) = BlockingStream::pair()?;
        let (supervisor_bulk, worker_bulk) = BlockingStream::pair()?;
        let (supervisor_jobs, worker_jobs) = BlockingStream::pair()?;
        let supervisor = SupervisorEnds {
            commands: non_blocking(supervisor_commands)?,
            bulk: non_blocking(supervisor_bulk)?,
            jobs: non_blocking(supervisor_jobs)?,
        };
        let worker = WorkerEnds { commands: worker_commands, bulk: worker_bulk, jobs: worker_jobs };
        Ok((supervisor, worker))
    };
    make().map_err(Error::Sockets)
}
