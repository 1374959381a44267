//! A running worker process, as its supervisor sees it.

use std::{fmt, os::unix::process::ExitStatusExt as _, process::ExitStatus};

use tokio::{
    process::{Child, ChildStdin},
    runtime::Handle,
};

/// A worker process. Dropping it kills the process.
///
/// After a drop, a task of the runtime that launched the worker reaps it, so the worker leaves no zombie.
#[derive(Debug)]
pub struct WorkerProcess {
    pid: u32,
    /// `None` once the process is reaped.
    child: Option<Child>,
    exit: ExitCause,
    runtime: Handle,
    /// The worker's standard input. The worker kills itself when it closes. [`Child::wait`] would close it, so it is
    /// not part of the child.
    _liveness: Option<ChildStdin>,
}

impl WorkerProcess {
    pub(super) fn new(pid: u32, mut child: Child, runtime: Handle) -> Self {
        let liveness = child.stdin.take();
        Self { pid, child: Some(child), exit: ExitCause::Unknown, runtime, _liveness: liveness }
    }

    /// The process id. It may name another process once this one is reaped.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Kills the process with `SIGKILL`. Does not wait for its end, and does nothing if it has been reaped.
    ///
    /// The process ends even while it waits for a kernel. It keeps its GPU memory until it is reaped, and shortly
    /// afterwards.
    pub fn kill(&mut self) {
        if let Some(child) = &mut self.child
            && let Err(error) = child.start_kill()
        {
            // The process exists until it is reaped, and the supervisor may signal its children.
            tracing::debug!(pid = self.pid, %error, "a worker cannot be signaled; it has exited");
        }
    }

    /// Returns whether the process has ended. If it has, reaps it.
    pub fn has_ended(&mut self) -> bool {
        let Some(child) = &mut self.child else { return true };
        match child.try_wait() {
            Ok(None) => return false,
            Ok(Some(status)) => self.exit = ExitCause::from(status),
            Err(error) => {
                tracing::warn!(pid = self.pid, %error, "the exit status of a worker is lost");
                self.exit = ExitCause::Unknown;
            }
        }
        self.child = None;
        true
    }

    /// Waits until the process has ended, and reaps it. Later calls return the same cause immediately.
    ///
    /// The future can be dropped and called again, so it can be a branch of `select!`. It does not kill the process.
    pub async fn reaped(&mut self) -> ExitCause {
        if let Some(child) = &mut self.child {
            self.exit = match child.wait().await {
                Ok(status) => ExitCause::from(status),
                Err(error) => {
                    tracing::warn!(pid = self.pid, %error, "the exit status of a worker is lost");
                    ExitCause::Unknown
                }
            };
            self.child = None;
        }
        self.exit
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        self.kill();
        if let Some(mut child) = self.child.take() {
            // A runtime that is shut down drops the task. The child is then in tokio's queue of orphans.
            self.runtime.spawn(async move { drop(child.wait().await) });
        }
    }
}

/// The way in which a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExitCause {
    /// The process exited with this code.
    Exited(i32),
    /// A signal with this number ended the process.
    Signaled(i32),
    /// The process has ended, and its status is lost. This happens if the supervisor was started with `SIGCHLD`
    /// ignored.
    Unknown,
}

impl From<ExitStatus> for ExitCause {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Exited(code),
            (None, Some(signal)) => Self::Signaled(signal),
            (None, None) => Self::Unknown,
        }
    }
}

impl fmt::Display for ExitCause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(formatter, "exited with code {code}"),
            Self::Signaled(signal) => write!(formatter, "was ended by signal {signal}"),
            Self::Unknown => formatter.write_str("ended for an unknown reason"),
        }
    }
}
