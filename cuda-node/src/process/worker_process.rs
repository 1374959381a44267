//! Worker processes, as their supervisor sees them: launching, killing and reaping.

use std::{
    ffi::OsString,
    fmt,
    os::unix::process::ExitStatusExt as _,
    path::PathBuf,
    process::{ExitStatus, Stdio},
};

use command_fds::{CommandFdExt as _, FdMapping};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    process::{Child, ChildStdin, Command},
    runtime::Handle,
};

use super::{
    descriptors::{self, BULK_DESCRIPTOR, COMMANDS_DESCRIPTOR, JOBS_DESCRIPTOR},
    ends::{SupervisorEnds, pair},
    error::{Error, Result},
};

/// The longest line of a worker's output that becomes one event, in bytes. Longer lines are split.
const LONGEST_LINE: usize = 4 << 10;

/// The destination of a worker's standard output and standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkerOutput {
    /// The worker writes to the supervisor's standard output and standard error.
    #[default]
    Inherit,
    /// Each line becomes an event of `tracing` at level `INFO` with the worker's process id. A line above 4 KiB becomes
    /// several events.
    Trace,
}

/// Launches worker processes of one executable.
#[derive(Clone, Debug)]
pub struct WorkerLauncher {
    executable: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    output: WorkerOutput,
}

impl WorkerLauncher {
    /// A launcher of this executable, without arguments. Workers inherit the supervisor's environment and output.
    pub fn new(executable: impl Into<PathBuf>) -> Self {
        Self {
            executable: executable.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            output: WorkerOutput::default(),
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn argument(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Adds or replaces a variable of the worker's environment.
    #[must_use]
    pub fn environment(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Sets the destination of the worker's output.
    #[must_use]
    pub fn output(mut self, output: WorkerOutput) -> Self {
        self.output = output;
        self
    }

    /// Launches a worker and returns its process and the supervisor's ends of its sockets.
    ///
    /// The worker inherits standard input, output and error and the sockets, and no other descriptor. It is in a
    /// process group of its own, so an interrupt at the terminal reaches the supervisor only.
    ///
    /// The call blocks while the operating system copies the process and starts the executable, about a millisecond.
    ///
    /// # Errors
    /// [`Error::NoRuntime`] outside a tokio runtime. [`Error::Sockets`] and [`Error::Spawn`] with the cause of the
    /// operating system. No process is left then.
    ///
    /// # Panics
    /// Inside a tokio runtime whose I/O is not enabled.
    pub fn launch(&self) -> Result<(WorkerProcess, SupervisorEnds)> {
        let runtime = Handle::try_current().map_err(|_| Error::NoRuntime)?;
        let (supervisor, worker) = pair()?;
        let spawn_error = |source| Error::Spawn { executable: self.executable.clone(), source };

        let mut command = Command::new(&self.executable);
        command
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        if self.output == WorkerOutput::Trace {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        let sockets = vec![
            FdMapping { parent_fd: worker.commands.into(), child_fd: COMMANDS_DESCRIPTOR },
            FdMapping { parent_fd: worker.bulk.into(), child_fd: BULK_DESCRIPTOR },
            FdMapping { parent_fd: worker.jobs.into(), child_fd: JOBS_DESCRIPTOR },
        ];
        // If another thread of the supervisor closes its descriptor 3, 4 or 5 during the spawn, the pipe that reports a
        // failed `exec` may take that number. The failure then shows as a worker that exits with code 1.
        command
            .fd_mappings(sockets)
            .map_err(|collision| spawn_error(std::io::Error::other(collision)))?;
        descriptors::inherit_none_above_sockets(&mut command);

        let mut child = command.spawn().map_err(spawn_error)?;
        // The command owns the worker's ends. It drops them on return, so the sockets close when the worker ends.
        let pid = child.id().unwrap_or_default();
        if let Some(stdout) = child.stdout.take() {
            runtime.spawn(trace_lines(pid, "stdout", stdout));
        }
        if let Some(stderr) = child.stderr.take() {
            runtime.spawn(trace_lines(pid, "stderr", stderr));
        }
        Ok((WorkerProcess::new(pid, child, runtime), supervisor))
    }
}

/// Emits the lines of a worker's output as events, until the worker closes it.
async fn trace_lines(pid: u32, name: &'static str, mut output: impl AsyncRead + Unpin) {
    let emit = |line: &[u8]| {
        if !line.is_empty() {
            tracing::info!(pid, "{name}: {}", String::from_utf8_lossy(line));
        }
    };
    let mut buffer = [0; LONGEST_LINE];
    let mut filled = 0;
    // An error ends the output as its end does: the pipe is of no more use.
    while let Ok(read @ 1..) = output.read(&mut buffer[filled..]).await {
        filled += read;
        let mut start = 0;
        while let Some(length) = buffer[start..filled].iter().position(|byte| *byte == b'\n') {
            emit(&buffer[start..start + length]);
            start += length + 1;
        }
        buffer.copy_within(start..filled, 0);
        filled -= start;
        if filled == buffer.len() {
            emit(&buffer);
            filled = 0;
        }
    }
    emit(&buffer[..filled]);
}

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
