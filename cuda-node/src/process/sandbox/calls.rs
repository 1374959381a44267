//! The filter of a worker's system calls.
//!
//! Workers run NVIDIA's driver library, whose system calls no document lists. So the filter refuses what a worker must
//! not do, and allows the other calls that exist today. Calls of later kernels do not exist for a worker.

use std::collections::BTreeMap;

use rustix::process::Pid;
use seccompiler::{
    BackendError, BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp,
    SeccompCondition, SeccompFilter, SeccompRule, TargetArch, apply_filter, sock_filter,
};

/// The number of the last system call that a worker can use: `file_setattr` of Linux 6.17, on all architectures that
/// are supported.
const LAST: i64 = 469;

/// The kind of target of `ioprio_set` that is one process.
const IOPRIO_WHO_PROCESS: u64 = 1;

/// Commands of `fcntl` and requests of `ioctl` of Linux that `libc` does not have, or not on every architecture.
const F_SETSIG: libc::c_int = 10;
const F_SETOWN_EX: libc::c_int = 15;
const F_OFD_SETLK: libc::c_int = 37;
const F_OFD_SETLKW: libc::c_int = 38;
const F_SETDELEG: libc::c_int = 1040;
const FIOSETOWN: u64 = 0x8901;
const SIOCSPGRP: u64 = 0x8902;

/// A call of Linux that `libc` does not have yet.
const SYS_OPEN_TREE_ATTR: i64 = 467;

/// The maximum number of bytes of memory that `mincore` looks at, or that `madvise` gives up. Libraries look at a few pages,
/// and ignore that memory is not given up.
const MEMORY: u64 = 1 << 30;

/// Calls that are refused with `EPERM`.
const REFUSED: &[i64] = &[
    // Programs and namespaces.
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_chroot,
    libc::SYS_pivot_root,
    libc::SYS_personality,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
    // Mounts.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    SYS_OPEN_TREE_ATTR,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_fanotify_mark,
    libc::SYS_mknodat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mknod,
    // Waits for the disks of all others, which no signal ends: the node would fence the device of a worker that does not
    // end.
    libc::SYS_sync,
    libc::SYS_syncfs,
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    libc::SYS_kcmp,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_tkill,
    // They put descriptors into the queues of its sockets. Such a descriptor keeps what it refers to until the
    // supervisor reads it, also after the end of the worker: memory, also of the GPU, and the worker's ends of sockets.
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    // Their number is one for the whole machine.
    libc::SYS_io_setup,
    libc::SYS_io_submit,
    // Communication other than with its descriptors.
    libc::SYS_connect,
    libc::SYS_accept,
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_msgget,
    libc::SYS_msgctl,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_semget,
    libc::SYS_semctl,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    // More filters. Their code has a limit for the whole machine, beyond which no other worker gets its filter.
    libc::SYS_seccomp,
    // Each of its rules is copied without a pause for other processes.
    libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_add_rule,
    libc::SYS_landlock_restrict_self,
    // The kernel and its interfaces with many faults.
    libc::SYS_memfd_secret,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    libc::SYS_lookup_dcookie,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
];

/// Filters the system calls of this thread and of its later threads, forever. `own` is the id of this process.
///
/// # Errors
/// The kernel has no such filters, or the processor is not supported.
pub(super) fn filter(own: Pid) -> Result<(), Error> {
    let own = own.as_raw_nonzero().get() as u64;
    let mut refused: BTreeMap<i64, Vec<SeccompRule>> =
        REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    let mut refuse_if = |call, conditions: &[(u8, SeccompCmpOp, u64)]| -> Result<(), Error> {
        let conditions = conditions.iter();
        let conditions =
            conditions.map(|(argument, operator, value)| is(*argument, operator.clone(), *value));
        let rule = SeccompRule::new(conditions.collect::<Result<_, _>>()?)?;
        refused.entry(call).or_default().push(rule);
        Ok(())
    };
    // A process that it creates. Threads are allowed, with the descriptors of the process: the limit is one for each table
    // of them.
    for flag in [libc::CLONE_THREAD, libc::CLONE_FILES] {
        refuse_if(libc::SYS_clone, &[(0, SeccompCmpOp::MaskedEq(flag as u64), 0)])?;
    }
    let unshare = u64::from(libc::CLOSE_RANGE_UNSHARE);
    refuse_if(libc::SYS_close_range, &[(2, SeccompCmpOp::MaskedEq(unshare), unshare)])?;
    // Signals to others.
    for call in
        [libc::SYS_kill, libc::SYS_tgkill, libc::SYS_rt_sigqueueinfo, libc::SYS_rt_tgsigqueueinfo]
    {
        refuse_if(call, &[(0, SeccompCmpOp::Ne, own)])?;
    }
    // Signals of a descriptor, which go to any process.
    for command in [libc::F_SETOWN, F_SETSIG, F_SETOWN_EX] {
        refuse_if(libc::SYS_fcntl, &[(1, SeccompCmpOp::Eq, command as u64)])?;
    }
    // Locks of open files, of which one may have millions (see `ignore_locks`), leases of files, for which others wait, and
    // reports of what others open.
    for command in [F_OFD_SETLK, F_OFD_SETLKW, libc::F_SETLEASE, F_SETDELEG, libc::F_NOTIFY] {
        refuse_if(libc::SYS_fcntl, &[(1, SeccompCmpOp::Eq, command as u64)])?;
    }
    // Calls that add filters, schedule cores for groups of processes, and allow core files: those have all memory of a
    // process, and a program outside of its cgroup may take them.
    for option in [libc::PR_SET_SECCOMP, libc::PR_SCHED_CORE, libc::PR_SET_DUMPABLE] {
        refuse_if(libc::SYS_prctl, &[(0, SeccompCmpOp::Eq, option as u64)])?;
    }
    for option in [
        libc::SO_ATTACH_FILTER,
        libc::SO_ATTACH_BPF,
        libc::SO_ATTACH_REUSEPORT_CBPF,
        libc::SO_ATTACH_REUSEPORT_EBPF,
    ] {
        let of_socket = (1, SeccompCmpOp::Eq, libc::SOL_SOCKET as u64);
        let option = (2, SeccompCmpOp::Eq, option as u64);
        refuse_if(libc::SYS_setsockopt, &[of_socket, option])?;
    }
    for request in [FIOSETOWN, SIOCSPGRP] {
        refuse_if(libc::SYS_ioctl, &[(1, SeccompCmpOp::Eq, request)])?;
    }
    // Limits and priorities of others.
    let is_other = [(0, SeccompCmpOp::Ne, 0), (0, SeccompCmpOp::Ne, own)];
    for call in [
        libc::SYS_prlimit64,
        libc::SYS_sched_setscheduler,
        libc::SYS_sched_setparam,
        libc::SYS_sched_setattr,
    ] {
        refuse_if(call, &is_other)?;
    }
    // Other than of one process, they also change those of a group or of a user.
    let calls = [
        (libc::SYS_setpriority, libc::PRIO_PROCESS as u64),
        (libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS),
    ];
    for (call, one_process) in calls {
        refuse_if(call, &[(0, SeccompCmpOp::Ne, one_process)])?;
        refuse_if(call, &[(1, SeccompCmpOp::Ne, 0)])?;
    }
    // Sockets other than Unix sockets, which the driver binds to a name in its network namespace.
    refuse_if(libc::SYS_socket, &[(0, SeccompCmpOp::Ne, libc::AF_UNIX as u64)])?;
    // Datagrams need no connection, also not those of a pair. A raw Unix socket is one for datagrams.
    for call in [libc::SYS_socket, libc::SYS_socketpair] {
        for kind in [libc::SOCK_DGRAM, libc::SOCK_RAW] {
            refuse_if(call, &[(1, SeccompCmpOp::MaskedEq(0xf), kind as u64)])?;
        }
    }
    // Input into the terminal of the operator.
    for request in [libc::TIOCSTI, libc::TIOCLINUX] {
        refuse_if(libc::SYS_ioctl, &[(1, SeccompCmpOp::Eq, request)])?;
    }
    // Reads past the page cache. No signal ends them, and a thousand threads of a worker could read a large library each.
    let direct = libc::O_DIRECT as u64;
    #[cfg(target_arch = "x86_64")]
    refuse_if(libc::SYS_open, &[(1, SeccompCmpOp::MaskedEq(direct), direct)])?;
    refuse_if(libc::SYS_openat, &[(2, SeccompCmpOp::MaskedEq(direct), direct)])?;
    let set_flags = (1, SeccompCmpOp::Eq, libc::F_SETFL as u64);
    refuse_if(libc::SYS_fcntl, &[set_flags, (2, SeccompCmpOp::MaskedEq(direct), direct)])?;
    // No signal ends a call on much memory, and some kernels run nothing else on its processor meanwhile.
    let is_long = || SeccompCondition::new(1, SeccompCmpArgLen::Qword, SeccompCmpOp::Gt, MEMORY);
    refused.insert(libc::SYS_mincore, vec![SeccompRule::new(vec![is_long()?])?]);
    let advice = |advice: libc::c_int| {
        SeccompRule::new(vec![is_long()?, is(2, SeccompCmpOp::Eq, advice as u64)?])
    };
    let kinds = [libc::MADV_FREE, libc::MADV_COLD, libc::MADV_PAGEOUT];
    let rules = kinds.into_iter().map(advice).collect::<Result<_, _>>()?;
    refused.insert(libc::SYS_madvise, rules);
    let processor = TargetArch::try_from(std::env::consts::ARCH)?;
    let error = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(refused, SeccompAction::Allow, error, processor)?;
    let program: BpfProgram = filter.try_into()?;
    apply_filter(&refuse_unknown())?;
    apply_filter(&ignore_locks(processor)?)?;
    // The last one, because it refuses more filters.
    apply_filter(&program)
}

/// A condition for the lower half of an argument.
fn is(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
}

/// A filter with which locks of parts of files succeed and have no effect. A file may have millions of them, and the kernel
/// lists them without a pause for other processes. The driver locks the index of its cache, which only this process uses, and
/// has no cache if that is refused.
fn ignore_locks(processor: TargetArch) -> Result<BpfProgram, Error> {
    let rule =
        |command: libc::c_int| SeccompRule::new(vec![is(1, SeccompCmpOp::Eq, command as u64)?]);
    let rules = [libc::F_SETLK, libc::F_SETLKW].into_iter().map(rule).collect::<Result<_, _>>()?;
    let (calls, nothing) = (BTreeMap::from([(libc::SYS_fcntl, rules)]), SeccompAction::Errno(0));
    Ok(SeccompFilter::new(calls, SeccompAction::Allow, nothing, processor)?.try_into()?)
}

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const IF_ABOVE: u16 = (libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K) as u16;

/// The place of the number of the call in the data of a filter.
const NUMBER: u32 = 0;

/// An instruction. `yes` and `no` are the instructions that a condition skips.
fn instruction(code: u16, yes: u8, no: u8, k: u32) -> sock_filter {
    sock_filter { code, jt: yes, jf: no, k }
}

/// A filter that knows no calls above [`LAST`], and not `clone3` and `openat2`: those take their flags from memory, which a
/// filter cannot read. Libraries then use `clone` and `openat`.
fn refuse_unknown() -> BpfProgram {
    vec![
        instruction(LOAD, 0, 0, NUMBER),
        instruction(IF_ABOVE, 3, 0, LAST as u32),
        instruction(IF_EQUAL, 2, 0, libc::SYS_clone3 as u32),
        instruction(IF_EQUAL, 1, 0, libc::SYS_openat2 as u32),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
    ]
}
