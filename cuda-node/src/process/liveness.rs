//! Ends a worker when its supervisor has exited.

use std::{io, os::fd::AsFd as _, thread};

use rustix::{io::Errno, process::Signal};

use super::error::{Error, Result};

/// The stack of the watching thread, in bytes.
const STACK: usize = 64 << 10;

/// Starts a thread that kills this process with `SIGKILL` when the supervisor has exited.
///
/// The thread blocks reading standard input, which the supervisor holds open. The kernel closes the pipe when the
/// supervisor ends, also by `SIGKILL`. The thread uses a signal instead of `exit`, because exit handlers of the CUDA
/// driver can wait for an endless kernel. Bytes from standard input are ignored.
///
/// A process that was not started by [`WorkerLauncher`](super::WorkerLauncher) may have a closed or empty standard
/// input. This call then ends it immediately.
///
/// # Errors
/// [`Error::LivenessThread`] if the thread cannot be started.
pub fn die_with_supervisor() -> Result<()> {
    thread::Builder::new()
        .name("supervisor-watch".into())
        .stack_size(STACK)
        .spawn(watch)
        .map(drop)
        .map_err(Error::LivenessThread)
}

fn watch() {
    let stdin = io::stdin();
    let mut ignored = [0; 64];
    // Any other error counts as the end of the pipe, because the supervisor cannot be watched any more.
    while let Ok(1..) | Err(Errno::INTR) = rustix::io::read(stdin.as_fd(), &mut ignored) {}
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
    // Not reached, except where the kernel refuses the signal: in the first process of a PID namespace.
    std::process::abort();
}
