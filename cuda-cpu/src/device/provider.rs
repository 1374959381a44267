//! Opens the CPU device, and reports one that was compiled without optimization.

use std::sync::{Arc, Once};

use cuda_core::{Backend, DeviceInfo, Error, NoticeSink, Provider, Result};

use super::{CpuBackend, CpuOptions};
use crate::MAX_SHARED_BYTES;

/// The provider of the CPU device. Every machine has one, with the address `cpu`.
///
/// A device of a build without optimization is many times slower. Its name ends in `unoptimized build`, and the first
/// one that is opened logs a warning with `tracing`, which names the lines to add to `Cargo.toml`.
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
        let build = if IS_UNOPTIMIZED { ", unoptimized build" } else { "" };
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
        report();
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

/// Whether this crate was compiled with `opt-level = 0`, as a debug build does unless its profile says otherwise.
const IS_UNOPTIMIZED: bool = cfg!(unoptimized);

static REPORTED: Once = Once::new();

/// Logs a warning if the crate is unoptimized, once in the process.
pub(super) fn report() {
    report_once(IS_UNOPTIMIZED, &REPORTED);
}

fn report_once(is_unoptimized: bool, reported: &Once) {
    if is_unoptimized {
        reported.call_once(|| {
            tracing::warn!(
                "the CPU device was compiled without optimization, and runs kernels up to a hundred times slower; \
                 build with `--release`, or add these lines to the `Cargo.toml` at the root of the workspace: \
                 `[profile.dev.package]`, `cuda-cpu.opt-level = 2`, `cuda-ptx.opt-level = 2`"
            );
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Debug;
    use std::sync::{Arc, Mutex};
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

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

    /// Keeps the text of each event.
    #[derive(Clone, Default)]
    struct Events(Arc<Mutex<Vec<String>>>);

    impl Visit for Events {
        fn record_debug(&mut self, _: &Field, value: &dyn Debug) {
            self.0.lock().unwrap_or_else(|held| held.into_inner()).push(format!("{value:?}"));
        }
    }

    impl Subscriber for Events {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, event: &Event<'_>) {
            event.record(&mut self.clone());
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    /// Returns the warnings of two devices that are opened one after the other.
    fn warnings(is_unoptimized: bool) -> Vec<String> {
        let (events, reported) = (Events::default(), Once::new());
        tracing::subscriber::with_default(events.clone(), || {
            report_once(is_unoptimized, &reported);
            report_once(is_unoptimized, &reported);
        });
        let seen = events.0.lock().unwrap_or_else(|held| held.into_inner());
        seen.clone()
    }

    #[test]
    fn unoptimized_build_is_reported_once_with_the_lines_to_add() {
        let warnings = warnings(true);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        for line in ["[profile.dev.package]", "cuda-cpu.opt-level = 2", "cuda-ptx.opt-level = 2"] {
            assert!(warnings[0].contains(line), "{warnings:?}");
        }
    }

    #[test]
    fn optimized_build_is_not_reported() {
        assert!(warnings(false).is_empty());
    }
}
