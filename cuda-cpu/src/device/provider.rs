//! Opens the CPU device.

use std::sync::Arc;

use cuda_core::{Backend, DeviceInfo, Error, NoticeSink, Provider, Result};

use super::{CpuBackend, CpuOptions, build_profile};
use crate::MAX_SHARED_BYTES;

/// The provider of the CPU device. Every machine has one, with the address `cpu`.
///
/// A device of a build without optimization is many times slower. Its name ends in `unoptimized build`, and the first one
/// that is opened logs a warning with `tracing`, which names the lines to add to `Cargo.toml`.
#[derive(Debug, Clone, Default)]
pub struct CpuProvider {
    options: CpuOptions,
}

impl CpuProvider {
    /// Creates a provider of CPU devices with these options.
    pub fn new(options: CpuOptions) -> Self {
        Self { options }
    }

    fn workers(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        if self.options.schedule.is_deterministic() {
            return 1;
        }
        self.options.workers.unwrap_or_else(cores).max(1)
    }

    fn info(&self) -> DeviceInfo {
        let workers = self.workers();
        let build = if build_profile::IS_UNOPTIMIZED { ", unoptimized build" } else { "" };
        let mut info = DeviceInfo::new("cpu", format!("CPU device, {workers} threads{build}"));
        info.memory = self.options.memory.unwrap_or_else(three_quarters_of_memory);
        info.multiprocessors = u32::try_from(workers).unwrap_or(u32::MAX);
        info.compute_capability = (9, 0);
        info.max_shared_bytes = MAX_SHARED_BYTES;
        info
    }
}

// SAFETY: [`CpuBackend`] keeps the rules.
unsafe impl Provider for CpuProvider {
    fn scheme(&self) -> &'static str {
        "cpu"
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        Ok(vec![self.info()])
    }

    fn open(&self, ordinal: u32, notices: Arc<dyn NoticeSink>) -> Result<Arc<dyn Backend>> {
        if ordinal != 0 {
            let address = format!("cpu:{ordinal}");
            return Err(Error::NoDevice { address, available: "`cpu`".into() });
        }
        build_profile::report();
        Ok(Arc::new(CpuBackend::new(self.info(), self.workers(), &self.options, notices)?))
    }
}

/// Returns three quarters of the machine's memory in bytes, or 8 GiB if the system does not report it.
fn three_quarters_of_memory() -> u64 {
    const GUESS: u64 = 8 << 30;
    let read = std::fs::read_to_string("/proc/meminfo").ok();
    let kib = read.as_deref().and_then(total_kib);
    kib.map_or(GUESS, |kib| kib.saturating_mul(1024) / 4 * 3)
}

fn total_kib(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profile_of_this_workspace_optimizes_the_cpu_device() {
        let info = CpuProvider::default().info();
        assert!(info.name.ends_with("threads"), "{}: see `profile.dev.package`", info.name);
    }

    #[test]
    fn reads_the_memory_of_a_linux_machine() {
        assert_eq!(total_kib("MemTotal:       24652328 kB\nMemFree: 1 kB\n"), Some(24_652_328));
        assert_eq!(total_kib("nonsense"), None);
    }
}
