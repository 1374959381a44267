//! Errors of worker processes.

use std::{
    io,
    os::fd::RawFd,
    path::{Path, PathBuf},
};

/// The result of a call that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The cause of a failure to launch a worker or to use its sockets.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A worker was launched outside a tokio runtime.
    #[error(
        "a worker is launched outside a tokio runtime; call `launch` inside one, with I/O enabled"
    )]
    NoRuntime,
    /// The socket pairs between supervisor and worker cannot be created.
    #[error(
        "cannot create the sockets of a worker: {0}; raise the limit of open files (`ulimit -n`)"
    )]
    Sockets(#[source] io::Error),
    /// The worker's executable cannot be started.
    #[error("cannot start the worker {}: {source}; {}", .executable.display(), advice(.source, "check that the file exists and may be executed"))]
    Spawn {
        /// The executable.
        executable: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Each user id of the range for workers belongs to a running worker.
    #[error(
        "all {count} user ids for workers are in use; start the node with a larger range (`--worker-uids`)"
    )]
    NoUid {
        /// The number of user ids.
        count: usize,
    },
    /// The user id of a worker of an earlier supervisor is not one for workers of this one, or another worker has it.
    #[error(
        "the worker has user id {uid}, which is not free for workers of this node; start the node with the same `--worker-uids` as before"
    )]
    OtherUid {
        /// The user id.
        uid: u32,
    },
    /// The cgroup of a worker cannot be created.
    #[error(
        "cannot create the cgroup of a worker: {0}; check the limits of the node's cgroup, or start the node with `--sandbox off`"
    )]
    Cgroup(#[source] io::Error),
    /// A folder cannot be given to the user of a worker.
    #[error(
        "cannot give a folder to the user of a worker: {0}; start the node with `--sandbox off`, or as root with the capability CAP_CHOWN"
    )]
    Writable(#[source] io::Error),
    /// The machine does not give a part of a sandbox that is required.
    #[error(
        "the sandbox of the worker is incomplete: {missing}; change the settings of the machine, or start the node with `--sandbox auto`"
    )]
    Sandbox {
        /// The parts that are missing, with the reasons.
        missing: String,
    },
    /// The socket on which later supervisors reach a worker cannot be created.
    #[error("cannot create the socket of a worker in {}: {source}", .folder.display())]
    Listener {
        /// The folder.
        folder: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The process of a worker that outlives its supervisor cannot be identified: `/proc` does not show it, for example.
    #[error("the worker with process id {pid}, which outlives its node, cannot be identified: {source}; {}", advice(.source, "mount /proc without `hidepid`, or start the node without `--state`"))]
    Unidentified {
        /// The process id.
        pid: u32,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A worker of an earlier supervisor has ended, or another process has its id now.
    #[error("the worker with process id {pid} has ended: {source}")]
    Gone {
        /// The process id.
        pid: u32,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A worker of an earlier supervisor has not ended, and accepts no connection.
    #[error("the worker with process id {pid} accepts no connection: {source}; it is killed")]
    Unreachable {
        /// The process id.
        pid: u32,
        /// The error of the operating system.
        source: io::Error,
    },
    /// An inherited descriptor of a worker cannot be used.
    #[error("descriptor {descriptor} ({name}) {problem}; start this process with `WorkerLauncher`")]
    Descriptor {
        /// The number of the descriptor.
        descriptor: RawFd,
        /// The socket that this descriptor should be.
        name: &'static str,
        /// The difference from an inherited Unix stream socket.
        problem: DescriptorProblem,
    },
    /// The worker's ends were taken before.
    #[error("this process has already taken its worker's ends; call `WorkerEnds::take` once")]
    AlreadyTaken,
    /// The thread that watches the supervisor cannot be started.
    #[error(
        "cannot start the thread that watches the supervisor: {0}; raise the limit of processes (`ulimit -u`)"
    )]
    LivenessThread(#[source] io::Error),
}

/// The advice for an error of the operating system: the limit to raise if one was reached, else `otherwise`.
fn advice<'a>(error: &io::Error, otherwise: &'a str) -> &'a str {
    match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => "raise the limit of open files (`ulimit -n`)",
        Some(libc::EAGAIN) => "raise the limit of processes (`ulimit -u`)",
        _ => otherwise,
    }
}

/// Adds the path to an error of the file system.
pub(super) fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// The difference between a descriptor and an inherited Unix stream socket.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DescriptorProblem {
    /// The descriptor is closed.
    #[error("is not open")]
    NotOpen,
    /// The descriptor was opened by this process.
    #[error("is close-on-exec, so this process did not inherit it")]
    NotInherited,
    /// The descriptor is a file, a pipe or another kind of socket.
    #[error("is not a Unix stream socket")]
    NotUnixStream,
    /// The operating system refused an operation on the descriptor.
    #[error("cannot be used: {0}")]
    Os(#[source] io::Error),
}
