//! Starts a process in namespaces of its own: one `clone`, then `exec`.
//!
//! The standard library cannot start a process in a PID namespace. A child of `unshare` would be the grandchild of the
//! supervisor, with a second process for each worker, and another process id than the one that NVML reports. With
//! `clone` the worker is a child of the supervisor. It is process 1 of its namespace, so the kernel ends all processes
//! of the namespace when it ends, and before the supervisor can reap it.
//!
//! # Rules
//! - Between `clone` and `exec` the child uses the memory of the supervisor, whose calling thread waits meanwhile. A copy
//!   of the page tables would take milliseconds for each 100 MiB, in which no thread of the supervisor gets memory. The code
//!   of the child only makes system calls: no allocation, no lock, no panic. Everything that it needs is prepared before.
//! - No handler of the supervisor's signals runs in the child: signals are blocked during `clone`, and the child removes
//!   the handlers before it admits signals again.
//! - The descriptors that the child receives are numbered above those that it gives them, so no `dup2` of the child
//!   replaces one that a later `dup2` needs.

use std::{
    ffi::{CStr, CString, OsString, c_char, c_int, c_uint, c_void},
    fs::File,
    io::{self, PipeReader, PipeWriter, Read as _},
    os::{
        fd::{AsFd as _, AsRawFd, FromRawFd as _, OwnedFd, RawFd},
        unix::ffi::OsStringExt as _,
    },
    ptr,
    sync::Arc,
    thread,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::CWD,
    io::Errno,
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags,
        fsconfig_create, fsmount, fsopen, mount_change, move_mount,
    },
    process::{
        PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus, pidfd_open, pidfd_send_signal,
        waitid,
    },
    thread::{CapabilitySet, CapabilitySets},
};
use tokio::io::{Interest, unix::AsyncFd};

use super::{cgroup::WorkerCgroup, descriptors::FIRST_FREE_DESCRIPTOR, sandbox::WorkerUid};

/// The capabilities of the first process in a user namespace, with which the worker sets up its sandbox. The worker
/// drops them before it opens its device.
const SETUP: CapabilitySet = CapabilitySet::SYS_ADMIN.union(CapabilitySet::SETPCAP);

/// The nice value of a worker that has no share of the processors in a cgroup. With 19 it would hardly get on beside
/// other programs of a busy machine, and a GPU would wait for it.
const NICE: c_int = 10;

/// The stack of the thread that reaps a dropped process, in bytes.
const STACK: usize = 64 << 10;

/// The stack of a child until it has become its program, in bytes.
const CHILD_STACK: usize = 64 << 10;

/// The namespaces in which a process starts. The worker enters the other ones itself.
///
/// A PID namespace comes with a mount namespace, and with a `/proc` of its own there: CUDA fails if `/proc/self` has
/// another process id than `getpid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Namespaces {
    /// Those of the supervisor.
    None,
    /// A PID namespace. Needs `CAP_SYS_ADMIN`.
    Pid,
    /// A user namespace. The process has [`SETUP`] there, and maps its user itself.
    User,
    /// A user namespace as with [`User`](Self::User), and a PID namespace in it.
    UserAndPid,
}

impl Namespaces {
    fn flags(self) -> c_int {
        let user = if self.has_user() { libc::CLONE_NEWUSER } else { 0 };
        let pid = if self.has_pid() { libc::CLONE_NEWPID | libc::CLONE_NEWNS } else { 0 };
        user | pid
    }

    fn has_user(self) -> bool {
        matches!(self, Self::User | Self::UserAndPid)
    }

    pub(super) fn has_pid(self) -> bool {
        matches!(self, Self::Pid | Self::UserAndPid)
    }
}

/// The resources of a process until it is reaped.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    pub(super) uid: Option<WorkerUid>,
    pub(super) cgroup: Option<Arc<WorkerCgroup>>,
}

/// A program with all that its process receives.
pub(super) struct Program {
    executable: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    /// The descriptors, and their numbers in the process.
    descriptors: Vec<(OwnedFd, RawFd)>,
}

impl Program {
    /// Prepares a program. The first argument is the executable itself. The process receives `descriptors` under the
    /// given numbers, which are below [`FIRST_FREE_DESCRIPTOR`].
    ///
    /// # Errors
    /// A string contains a zero byte, or the process has too many open files.
    pub(super) fn new(
        executable: OsString,
        arguments: impl IntoIterator<Item = OsString>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        descriptors: impl IntoIterator<Item = (OwnedFd, RawFd)>,
    ) -> io::Result<Self> {
        let string = |text: OsString| CString::new(text.into_vec()).map_err(io::Error::from);
        let variable = |(mut name, value): (OsString, OsString)| {
            name.push("=");
            name.push(value);
            string(name)
        };
        let above = |(descriptor, number): (OwnedFd, RawFd)| {
            let moved = rustix::io::fcntl_dupfd_cloexec(&descriptor, FIRST_FREE_DESCRIPTOR)?;
            Ok::<_, io::Error>((moved, number))
        };
        Ok(Self {
            executable: string(executable)?,
            arguments: arguments.into_iter().map(string).collect::<io::Result<_>>()?,
            environment: environment.into_iter().map(variable).collect::<io::Result<_>>()?,
            descriptors: descriptors.into_iter().map(above).collect::<io::Result<_>>()?,
        })
    }

    /// Starts the process, and waits until the program has taken over. It starts in the cgroup of `held`. Its last
    /// argument is `last`.
    ///
    /// # Errors
    /// The namespaces or the process cannot be created, or the executable cannot be started. No process is left then.
    pub(super) fn spawn(
        &self,
        namespaces: Namespaces,
        last: Option<&CStr>,
        held: Held,
    ) -> io::Result<Child> {
        let (mut failed, failure) = status_pipe()?;
        let cgroups = held.cgroup.as_ref().map(|cgroup| cgroup.entrances()).transpose()?;
        let strings = |list: &[CString]| -> Vec<*const c_char> {
            list.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
        };
        let mut arguments = strings(&self.arguments);
        arguments.insert(0, self.executable.as_ptr());
        if let Some(last) = last {
            arguments.insert(arguments.len() - 1, last.as_ptr());
        }
        let start = Start {
            executable: &self.executable,
            arguments: &arguments,
            environment: &strings(&self.environment),
            descriptors: &self.descriptors,
            failure: &failure,
            cgroups: cgroups.as_deref().unwrap_or_default(),
            namespaces,
            is_nice: !held.cgroup.as_ref().is_some_and(|cgroup| cgroup.has_share()),
        };
        // SAFETY: `start` keeps the pointers valid, and the child runs only `Start::run`.
        let child = unsafe { clone(namespaces.flags(), held, &start) }?;
        drop(failure);
        let mut error = [0; size_of::<c_int>()];
        match failed.read_exact(&mut error) {
            // The pipe was closed by `exec`.
            Err(end) if end.kind() == io::ErrorKind::UnexpectedEof => Ok(child),
            Err(other) => Err(other),
            // Dropping the child reaps it.
            Ok(()) => Err(io::Error::from_raw_os_error(c_int::from_ne_bytes(error))),
        }
    }
}

/// A pipe that `exec` closes, with a writing end above the numbers of the descriptors.
fn status_pipe() -> io::Result<(PipeReader, PipeWriter)> {
    let (reader, writer) = io::pipe()?;
    let writer = rustix::io::fcntl_dupfd_cloexec(&writer, FIRST_FREE_DESCRIPTOR)?;
    Ok((reader, writer.into()))
}

/// The data of the child between `clone` and `exec`.
struct Start<'a> {
    executable: &'a CStr,
    /// Pointers to C strings, and a null pointer.
    arguments: &'a [*const c_char],
    /// Pointers to C strings, and a null pointer.
    environment: &'a [*const c_char],
    descriptors: &'a [(OwnedFd, RawFd)],
    failure: &'a PipeWriter,
    /// The entrances of the cgroups that the process enters.
    cgroups: &'a [File],
    namespaces: Namespaces,
    /// Whether the process gives way to others by its nice value.
    is_nice: bool,
}

impl Start<'_> {
    /// Becomes the program, or reports the error and exits.
    ///
    /// # Safety
    /// Only the child calls it. The pointers in `arguments` and `environment` are valid.
    unsafe fn run(&self) -> ! {
        let error = match self.prepare() {
            Err(error) => error.raw_os_error(),
            Ok(()) => {
                // SAFETY: the executable is a C string, both lists end with a null pointer, and their other pointers
                // are C strings.
                unsafe {
                    libc::execve(
                        self.executable.as_ptr(),
                        self.arguments.as_ptr(),
                        self.environment.as_ptr(),
                    );
                    *libc::__errno_location()
                }
            }
        };
        _ = rustix::io::write(self.failure, &error.to_ne_bytes());
        // SAFETY: ends the process without running any other code of it.
        unsafe { libc::_exit(127) }
    }

    fn prepare(&self) -> rustix::io::Result<()> {
        for cgroup in self.cgroups {
            rustix::io::write(cgroup, b"0")?;
        }
        if self.namespaces.has_pid() {
            mount_proc()?;
        }
        for (descriptor, number) in self.descriptors {
            // SAFETY: `number` has no owner in this process, which runs no other code before `exec`.
            if unsafe { libc::dup2(descriptor.as_raw_fd(), *number) } < 0 {
                // SAFETY: the error number of this thread.
                return Err(Errno::from_raw_os_error(unsafe { *libc::__errno_location() }));
            }
        }
        // Rust and rustix open descriptors close-on-exec. This covers libraries that do not, and descriptors that the
        // supervisor itself inherited. Kernels older than 5.11 do not support it.
        // SAFETY: the call sets flags of descriptors. It touches no memory of this process.
        unsafe {
            libc::syscall(
                libc::SYS_close_range,
                FIRST_FREE_DESCRIPTOR as c_uint,
                c_uint::MAX,
                libc::CLOSE_RANGE_CLOEXEC,
            );
        }
        // An interrupt at the terminal reaches the supervisor only. On many machines, processes outside of cgroups also
        // share the processors by sessions (`sched_autogroup_enabled`): threads of a worker then count as one.
        rustix::process::setsid()?;
        if self.is_nice {
            // SAFETY: the call changes the nice value of this process. It fails if the supervisor has a greater one.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
        }
        // SAFETY: the calls change the state of this process's signals. The signal set is initialized.
        unsafe {
            // Not `signal`, which also changes a static variable of the C library. Numbers without a signal are errors
            // without effect.
            let default: libc::sigaction = std::mem::zeroed();
            for signal in 1..=libc::SIGRTMAX() {
                libc::sigaction(signal, &default, ptr::null_mut());
            }
            let mut none = std::mem::zeroed();
            libc::sigemptyset(&mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &none, ptr::null_mut());
        }
        if self.namespaces.has_user() {
            // `exec` drops the capabilities of a user that is not root, except ambient ones.
            let sets = CapabilitySets { effective: SETUP, permitted: SETUP, inheritable: SETUP };
            rustix::thread::set_capabilities(None, sets)?;
            for capability in [CapabilitySet::SYS_ADMIN, CapabilitySet::SETPCAP] {
                rustix::thread::configure_capability_in_ambient_set(capability, true)?;
            }
        }
        Ok(())
    }
}

/// Mounts a `/proc` of this PID namespace, in a mount namespace that has just been created.
fn mount_proc() -> rustix::io::Result<()> {
    mount_change(c"/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let proc = fsopen(c"proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&proc)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let mounts = fsmount(&proc, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    move_mount(&mounts, c"", CWD, c"/proc", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

/// The first function of a child, on a stack of its own.
extern "C" fn run_child(start: *mut c_void) -> c_int {
    // SAFETY: `clone` passes a `Start` that lives until the child has become its program. This is the child, and the caller
    // of `clone` keeps the pointers of the `Start` valid.
    unsafe { (*start.cast::<Start<'_>>()).run() }
}

/// Creates a child that becomes the program of `start`.
///
/// # Safety
/// The pointers of `start` are valid.
unsafe fn clone(flags: c_int, held: Held, start: &Start<'_>) -> io::Result<Child> {
    let flags = flags | libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
    let mut descriptor: c_int = -1;
    let mut stack = vec![0u128; CHILD_STACK / size_of::<u128>()];
    // SAFETY: the kernel writes the descriptor of the child to `descriptor`. The child has a stack of its own, which grows
    // down from its aligned end. `CLONE_VFORK` stops this thread until the child has become its program or has exited, so
    // the stack and `start` live long enough, and both do not use errno of this thread at a time. The signal sets are
    // initialized before they are read.
    let (pid, error) = unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut before);
        let pid = libc::clone(
            run_child,
            stack.as_mut_ptr_range().end.cast(),
            flags,
            ptr::from_ref(start).cast_mut().cast(),
            &raw mut descriptor,
        );
        let error = io::Error::last_os_error();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut());
        (pid, error)
    };
    match pid {
        ..0 => Err(error),
        pid => {
            // SAFETY: the kernel created the descriptor for this call.
            let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
            let pid = u32::try_from(pid).unwrap_or_default();
            let process = Process { descriptor, is_child: true, is_reaped: false, held };
            // SAFETY: the process owns its descriptor, and never replaces it. An error drops the process, which kills
            // and reaps it.
            let process = unsafe { AsyncFd::register_with_interest(process, Interest::READABLE) }?;
            Ok(Child { pid, process })
        }
    }
}

/// A process of a worker: a child, or the child of an earlier supervisor. Dropping it kills the process. A thread then
/// waits for its end, and reaps it if it is a child.
#[derive(Debug)]
pub(super) struct Child {
    pid: u32,
    process: AsyncFd<Process>,
}

impl Child {
    /// Takes over a process that an earlier supervisor has started, with what it holds.
    ///
    /// # Errors
    /// [`NotFound`](io::ErrorKind::NotFound) or `ESRCH` if it has ended, or another process has its id now. Otherwise it
    /// is unknown whether it has ended.
    pub(super) fn take_over(pid: u32, started: u64, held: Held) -> io::Result<Self> {
        let raw = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
        let raw = raw.ok_or(io::ErrorKind::NotFound)?;
        let descriptor = pidfd_open(raw, PidfdFlags::empty()).map_err(|error| match error {
            // A thread of another process has the id now, on Linux before 6.15.
            Errno::INVAL => io::ErrorKind::NotFound.into(),
            error => io::Error::from(error),
        })?;
        // The descriptor refers to one process. If that one has the right start, it is the right one.
        if start_of(pid)? != started {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut process = Process { descriptor, is_child: false, is_reaped: false, held };
        // One that has ended exists until its parent takes its status.
        process.reap()?;
        // SAFETY: the process owns its descriptor, and never replaces it.
        let process = unsafe { AsyncFd::register_with_interest(process, Interest::READABLE) };
        Ok(Self { pid, process: process? })
    }

    /// The process id in the namespace of the supervisor.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// The user id and the cgroup of the process.
    pub(super) fn held(&self) -> &Held {
        &self.process.get_ref().held
    }

    /// Kills the process with `SIGKILL`, and with it the processes of its PID namespace if it has one.
    ///
    /// # Errors
    /// The process has ended.
    pub(super) fn kill(&self) -> io::Result<()> {
        self.process.get_ref().kill()
    }

    /// Reaps the process if it has ended. Returns `None` if it has not.
    ///
    /// # Errors
    /// The status is lost, because the supervisor ignores `SIGCHLD`.
    pub(super) fn try_reap(&mut self) -> io::Result<Option<WaitIdStatus>> {
        self.process.get_mut().reap()
    }

    /// Waits until the process has ended, and reaps it. The future can be dropped and called again.
    ///
    /// # Errors
    /// The status is lost, because the supervisor ignores `SIGCHLD`, or the runtime has ended.
    pub(super) async fn reaped(&mut self) -> io::Result<WaitIdStatus> {
        loop {
            let mut readable = self.process.readable_mut().await?;
            if let Some(status) = readable.get_inner_mut().reap()? {
                return Ok(status);
            }
            readable.clear_ready();
        }
    }
}

/// The descriptor of a child process.
#[derive(Debug)]
struct Process {
    descriptor: OwnedFd,
    /// Whether this process has started it. Otherwise the first process of the system reaps it.
    is_child: bool,
    is_reaped: bool,
    held: Held,
}

impl Process {
    fn kill(&self) -> io::Result<()> {
        Ok(pidfd_send_signal(&self.descriptor, Signal::KILL)?)
    }

    fn reap(&mut self) -> io::Result<Option<WaitIdStatus>> {
        if !self.is_child {
            let mut ended = [PollFd::new(&self.descriptor, PollFlags::IN)];
            let has_ended = poll(&mut ended, Some(&Timespec::default()))? > 0;
            self.is_reaped |= has_ended;
            // The status is known to its parent only.
            return if has_ended { Err(io::ErrorKind::NotFound.into()) } else { Ok(None) };
        }
        let id = WaitId::PidFd(self.descriptor.as_fd());
        let status = waitid(id, WaitIdOptions::EXITED | WaitIdOptions::NOHANG)?;
        self.is_reaped |= status.is_some();
        Ok(status)
    }
}

impl AsRawFd for Process {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.is_reaped || self.kill().is_err() {
            // An error means that the process has ended and was reaped.
            return;
        }
        let Ok(descriptor) = self.descriptor.try_clone() else { return };
        // The end of a process with a GPU takes up to 100 ms, so a thread waits for it. Until then no other process may
        // have its user id, and its cgroup cannot be removed. Without the thread, a child remains as a zombie until the
        // supervisor ends.
        let (is_child, held) = (self.is_child, std::mem::take(&mut self.held));
        let reap = move || {
            if is_child {
                _ = waitid(WaitId::PidFd(descriptor.as_fd()), WaitIdOptions::EXITED);
            } else {
                _ = poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], None);
            }
            drop(held);
        };
        _ = thread::Builder::new().name("worker-reaper".into()).stack_size(STACK).spawn(reap);
    }
}

/// The time at which a process started, in clock ticks since the start of the machine.
///
/// # Errors
/// There is no such process, or `/proc` does not show it.
pub(super) fn start_of(pid: u32) -> io::Result<u64> {
    let [started] = fields_of(pid, [22])?;
    Ok(started)
}

/// The time of processors that the threads of a process have used, in clock ticks.
///
/// # Errors
/// There is no such process, or `/proc` does not show it.
pub(super) fn processor_time_of(pid: u32) -> io::Result<u64> {
    let [user, system] = fields_of(pid, [14, 15])?;
    Ok(user.saturating_add(system))
}

/// Fields of `proc_pid_stat(5)`, by the numbers that they have there.
fn fields_of<const N: usize>(pid: u32, numbers: [usize; N]) -> io::Result<[u64; N]> {
    let status = std::fs::read(format!("/proc/{pid}/stat"))?;
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    // The process chooses its name, which may be no text, and may contain spaces. Two fields end with its bracket.
    let status = String::from_utf8_lossy(&status);
    let (_, rest) = status.rsplit_once(')').ok_or_else(invalid)?;
    let mut values = [0; N];
    for (value, number) in values.iter_mut().zip(numbers) {
        let field = rest.split_whitespace().nth(number.saturating_sub(3));
        *value = field.and_then(|field| field.parse().ok()).ok_or_else(invalid)?;
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// A hostile worker chooses its name. The next supervisor has to find it, and to see that it is on its way to its end.
    #[tokio::test]
    async fn process_is_found_whatever_its_name_is() {
        let rename = r"printf ') \377 1' > /proc/$$/comm && echo && read line";
        let mut shell = Command::new("/bin/sh");
        let shell = shell.args(["-c", rename]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        shell.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let pid = shell.id();
        let found =
            start_of(pid).and_then(|started| Child::take_over(pid, started, Held::default()));
        assert!(processor_time_of(pid).is_ok());
        found.unwrap().kill().unwrap();
        shell.wait().unwrap();
    }
}
