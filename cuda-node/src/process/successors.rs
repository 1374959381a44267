//! Workers that outlive their supervisor: the next supervisor connects to the worker's Unix socket.
//!
//! The supervisor that launches the worker binds the socket in a folder of its own, and the worker inherits the
//! listener. So a worker needs no access to the folder. Only the user of the node can open the folder and connect.
//!
//! A supervisor connects three times, once for each socket of [`Ends`](super::Ends). On each connection it sends one
//! byte: the number of the socket in [`LANES`].

use std::{
    io::{self, ErrorKind, Read as _, Write as _},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::net::{UnixListener, UnixStream as BlockingStream},
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt},
};
use tokio::net::UnixStream;

use super::{
    descriptors::{self, SUCCESSORS_DESCRIPTOR},
    ends::{SupervisorEnds, SupervisorWatch, WorkerEnds, die},
    error::{DescriptorProblem, Error, Result},
};

/// The numbers of the sockets: commands, bulk, jobs.
const LANES: [u8; 3] = [0, 1, 2];

/// The time in which a supervisor sends the byte of a connection.
const BYTE: Duration = Duration::from_secs(1);

/// The number of names of sockets that are tried.
const NAMES: u32 = 1 << 20;

/// The supervisors that follow the first one, as their worker sees them.
#[derive(Debug)]
pub struct Successors {
    listener: UnixListener,
    wait: Duration,
    /// The watch that ends this process with its first supervisor.
    watch: SupervisorWatch,
}

impl Successors {
    /// Takes the listener that this process inherited from its supervisor. Until [`outlive`](Self::outlive), `watch` ends
    /// this process with its supervisor. Afterwards it waits for the next one for at most `wait`.
    ///
    /// # Errors
    /// [`Error::Descriptor`] if the descriptor is not an inherited Unix listener.
    pub fn take(wait: Duration, watch: SupervisorWatch) -> Result<Self> {
        let listener = descriptors::take(SUCCESSORS_DESCRIPTOR).and_then(|socket| {
            match sockopt::socket_acceptconn(socket.as_fd()) {
                Ok(true) => Ok(socket),
                _ => Err(DescriptorProblem::NotUnixStream),
            }
        });
        let listener = listener.map_err(|problem| {
            let (descriptor, name) = (SUCCESSORS_DESCRIPTOR, "successors");
            Error::Descriptor { descriptor, name, problem }
        })?;
        Ok(Self { listener: listener.into(), wait, watch })
    }

    /// From now on, this process outlives its supervisor.
    pub fn outlive(&self) {
        self.watch.outlive();
    }

    /// Waits until the supervisor of these sockets has ended.
    ///
    /// # Errors
    /// A system call fails.
    pub fn await_end(&self, ends: &WorkerEnds) -> io::Result<()> {
        await_event(&ends.commands, PollFlags::RDHUP, None).map(drop)
    }

    /// Waits for the next supervisor. Without one this process ends.
    ///
    /// # Errors
    /// A system call fails.
    pub fn accept(&self) -> io::Result<WorkerEnds> {
        let until = Instant::now() + self.wait;
        let mut sockets: [Option<BlockingStream>; LANES.len()] = Default::default();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if !await_event(&self.listener, PollFlags::IN, Some(left))? {
                die();
            }
            let Some((lane, socket)) = with_lane(self.listener.accept()?.0) else { continue };
            // Discards the sockets of a supervisor that ended before it had connected all three.
            if lane == LANES[0] {
                sockets = Default::default();
            }
            if let Some(place) = sockets.get_mut(usize::from(lane)) {
                *place = Some(socket);
            }
            match sockets {
                [Some(commands), Some(bulk), Some(jobs)] => {
                    return Ok(WorkerEnds { commands, bulk, jobs });
                }
                incomplete => sockets = incomplete,
            }
        }
    }
}

/// Reads the byte of a connection.
fn with_lane(mut socket: BlockingStream) -> Option<(u8, BlockingStream)> {
    let mut byte = [0];
    socket.set_read_timeout(Some(BYTE)).ok()?;
    socket.read_exact(&mut byte).ok()?;
    socket.set_read_timeout(None).ok()?;
    Some((byte[0], socket))
}

/// Waits for an event of a socket, or its end. Returns `false` after `limit`.
fn await_event(
    socket: &impl std::os::fd::AsFd,
    event: PollFlags,
    limit: Option<Duration>,
) -> io::Result<bool> {
    let limit = limit.map(|limit| Timespec {
        tv_sec: limit.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    });
    loop {
        match poll(&mut [PollFd::new(socket, event)], limit.as_ref()) {
            Err(rustix::io::Errno::INTR) => {}
            polled => return Ok(polled? > 0),
        }
    }
}

/// Binds a listener for a worker to a new path in `folder`.
///
/// # Errors
/// The file system fails. A path of more than about 100 bytes is too long for a socket.
pub(super) fn bind(folder: &Path) -> io::Result<(PathBuf, OwnedFd)> {
    for number in 0..NAMES {
        let path = folder.join(number.to_string());
        match UnixListener::bind(&path) {
            Ok(listener) => return Ok((path, listener.into())),
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
    }
    Err(ErrorKind::AddrInUse.into())
}

/// Connects to the socket of a worker whose supervisor has ended.
///
/// # Errors
/// The worker has ended, or takes no connections.
pub(super) fn connect(path: &Path) -> io::Result<SupervisorEnds> {
    let connect = |lane| -> io::Result<_> {
        // Without a wait: a hostile worker would keep its node from starting.
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        net::connect(&socket, &SocketAddrUnix::new(path)?)?;
        let mut socket = BlockingStream::from(socket);
        socket.write_all(&[lane])?;
        UnixStream::from_std(socket)
    };
    let [commands, bulk, jobs] = LANES.map(connect);
    Ok(SupervisorEnds { commands: commands?, bulk: bulk?, jobs: jobs? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn successors() -> (tempfile::TempDir, PathBuf, Successors) {
        let folder = tempfile::tempdir().unwrap();
        let (path, listener) = bind(folder.path()).unwrap();
        let (wait, watch) = (Duration::from_secs(60), SupervisorWatch::default());
        (folder, path, Successors { listener: listener.into(), wait, watch })
    }

    #[tokio::test]
    async fn each_socket_of_the_next_supervisor_has_its_place() {
        let (_folder, path, successors) = successors();
        let ends = connect(&path).unwrap();
        let worker = successors.accept().unwrap();
        let pairs = [
            (&ends.commands, &worker.commands),
            (&ends.bulk, &worker.bulk),
            (&ends.jobs, &worker.jobs),
        ];
        for (number, (supervisor, worker)) in pairs.into_iter().enumerate() {
            supervisor.writable().await.unwrap();
            assert_eq!(supervisor.try_write(&[number as u8]).unwrap(), 1);
            let (mut byte, mut worker) = ([9], worker);
            worker.read_exact(&mut byte).unwrap();
            assert_eq!(usize::from(byte[0]), number);
        }
        drop(ends);
        successors.await_end(&worker).unwrap();
    }

    #[tokio::test]
    async fn supervisor_that_ends_while_it_connects_has_no_effect() {
        let (_folder, path, successors) = successors();
        for sent in [&[0][..], &[0, 1], &[], &[7]] {
            for lane in sent {
                BlockingStream::connect(&path).unwrap().write_all(&[*lane]).unwrap();
            }
            drop(BlockingStream::connect(&path).unwrap());
        }
        let ends = connect(&path).unwrap();
        let worker = successors.accept().unwrap();
        ends.jobs.writable().await.unwrap();
        assert_eq!(ends.jobs.try_write(&[3]).unwrap(), 1);
        let mut byte = [0];
        (&worker.jobs).read_exact(&mut byte).unwrap();
        assert_eq!(byte, [3]);
    }

    /// A hostile worker shortens the queue of its listener and takes no connection, so that the next node does not start.
    #[tokio::test]
    async fn worker_that_takes_no_connections_delays_no_supervisor() {
        let (_folder, path, successors) = successors();
        rustix::net::listen(&successors.listener, 0).unwrap();
        let (sender, done) = std::sync::mpsc::channel();
        let runtime = tokio::runtime::Handle::current();
        std::thread::spawn(move || {
            let _entered = runtime.enter();
            sender.send(connect(&path).map(drop))
        });
        let connected = done.recv_timeout(Duration::from_secs(30)).expect("the supervisor waits");
        assert_eq!(connected.unwrap_err().kind(), ErrorKind::WouldBlock);
    }

    #[test]
    fn names_of_sockets_that_exist_are_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let (first, _listener) = bind(folder.path()).unwrap();
        let (second, _listener) = bind(folder.path()).unwrap();
        assert_ne!(first, second);
        let deep = folder.path().join("x".repeat(200));
        assert!(bind(&deep).is_err());
    }
}
