//! The host memory of a process: its limit, and blocks that go back to the kernel.
//!
//! # Rules
//! - The settings of the allocator change only while the process has one thread.

use std::{fs, io};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Limits the private memory that this process can write (`RLIMIT_DATA`) to what it has now and `additional` bytes.
/// Allocations beyond that fail. A lower limit that the process has already stays.
///
/// Not for a process that uses CUDA: its driver reserves large ranges of addresses.
///
/// # Errors
/// Those of the operating system.
pub fn limit_host_memory(additional: u64) -> io::Result<()> {
    // The sixth value: data and stacks of threads, in pages.
    let statm = fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split_whitespace().nth(5).and_then(|pages| pages.parse::<u64>().ok());
    let pages =
        pages.ok_or_else(|| io::Error::other("/proc/self/statm has no size of the data"))?;
    let limit = (pages * rustix::param::page_size() as u64).saturating_add(additional);
    let now = getrlimit(Resource::Data);
    let limit = now.maximum.map_or(limit, |maximum| maximum.min(limit));
    setrlimit(Resource::Data, Rlimit { current: Some(limit), maximum: Some(limit) })?;
    Ok(())
}

/// The size of a large block in bytes, glibc's default.
#[cfg(target_env = "gnu")]
const LARGE: std::ffi::c_int = 128 << 10;

/// Makes the allocator take each large block from the kernel, and return it when it is freed. A process with other
/// threads, or with another C library than glibc, stays as it is.
///
/// By default, glibc does so only for blocks that are larger than those that were freed before, up to 32 MiB
/// (`mallopt(3)`, `M_MMAP_THRESHOLD`). The code that tenants upload then leaves holes: a supervisor with 270 MiB of code
/// had 635 MiB.
pub fn return_large_blocks() {
    #[cfg(target_env = "gnu")]
    if fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1) {
        // SAFETY: no other thread uses the allocator meanwhile. A value that glibc refuses changes nothing.
        unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE) };
    }
}
