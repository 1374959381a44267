//! File descriptors: those that a worker inherits, and the limit of a supervisor.
//!
//! # Rules
//! - A descriptor without the close-on-exec flag was inherited through `exec`, unless code outside Rust's standard
//!   library cleared the flag. Every descriptor that the standard library, rustix or tokio opens has the flag. So an
//!   inherited descriptor has no owner in this process until [`take`] makes one.
//! - [`take`] sets the flag before it makes the owner. A second call for the same number therefore fails.
//!   [`WorkerEnds::take`](super::WorkerEnds::take) also refuses a second call, which covers calls that race.

use std::{
    io,
    os::fd::{AsFd as _, FromRawFd as _, OwnedFd, RawFd},
};

use rustix::{
    io::FdFlags,
    net,
    process::{Resource, getrlimit, setrlimit},
};

use super::error::DescriptorProblem;

/// The descriptor of the commands socket in a worker.
pub const COMMANDS_DESCRIPTOR: RawFd = 3;

/// The descriptor of the bulk socket in a worker.
pub const BULK_DESCRIPTOR: RawFd = 4;

/// The descriptor of the jobs socket in a worker.
pub const JOBS_DESCRIPTOR: RawFd = 5;

/// The descriptor of the listener for later supervisors in a worker.
pub const SUCCESSORS_DESCRIPTOR: RawFd = 6;

/// The first descriptor that a worker does not inherit.
pub(super) const FIRST_FREE_DESCRIPTOR: RawFd = SUCCESSORS_DESCRIPTOR + 1;

/// Raises the number of descriptors that this process may open to the highest one that the system allows. Each lease
/// takes ten of a supervisor, and most systems start a program with 1,024.
///
/// # Errors
/// Those of the operating system.
pub fn raise_descriptor_limit() -> io::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    Ok(setrlimit(Resource::Nofile, limit)?)
}

/// Takes ownership of an inherited Unix stream socket and marks it close-on-exec.
///
/// # Errors
/// The descriptor is not open, was not inherited, or is not a Unix stream socket. It then stays as it was.
pub(super) fn take(descriptor: RawFd) -> Result<OwnedFd, DescriptorProblem> {
    // SAFETY: `F_GETFD` reads a flag. For a number that is not open, it fails with `EBADF`.
    let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFD) };
    if flags < 0 {
        return Err(DescriptorProblem::NotOpen);
    }
    if flags & libc::FD_CLOEXEC != 0 {
        return Err(DescriptorProblem::NotInherited);
    }
    // SAFETY: the descriptor is open, and has no owner because it was inherited.
    let owned = unsafe { OwnedFd::from_raw_fd(descriptor) };
    match check(&owned) {
        Ok(()) => Ok(owned),
        Err(problem) => {
            // The descriptor belongs to other code, so it must stay open.
            std::mem::forget(owned);
            Err(problem)
        }
    }
}

/// Checks that a descriptor is a Unix stream socket, and marks it close-on-exec.
fn check(descriptor: &OwnedFd) -> Result<(), DescriptorProblem> {
    let domain = net::sockopt::socket_domain(descriptor.as_fd());
    let kind = net::sockopt::socket_type(descriptor.as_fd());
    if domain != Ok(net::AddressFamily::UNIX) || kind != Ok(net::SocketType::STREAM) {
        return Err(DescriptorProblem::NotUnixStream);
    }
    rustix::io::fcntl_setfd(descriptor, FdFlags::CLOEXEC)
        .map_err(|error| DescriptorProblem::Os(error.into()))
}
