//! The connections between a supervisor and a worker: three sockets, and the one that ends a worker when its
//! supervisor has exited.

use std::{
    io,
    os::{
        fd::{AsFd as _, RawFd},
        unix::net::UnixStream as BlockingStream,
    },
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::{io::Errno, process::Signal};
use tokio::net::UnixStream;

use super::{
    descriptors::{self, BULK_DESCRIPTOR, COMMANDS_DESCRIPTOR, JOBS_DESCRIPTOR},
    error::{Error, Result},
};

/// The stack of the watching thread, in bytes.
const STACK: usize = 64 << 10;

/// The longest time in which a worker reads what its supervisor had written before its end. Usually it comes to the end of
/// its socket within microseconds, and then has a lease or ends.
const FINAL_READ: Duration = Duration::from_secs(10);

/// The time between two looks at whether it has.
const LOOK: Duration = Duration::from_millis(10);

/// The ends of the sockets between a supervisor and one worker, on one of the sides.
#[derive(Debug)]
pub struct Ends<Socket> {
    /// Carries commands to the worker and events from it.
    pub commands: Socket,
    /// Carries bulk bytes in both directions.
    pub bulk: Socket,
    /// Carries stateless submits to the worker and replies from it.
    pub jobs: Socket,
}

/// The supervisor's ends.
pub type SupervisorEnds = Ends<UnixStream>;

/// A worker's ends, in blocking mode.
pub type WorkerEnds = Ends<BlockingStream>;

impl WorkerEnds {
    /// Takes the sockets that this process inherited from its supervisor.
    ///
    /// Call it at the start of `main`, once. Code that this process starts later does not inherit the sockets.
    ///
    /// # Errors
    /// [`Error::AlreadyTaken`] on a second call, also if the first one failed. [`Error::Descriptor`] if a descriptor is
    /// not open, was not inherited or is not a Unix stream socket, for example because a user started the worker by
    /// hand.
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
    let pair = || -> io::Result<_> {
        let (supervisor, worker) = BlockingStream::pair()?;
        supervisor.set_nonblocking(true)?;
        Ok((UnixStream::from_std(supervisor)?, worker))
    };
    let pair = || pair().map_err(Error::Sockets);
    let ((commands, own_commands), (bulk, own_bulk), (jobs, own_jobs)) =
        (pair()?, pair()?, pair()?);
    let worker = Ends { commands: own_commands, bulk: own_bulk, jobs: own_jobs };
    Ok((Ends { commands, bulk, jobs }, worker))
}

/// The watch for the end of the first supervisor. Dropping it says that this process does not outlive that.
#[derive(Debug, Default)]
pub struct SupervisorWatch {
    /// Whether the worker outlives its supervisor.
    outlives: Arc<AtomicBool>,
}

impl SupervisorWatch {
    /// From now on, this process outlives the supervisor.
    pub(super) fn outlive(&self) {
        self.outlives.store(true, Ordering::Release);
    }
}

/// Starts a thread that kills this process with `SIGKILL` when the supervisor has exited, unless this process outlives
/// it. While the returned watch exists, that is undecided, for at most ten seconds.
///
/// The thread blocks reading standard input, which the supervisor holds open. The kernel closes the socket when the
/// supervisor ends, also by `SIGKILL`. The thread uses a signal instead of `exit`, because exit handlers of the CUDA
/// driver can wait for an endless kernel. Bytes from standard input are ignored.
///
/// A process that was not started by [`WorkerLauncher`](super::WorkerLauncher) may have a closed or empty standard
/// input. This call then ends it after a moment.
///
/// # Errors
/// [`Error::LivenessThread`] if the thread cannot be started.
pub fn die_with_supervisor() -> Result<SupervisorWatch> {
    let outlives = Arc::<AtomicBool>::default();
    let own = outlives.clone();
    thread::Builder::new()
        .name("supervisor-watch".into())
        .stack_size(STACK)
        .spawn(move || watch(&own))
        .map_err(Error::LivenessThread)?;
    Ok(SupervisorWatch { outlives })
}

fn watch(outlives: &Arc<AtomicBool>) {
    let stdin = io::stdin();
    let mut ignored = [0; 64];
    // Any other error counts as the end of the socket, because the supervisor cannot be watched any more.
    while let Ok(1..) | Err(Errno::INTR) = rustix::io::read(stdin.as_fd(), &mut ignored) {}
    // The supervisor may have written the lease just before its end. The worker reads it now, however busy the machine is,
    // and then outlives the supervisor. Or it finds that it has no lease, and drops its watch.
    let end = Instant::now() + FINAL_READ;
    let is_decided = || outlives.load(Ordering::Acquire) || Arc::strong_count(outlives) == 1;
    while !is_decided() && Instant::now() < end {
        thread::sleep(LOOK);
    }
    if !outlives.load(Ordering::Acquire) {
        die();
    }
}

/// Kills this process.
pub(super) fn die() -> ! {
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
    // Not reached, except where the kernel refuses the signal: in the first process of a PID namespace.
    std::process::abort();
}
