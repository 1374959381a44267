//! The filter of a worker's system calls.
//!
//! A worker has the calls that the C library, this program and NVIDIA's driver library need. No document lists those of the
//! driver: they are the ones that `libcuda.so` 550 and its compiler of PTX import from the C library or call by number, without
//! the ones for other processes, for programs and for connections. All other calls, also those of later kernels, do not exist
//! for a worker: they fail with `ENOSYS`, after which libraries try an older call or go on without.

use std::collections::BTreeMap;

use rustix::process::Pid;
use seccompiler::{
    BackendError, BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp,
    SeccompCondition, SeccompFilter, SeccompRule, TargetArch, apply_filter,
};

/// The type of the driver's requests of `ioctl`, as `NV_IOCTL_MAGIC` in NVIDIA's `open-gpu-kernel-modules`.
const DRIVER: u64 = (b'F' as u64) << 8;

/// The type of those of `/dev/nvidia-uvm`, whose numbers have none (`uvm_ioctl.h`).
const MANAGED_MEMORY: u64 = 0;

/// An option of `prctl` that `libc` does not have: what `/proc/self/auxv` has.
const PR_GET_AUXV: libc::c_int = 0x4155_5856;

/// Advice of `madvise` that `libc` does not have yet, for the guards of stacks.
const MADV_GUARD_INSTALL: libc::c_int = 102;
const MADV_GUARD_REMOVE: libc::c_int = 103;

/// The maximum number of bytes of memory that `mincore` looks at, or that `madvise` gives up. Libraries look at a few pages,
/// and ignore that memory is not given up.
const MEMORY: u64 = 1 << 30;

/// Calls that are allowed with all arguments.
const ALLOWED: &[i64] = &[
    // Memory.
    libc::SYS_brk,
    libc::SYS_get_mempolicy,
    libc::SYS_mlock,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munlock,
    libc::SYS_munmap,
    libc::SYS_set_mempolicy,
    // Files. Their paths are limited by the root folder and by Landlock.
    #[cfg(target_arch = "x86_64")]
    libc::SYS_access,
    libc::SYS_close,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_creat,
    libc::SYS_dup,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_dup2,
    libc::SYS_dup3,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_ftruncate,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_lseek,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lstat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mkdir,
    libc::SYS_mkdirat,
    libc::SYS_newfstatat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_pipe,
    libc::SYS_pipe2,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_read,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rmdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
    libc::SYS_statfs,
    libc::SYS_statx,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_symlink,
    libc::SYS_symlinkat,
    libc::SYS_umask,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    libc::SYS_unlinkat,
    libc::SYS_write,
    libc::SYS_writev,
    // Waiting for descriptors.
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_eventfd,
    libc::SYS_eventfd2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_select,
    // Sockets. Not `sendmsg`, which puts descriptors into the queue of a socket. Such a descriptor keeps what it refers to
    // until the supervisor reads it, also after the end of the worker: memory, also of the GPU, and the worker's ends of
    // sockets.
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_listen,
    libc::SYS_recvmsg,
    libc::SYS_shutdown,
    // This process and its threads.
    #[cfg(target_arch = "x86_64")]
    libc::SYS_arch_prctl,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getcpu,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getpriority,
    libc::SYS_getrandom,
    libc::SYS_getrlimit,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_getuid,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_pause,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    // A program names its own threads in it by ids that the filter does not know.
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_setrlimit,
    libc::SYS_sigaltstack,
    libc::SYS_sysinfo,
    libc::SYS_times,
    libc::SYS_uname,
    libc::SYS_wait4,
    libc::SYS_waitid,
    // Time.
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_nanosleep,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_time,
];

/// The calls of a filter, each with conditions of which one must hold. None for all arguments.
#[derive(Default)]
struct Calls(BTreeMap<i64, Vec<SeccompRule>>);

impl Calls {
    /// Adds a call to the filter if all these conditions hold.
    fn add_if(&mut self, call: i64, conditions: Vec<SeccompCondition>) -> Result<(), Error> {
        self.0.entry(call).or_default().push(SeccompRule::new(conditions)?);
        Ok(())
    }

    /// The filter: `action` for these calls, `other` for the others.
    fn program(self, action: SeccompAction, other: SeccompAction) -> Result<BpfProgram, Error> {
        let processor = TargetArch::try_from(std::env::consts::ARCH)?;
        Ok(SeccompFilter::new(self.0, other, action, processor)?.try_into()?)
    }
}

/// Filters the system calls of this thread and of its later threads, forever. `own` is the id of this process.
///
/// # Errors
/// The kernel has no such filters, or the processor is not supported.
pub(super) fn filter(own: Pid) -> Result<(), Error> {
    let own = own.as_raw_nonzero().get() as u64;
    let mut calls = Calls(ALLOWED.iter().map(|call| (*call, Vec::new())).collect());
    // Threads, with the descriptors of the process: the limit is one for each table of them. Not `clone3`, which takes its flags
    // from memory.
    let thread = (libc::CLONE_THREAD | libc::CLONE_FILES) as u64;
    calls.add_if(libc::SYS_clone, vec![flags(0, thread, thread)?])?;
    let unshare = u64::from(libc::CLOSE_RANGE_UNSHARE);
    calls.add_if(libc::SYS_close_range, vec![flags(2, unshare, 0)?])?;
    // Signals to this process. A signal to one of its threads, which `tkill` sends, could go to another process.
    for call in
        [libc::SYS_kill, libc::SYS_tgkill, libc::SYS_rt_sigqueueinfo, libc::SYS_rt_tgsigqueueinfo]
    {
        calls.add_if(call, vec![is(0, own)?])?;
    }
    // Limits and priorities of this process.
    for call in [libc::SYS_prlimit64, libc::SYS_sched_setscheduler, libc::SYS_sched_setparam] {
        calls.add_if(call, vec![is(0, 0)?])?;
        calls.add_if(call, vec![is(0, own)?])?;
    }
    let one_process = libc::PRIO_PROCESS as u64;
    calls.add_if(libc::SYS_setpriority, vec![is(0, one_process)?, is(1, 0)?])?;
    // Not the options that add filters of system calls, schedule cores for groups of processes, or allow core files: those
    // have all memory of a process, and a program outside of its cgroup may take them.
    for option in [
        libc::PR_SET_NAME,
        libc::PR_GET_NAME,
        libc::PR_SET_PDEATHSIG,
        libc::PR_SET_TIMERSLACK,
        libc::PR_SET_VMA,
        PR_GET_AUXV,
    ] {
        calls.add_if(libc::SYS_prctl, vec![is(0, option as u64)?])?;
    }
    allow_files(&mut calls)?;
    allow_sockets(&mut calls)?;
    allow_memory(&mut calls)?;
    let unknown = SeccompAction::Errno(libc::ENOSYS as u32);
    let filter = calls.program(SeccompAction::Allow, unknown)?;
    apply_filter(&ignore_locks()?)?;
    // The last one, because it refuses more filters: their code has a limit for the whole machine, beyond which no other
    // worker gets its filter.
    apply_filter(&filter)
}

/// Calls on files and descriptors.
fn allow_files(calls: &mut Calls) -> Result<(), Error> {
    // Not reads past the page cache. No signal ends them, and a thousand threads of a worker could read a large library each.
    // Not `openat2` either, which takes its flags from memory.
    let direct = libc::O_DIRECT as u64;
    #[cfg(target_arch = "x86_64")]
    calls.add_if(libc::SYS_open, vec![flags(1, direct, 0)?])?;
    calls.add_if(libc::SYS_openat, vec![flags(2, direct, 0)?])?;
    // A descriptor with `O_ASYNC` sends signals to any process.
    let flags_of_files =
        vec![is(1, libc::F_SETFL as u64)?, flags(2, direct | libc::O_ASYNC as u64, 0)?];
    calls.add_if(libc::SYS_fcntl, flags_of_files)?;
    // Not locks of open files, of which one may have millions (see `ignore_locks`), leases of files, for which others wait,
    // reports of what others open, signals of descriptors, and larger pipes.
    for command in [
        libc::F_DUPFD,
        libc::F_DUPFD_CLOEXEC,
        libc::F_GETFD,
        libc::F_SETFD,
        libc::F_GETFL,
        libc::F_GETLK,
        libc::F_SETLK,
        libc::F_SETLKW,
    ] {
        calls.add_if(libc::SYS_fcntl, vec![is(1, command as u64)?])?;
    }
    // Requests of the driver, and those that libraries make of every descriptor. Not the ones that signal another process or
    // type into the terminal of the operator, and not those of file systems.
    for kind in [DRIVER, MANAGED_MEMORY] {
        calls.add_if(libc::SYS_ioctl, vec![flags(1, 0xff00, kind)?])?;
    }
    for request in [libc::TCGETS, libc::FIONREAD, libc::FIONBIO, libc::FIOCLEX] {
        calls.add_if(libc::SYS_ioctl, vec![is(1, request)?])?;
    }
    Ok(())
}

/// Calls on sockets.
fn allow_sockets(calls: &mut Calls) -> Result<(), Error> {
    // The driver binds Unix sockets to a name in its network namespace. Not sockets for datagrams, also not those of a pair:
    // datagrams need no connection. A raw Unix socket is one for datagrams.
    let unix = is(0, libc::AF_UNIX as u64)?;
    for call in [libc::SYS_socket, libc::SYS_socketpair] {
        for kind in [libc::SOCK_STREAM, libc::SOCK_SEQPACKET] {
            calls.add_if(call, vec![unix.clone(), flags(1, 0xf, kind as u64)?])?;
        }
    }
    for call in [libc::SYS_sendto, libc::SYS_recvfrom] {
        calls.add_if(call, vec![flags(3, libc::MSG_OOB as u64, 0)?])?;
    }
    // Not the options that add filters.
    let mut conditions = vec![is(1, libc::SOL_SOCKET as u64)?];
    for option in [
        libc::SO_ATTACH_FILTER,
        libc::SO_ATTACH_BPF,
        libc::SO_ATTACH_REUSEPORT_CBPF,
        libc::SO_ATTACH_REUSEPORT_EBPF,
    ] {
        conditions.push(is_not(2, option as u64)?);
    }
    calls.add_if(libc::SYS_setsockopt, conditions)
}

/// Calls on memory. No signal ends a call on much memory, and some kernels run nothing else on its processor meanwhile.
fn allow_memory(calls: &mut Calls) -> Result<(), Error> {
    // Not huge pages that the operator has reserved.
    calls.add_if(libc::SYS_mmap, vec![flags(3, libc::MAP_HUGETLB as u64, 0)?])?;
    // Without flags, which move pages.
    calls.add_if(libc::SYS_mbind, vec![is(5, 0)?])?;
    let is_short = || SeccompCondition::new(1, SeccompCmpArgLen::Qword, SeccompCmpOp::Le, MEMORY);
    calls.add_if(libc::SYS_mincore, vec![is_short()?])?;
    for advice in [
        libc::MADV_NORMAL,
        libc::MADV_RANDOM,
        libc::MADV_SEQUENTIAL,
        libc::MADV_WILLNEED,
        libc::MADV_DONTNEED,
        libc::MADV_DONTFORK,
        libc::MADV_DOFORK,
        libc::MADV_HUGEPAGE,
        libc::MADV_NOHUGEPAGE,
        libc::MADV_DONTDUMP,
    ] {
        calls.add_if(libc::SYS_madvise, vec![is(2, advice as u64)?])?;
    }
    for advice in [libc::MADV_FREE, MADV_GUARD_INSTALL, MADV_GUARD_REMOVE] {
        calls.add_if(libc::SYS_madvise, vec![is(2, advice as u64)?, is_short()?])?;
    }
    Ok(())
}

/// The lower half of an argument is this number.
fn is(argument: u8, number: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, number)
}

/// The lower half of an argument is another number.
fn is_not(argument: u8, number: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, number)
}

/// The bits of `mask` in the lower half of an argument are those of `bits`.
fn flags(argument: u8, mask: u64, bits: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(mask), bits)
}

/// A filter with which locks of parts of files succeed and have no effect. A file may have millions of them, and the kernel
/// lists them without a pause for other processes. The driver locks the index of its cache, which only this process uses, and
/// has no cache if that is refused.
fn ignore_locks() -> Result<BpfProgram, Error> {
    let mut locks = Calls::default();
    for command in [libc::F_SETLK, libc::F_SETLKW] {
        locks.add_if(libc::SYS_fcntl, vec![is(1, command as u64)?])?;
    }
    locks.program(SeccompAction::Errno(0), SeccompAction::Allow)
}
