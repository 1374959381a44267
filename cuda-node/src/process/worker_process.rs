//! Worker processes, as their supervisor sees them: launching, killing and reaping.

use std::{
    ffi::{CString, OsString},
    fmt, io, mem,
    num::NonZeroU32,
    os::{
        fd::OwnedFd,
        unix::{fs::FileTypeExt as _, net::UnixStream},
    },
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use rustix::process::WaitIdStatus;
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    runtime::Handle,
};

use super::{
    cgroup::WorkerCgroup,
    descriptors::{BULK_DESCRIPTOR, COMMANDS_DESCRIPTOR, JOBS_DESCRIPTOR, SUCCESSORS_DESCRIPTOR},
    ends::{SupervisorEnds, WorkerEnds, pair},
    error::{Error, Result},
    sandbox::{self, DeviceFiles, Sandbox, WorkerUid},
    spawn::{Child, Held, Namespaces, Program, processor_time_of, start_of},
    successors,
};

/// The longest line of a worker's output that becomes one event, in bytes. Longer lines are split.
const LONGEST_LINE: usize = 4 << 10;

/// The lines of an output of a worker that become events, per second.
const LINES: NonZeroU32 = NonZeroU32::new(50).unwrap();

/// The pause of the reader of an output whose lines are dropped. The worker waits meanwhile.
const PAUSE: Duration = Duration::from_millis(10);

/// The destination of a worker's standard output and standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkerOutput {
    /// The worker writes to the supervisor's standard output and standard error.
    #[default]
    Inherit,
    /// Each line becomes an event of `tracing` with the worker's process id. Its level is that of the line, if it is of
    /// the worker's own log, or `INFO`. A line above 4 KiB becomes several events. Lines beyond 50 per second are dropped,
    /// and an event states their number.
    Trace,
}

/// Launches worker processes of one executable.
#[derive(Clone, Debug)]
pub struct WorkerLauncher {
    executable: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    output: WorkerOutput,
    sandbox: Option<Sandbox>,
    writable: Option<PathBuf>,
    sockets: Option<(PathBuf, Duration)>,
    devices: DeviceFiles,
}

impl WorkerLauncher {
    /// A launcher of the executable at this path, without arguments and without a sandbox. Workers inherit the
    /// supervisor's environment and output.
    pub fn new(executable: impl Into<PathBuf>) -> Self {
        Self {
            executable: executable.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            output: WorkerOutput::default(),
            sandbox: None,
            writable: None,
            sockets: None,
            devices: DeviceFiles::default(),
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

    /// Sets the sandbox of the workers. The argument `--sandbox=...` then follows the other arguments, and the worker
    /// passes its value to [`Confinement::enter`](sandbox::Confinement::enter).
    ///
    /// A worker with a sandbox inherits no variables of the supervisor's environment except `CUDA_*`,
    /// `LD_LIBRARY_PATH`, `RUST_BACKTRACE` and `RUST_LOG`.
    #[must_use]
    pub fn sandbox(mut self, sandbox: Sandbox) -> Self {
        self.sandbox = Some(sandbox);
        self
    }

    /// Sets the folder that a worker with a sandbox may write to. If the worker has a user id of its own, the folder and
    /// its contents become that user's at the launch.
    #[must_use]
    pub fn writable(mut self, folder: impl Into<PathBuf>) -> Self {
        self.writable = Some(folder.into());
        self
    }

    /// Lets workers with a lease outlive this supervisor. Each has a socket in `folder`, which belongs to this user
    /// alone, on which it waits for the next supervisor for at most `wait`. The argument `--outlive-secs=...` then
    /// precedes that of the sandbox, and the worker passes its value to [`Successors::take`](super::Successors::take).
    #[must_use]
    pub fn successors(mut self, folder: impl Into<PathBuf>, wait: Duration) -> Self {
        self.sockets = Some((folder.into(), wait));
        self
    }

    /// Takes over a worker of an earlier supervisor. If it exists, the process is returned also if its sockets cannot be
    /// used: it has the memory of its device until it has ended, so kill it and wait for its end.
    ///
    /// # Errors
    /// [`Error::Gone`] if the worker has ended. [`Error::Unidentified`] if that is unknown. Of the sockets,
    /// [`Error::OtherUid`] if the user id of the worker is not one of the sandbox, and [`Error::Unreachable`] if the worker
    /// accepts no connection.
    pub fn take_over(
        &self,
        record: &WorkerRecord,
    ) -> Result<(WorkerProcess, Result<SupervisorEnds>)> {
        let WorkerRecord { pid, started, socket, uid, cgroup, memory_limit } = record;
        let pid = *pid;
        let (uid, cgroup) = match &self.sandbox {
            Some(sandbox) => (
                uid.map(|uid| sandbox.hold_uid(uid)).transpose(),
                sandbox.hold_cgroup(cgroup).map(Arc::new),
            ),
            None => (Ok(None), None),
        };
        let held = Held { uid: uid.as_ref().ok().cloned().flatten(), cgroup };
        let child = Child::take_over(pid, *started, held.clone()).map_err(|source| {
            let has_ended = source.kind() == io::ErrorKind::NotFound
                || source.raw_os_error() == Some(libc::ESRCH);
            if has_ended {
                Error::Gone { pid, source }
            } else {
                Error::Unidentified { pid, source }
            }
        })?;
        let mut process = WorkerProcess::new(child, None, held.cgroup);
        // Not before: if the process has ended, a later worker may have a socket at the same path.
        process.socket = Some(SocketPath(socket.clone()));
        process.started = Some(*started);
        process.memory_limit = *memory_limit;
        let ends = uid.and_then(|_| {
            successors::connect(socket).map_err(|source| Error::Unreachable { pid, source })
        });
        Ok((process, ends))
    }

    /// Sets the device files that a worker with a sandbox can open, besides those such as `/dev/null`. By default it has
    /// none, as a worker on the CPU.
    #[must_use]
    pub fn devices(mut self, devices: DeviceFiles) -> Self {
        self.devices = devices;
        self
    }

    /// Launches a worker and returns its process and the supervisor's ends of its sockets.
    ///
    /// The worker inherits standard input, output and error and the sockets, and no other descriptor. It is in a
    /// session of its own, so an interrupt at the terminal reaches the supervisor only. While all processors are busy it
    /// gives way to the supervisor: by its cgroup, or by a nice value of 10.
    ///
    /// The call blocks while the operating system copies the process and starts the executable, about a millisecond.
    ///
    /// # Errors
    /// [`Error::NoRuntime`] outside a tokio runtime. [`Error::Sockets`] and [`Error::Spawn`] with the cause of the
    /// operating system. [`Error::NoUid`] if all user ids of the sandbox are in use. [`Error::Cgroup`] if the cgroup of
    /// the worker cannot be created. [`Error::Writable`] if the writable folder cannot be given to the worker. No process
    /// is left then.
    ///
    /// # Panics
    /// Inside a tokio runtime whose I/O is not enabled.
    pub fn launch(&self) -> Result<(WorkerProcess, SupervisorEnds)> {
        let sandbox = self.sandbox.as_ref();
        let uid = sandbox.and_then(Sandbox::take_uid).transpose()?;
        let may_outlive = self.sockets.is_some();
        let cgroup = sandbox.and_then(|sandbox| sandbox.create_cgroup(may_outlive)).transpose()?;
        let held = Held { uid, cgroup: cgroup.map(Arc::new) };
        let runtime = Handle::try_current().map_err(|_| Error::NoRuntime)?;
        let (supervisor, worker) = pair()?;
        let spawn_error = |source| Error::Spawn { executable: self.executable.clone(), source };
        if let (Some(uid), Some(folder)) = (&held.uid, &self.writable) {
            sandbox::give(folder, uid.get(), uid.get()).map_err(Error::Writable)?;
        }
        let successors = self.sockets.as_ref().map(|(folder, _)| {
            let listening = successors::bind(folder);
            listening.map_err(|source| Error::Listener { folder: folder.clone(), source })
        });
        let (socket, listener) = successors.transpose()?.unzip();
        let socket = socket.map(SocketPath);
        let (program, streams) = self.program(worker, listener).map_err(spawn_error)?;
        let child = self.spawn(&program, &held).map_err(spawn_error)?;
        // The program owns the worker's ends, and is dropped on return. So the sockets close when the worker ends.
        let StandardStreams { liveness, output } = streams;
        for (name, stream) in output {
            let lines = trace_lines(child.pid(), name, stream);
            runtime.spawn(lines);
        }
        let mut process = WorkerProcess::new(child, Some(liveness), held.cgroup);
        process.socket = socket;
        Ok((process, supervisor))
    }

    /// Starts a worker in the best namespaces that the machine gives.
    fn spawn(&self, program: &Program, held: &Held) -> io::Result<Child> {
        let Some(sandbox) = &self.sandbox else {
            return program.spawn(Namespaces::None, None, held.clone());
        };
        let attempts: &[_] = match &held.uid {
            // In a user namespace the worker could not become the user that owns its folder.
            Some(_) => &[Namespaces::Pid, Namespaces::None],
            None => &[Namespaces::UserAndPid, Namespaces::User, Namespaces::Pid, Namespaces::None],
        };
        let mut child = Err(io::ErrorKind::Unsupported.into());
        let mut refused = None;
        for namespaces in attempts {
            let writable = self.writable.as_deref();
            let argument = sandbox.argument(
                held.uid.as_ref(),
                writable,
                &self.devices,
                refused.as_ref().map(io::Error::to_string),
            );
            let argument = CString::new(argument)?;
            child = program.spawn(*namespaces, Some(&argument), held.clone());
            match child {
                Ok(child) => return Ok(child),
                // The worker reports the first reason why it has no PID namespace.
                Err(error) if namespaces.has_pid() && refused.is_none() => {
                    refused = Some(io::Error::new(error.kind(), error.to_string()));
                    child = Err(error);
                }
                Err(error) => child = Err(error),
            }
        }
        child
    }

    /// Prepares the program of a worker, with the supervisor's ends of its standard streams.
    ///
    /// They are sockets. A pipe has one lock for both ends, which the kernel keeps while it copies what a process writes: a
    /// hostile worker that writes from memory that is not there, and slows down its memory, stopped a thread of its
    /// supervisor for minutes.
    fn program(
        &self,
        WorkerEnds { commands, bulk, jobs }: WorkerEnds,
        listener: Option<OwnedFd>,
    ) -> io::Result<(Program, StandardStreams)> {
        let (stdin, liveness) = UnixStream::pair()?;
        let mut descriptors: Vec<(OwnedFd, _)> = vec![
            (stdin.into(), 0),
            (commands.into(), COMMANDS_DESCRIPTOR),
            (bulk.into(), BULK_DESCRIPTOR),
            (jobs.into(), JOBS_DESCRIPTOR),
        ];
        descriptors.extend(listener.map(|listener| (listener, SUCCESSORS_DESCRIPTOR)));
        let mut output = Vec::new();
        if self.output == WorkerOutput::Trace {
            for (number, name) in [(1, "stdout"), (2, "stderr")] {
                let (reader, writer) = UnixStream::pair()?;
                descriptors.push((writer.into(), number));
                reader.set_nonblocking(true)?;
                output.push((name, tokio::net::UnixStream::from_std(reader)?));
            }
        }
        let mut arguments = self.arguments.clone();
        if let Some((_, wait)) = &self.sockets {
            arguments.push(format!("--outlive-secs={}", wait.as_secs()).into());
        }
        let is_inherited = |name: &OsString| self.sandbox.is_none() || sandbox::passes(name);
        let mut environment: Vec<_> =
            std::env::vars_os().filter(|(name, _)| is_inherited(name)).collect();
        for (name, value) in &self.environment {
            environment.retain(|(other, _)| other != name);
            environment.push((name.clone(), value.clone()));
        }
        let executable = self.executable.clone().into_os_string();
        let program = Program::new(executable, arguments, environment, descriptors)?;
        Ok((program, StandardStreams { liveness, output }))
    }
}

/// The supervisor's ends of a worker's standard streams.
struct StandardStreams {
    /// The worker's standard input.
    liveness: UnixStream,
    /// The worker's outputs with their names, if the supervisor reads them.
    output: Vec<(&'static str, tokio::net::UnixStream)>,
}

/// Emits the lines of a worker's output as events, until the worker closes it.
async fn trace_lines(pid: u32, name: &'static str, mut output: impl AsyncRead + Unpin) {
    let rate = RateLimiter::direct(Quota::per_second(LINES));
    let mut lines = OutputLines { pid, name, rate, dropped: 0 };
    let mut buffer = [0; LONGEST_LINE];
    let mut filled = 0;
    // An error ends the output as its end does: the socket is of no more use.
    while let Ok(read @ 1..) = output.read(&mut buffer[filled..]).await {
        filled += read;
        let mut start = 0;
        while let Some(length) = buffer[start..filled].iter().position(|byte| *byte == b'\n') {
            lines.emit(&buffer[start..start + length]);
            start += length + 1;
        }
        buffer.copy_within(start..filled, 0);
        filled -= start;
        if filled == buffer.len() {
            lines.emit(&buffer);
            filled = 0;
        }
        if lines.dropped > 0 {
            tokio::time::sleep(PAUSE).await;
        }
    }
    lines.emit(&buffer[..filled]);
    lines.report_dropped();
}

/// The lines of one output of a worker. Those beyond a rate are dropped: kernels that print, or a hostile worker, do not
/// fill the log of the node.
struct OutputLines {
    pid: u32,
    name: &'static str,
    rate: DefaultDirectRateLimiter,
    dropped: u64,
}

impl OutputLines {
    fn emit(&mut self, line: &[u8]) {
        if line.is_empty() {
            return;
        }
        if self.rate.check().is_err() {
            self.dropped += 1;
            return;
        }
        self.report_dropped();
        let (pid, name, line) = (self.pid, self.name, String::from_utf8_lossy(line));
        // A line of the worker's own log has its level behind the time.
        match line.split_whitespace().nth(1) {
            Some("ERROR") => tracing::error!(pid, "{name}: {line}"),
            Some("WARN") => tracing::warn!(pid, "{name}: {line}"),
            _ => tracing::info!(pid, "{name}: {line}"),
        }
    }

    fn report_dropped(&mut self) {
        let lines = mem::take(&mut self.dropped);
        if lines > 0 {
            tracing::warn!(pid = self.pid, "{}: {lines} lines were dropped", self.name);
        }
    }
}

/// A worker process. Dropping it kills the process, and a thread reaps it, so the worker leaves no zombie.
#[derive(Debug)]
pub struct WorkerProcess {
    pid: u32,
    /// `None` once the process is reaped.
    child: Option<Child>,
    exit: ExitCause,
    /// The worker's standard input. A worker that does not outlive this supervisor kills itself when it closes.
    _liveness: Option<UnixStream>,
    cgroup: Option<Arc<WorkerCgroup>>,
    /// The limit of its host memory, if its cgroup has one.
    memory_limit: Option<u64>,
    /// The socket on which it waits for later supervisors.
    socket: Option<SocketPath>,
    /// The time of its start, as [`WorkerRecord::started`], if a later supervisor can find it.
    started: Option<u64>,
    /// The time of processors that it had used at the last look at its end.
    used: Option<u64>,
}

/// The path of a worker's socket, which is removed at the end.
#[derive(Debug)]
struct SocketPath(PathBuf);

impl Drop for SocketPath {
    fn drop(&mut self) {
        // A damaged record may have the path of another file.
        if std::fs::symlink_metadata(&self.0).is_ok_and(|found| found.file_type().is_socket()) {
            _ = std::fs::remove_file(&self.0);
        }
    }
}

/// The record with which the next supervisor takes over a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerRecord {
    /// Its process id.
    pub pid: u32,
    /// The time of its start, in clock ticks since the start of the machine. With the process id, it names one process.
    pub started: u64,
    /// The path of its socket.
    pub socket: PathBuf,
    /// The user id that it has of those for workers.
    pub uid: Option<u32>,
    /// The folders of its cgroup.
    pub cgroup: Vec<PathBuf>,
    /// The limit of its host memory, if its cgroup has one.
    pub memory_limit: Option<u64>,
}

impl WorkerRecord {
    /// Removes the socket of a worker that has ended.
    pub fn remove_socket(&self) {
        drop(SocketPath(self.socket.clone()));
    }
}

impl WorkerProcess {
    fn new(child: Child, liveness: Option<UnixStream>, cgroup: Option<Arc<WorkerCgroup>>) -> Self {
        let (pid, exit) = (child.pid(), ExitCause::Unknown);
        let (child, memory_limit, socket) = (Some(child), None, None);
        let (started, used) = (None, None);
        Self { pid, child, exit, _liveness: liveness, cgroup, memory_limit, socket, started, used }
    }

    /// Lets the process outlive this supervisor, which has not used it. The next one can take it over.
    pub fn leave(self) {
        // Dropping them would end the process, and remove its socket and its cgroup.
        std::mem::forget(self);
    }

    /// Makes sure that a later supervisor can find the worker, if the worker outlives this one. Call it when the worker is
    /// ready, because no call that follows may fail: a lease without a record would end with this supervisor.
    ///
    /// # Errors
    /// [`Error::Unidentified`] if `/proc` does not show the process.
    pub fn identify(&mut self) -> Result<()> {
        if self.socket.is_some() {
            let unidentified = |source| Error::Unidentified { pid: self.pid, source };
            self.started = Some(start_of(self.pid).map_err(unidentified)?);
        }
        Ok(())
    }

    /// Returns the record with which the next supervisor takes over the worker. `None` for a worker that ends with this
    /// one, and before [`identify`](Self::identify).
    pub fn for_successor(&self) -> Option<WorkerRecord> {
        let (SocketPath(socket), started) = self.socket.as_ref().zip(self.started)?;
        let held = self.child.as_ref().map(Child::held).cloned().unwrap_or_default();
        Some(WorkerRecord {
            pid: self.pid,
            started,
            socket: socket.clone(),
            uid: held.uid.as_ref().map(WorkerUid::get),
            cgroup: held.cgroup.map_or_else(Vec::new, |cgroup| cgroup.folders().to_vec()),
            memory_limit: self.memory_limit,
        })
    }

    /// Limits the host memory of the worker to what it uses now and `additional` bytes, if it has a cgroup. The kernel
    /// kills a worker that goes beyond.
    ///
    /// # Errors
    /// The file system of cgroups refuses it. The worker then has no limit.
    pub fn limit_host_memory(&mut self, additional: u64) -> io::Result<()> {
        if let Some(cgroup) = &self.cgroup {
            self.memory_limit = Some(cgroup.limit_memory(additional)?);
        }
        Ok(())
    }

    /// The limit of its host memory in bytes, if the kernel has killed the worker because it went beyond.
    pub fn exceeded_host_memory(&self) -> Option<u64> {
        let is_exceeded = self.cgroup.as_ref().is_some_and(|cgroup| cgroup.is_out_of_memory());
        self.memory_limit.filter(|_| is_exceeded)
    }

    /// The process id in the namespace of the supervisor. It may name another process once this one is reaped.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Kills the process with `SIGKILL`. Does not wait for its end, and does nothing if it has been reaped.
    ///
    /// The process ends even while it waits for a kernel. It keeps its GPU memory until it is reaped, and shortly
    /// afterwards. If the worker has a PID namespace, all of its processes end with it, before it can be reaped.
    pub fn kill(&mut self) {
        if let Some(child) = &mut self.child
            && let Err(error) = child.kill()
        {
            // The process exists until it is reaped, and the supervisor may signal its children.
            tracing::debug!(pid = self.pid, %error, "a worker cannot be signaled; it has exited");
        }
    }

    /// Whether the process, which was killed, is on its way to its end: its threads have given up their memory, or the
    /// kernel has worked for it since the last call. The kernel may need a while to free much memory, or to complete a
    /// call that no signal ends. The process runs no code of its own meanwhile.
    pub fn is_ending(&mut self) -> bool {
        let used = processor_time_of(self.pid).ok();
        let before = std::mem::replace(&mut self.used, used);
        before.is_some_and(|before| used.is_some_and(|used| used > before)) || self.has_no_memory()
    }

    fn has_no_memory(&self) -> bool {
        let Ok(threads) = std::fs::read_dir(format!("/proc/{}/task", self.pid)) else {
            return false;
        };
        // The kernel reports no memory of a thread that has given it up.
        threads.flatten().all(|thread| {
            let memory = std::fs::read_to_string(thread.path().join("statm"));
            memory.is_ok_and(|memory| memory.starts_with("0 "))
        })
    }

    /// Returns whether the process has ended. If it has, reaps it.
    pub fn has_ended(&mut self) -> bool {
        let Some(child) = &mut self.child else { return true };
        match child.try_reap() {
            Ok(None) => false,
            Ok(Some(status)) => self.ended(Ok(status)),
            Err(error) => self.ended(Err(error)),
        }
    }

    /// Waits until the process has ended, and reaps it. Later calls return the same cause immediately.
    ///
    /// The future can be dropped and called again, so it can be a branch of `select!`. It does not kill the process.
    pub async fn reaped(&mut self) -> ExitCause {
        if let Some(child) = &mut self.child {
            let status = child.reaped().await;
            self.ended(status);
        }
        self.exit
    }

    /// Records the end of the process. Returns `true`.
    fn ended(&mut self, status: io::Result<WaitIdStatus>) -> bool {
        self.exit = match status {
            Ok(status) => ExitCause::from(status),
            // That of a worker that an earlier supervisor has started.
            Err(error) if error.kind() == io::ErrorKind::NotFound => ExitCause::Unknown,
            Err(error) => {
                tracing::warn!(pid = self.pid, %error, "the exit status of a worker is lost");
                ExitCause::Unknown
            }
        };
        self.child = None;
        true
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
    /// The process has ended, and its status is lost: an earlier supervisor has started it, or the supervisor was started
    /// with `SIGCHLD` ignored.
    Unknown,
}

impl From<WaitIdStatus> for ExitCause {
    fn from(status: WaitIdStatus) -> Self {
        match (status.exit_status(), status.terminating_signal()) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_of_a_socket_removes_no_other_file() {
        let folder = tempfile::tempdir().unwrap();
        let (file, socket) = (folder.path().join("file"), folder.path().join("socket"));
        std::fs::write(&file, "").unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        drop([file.clone(), socket.clone()].map(SocketPath));
        assert!(file.exists() && !socket.exists());
    }
}
