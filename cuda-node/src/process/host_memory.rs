//! The limit of the host memory of a process.

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
