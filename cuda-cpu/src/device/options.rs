//! The options of a CPU device.

use std::sync::Arc;

use super::Timing;
use super::state::LaunchOptions;
use crate::{Checks, Profile, Schedule};

/// The options of a CPU device.
///
/// ```
/// use cuda_cpu::{Checks, CpuOptions, CpuProvider, Schedule};
///
/// let options = CpuOptions::default()
///     .checks(Checks::all())
///     .schedule(Schedule::Shuffled { seed: 7 })
///     .budget(1_000_000);
/// let device = cuda_core::Device::open(&CpuProvider::new(options), 0)?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct CpuOptions {
    /// The number of threads that run blocks. `None` means one for each core. One thread runs the blocks in order. For
    /// reproducible results, clocks included, see [`CpuOptions::schedule`].
    pub workers: Option<usize>,
    /// The size of device memory in bytes. `None` means three quarters of the machine's memory.
    pub memory: Option<u64>,
    /// The time at which streams run their work.
    pub timing: Timing,
    /// Optional checks of every launch, in addition to those that are always made.
    pub checks: Checks,
    /// The order in which the blocks and warps of a launch run. Schedules other than [`Schedule::Parallel`] use one
    /// worker and ignore `workers`.
    pub schedule: Schedule,
    /// The number of instructions that a launch may execute, counted as in
    /// [`Limits::instructions`](crate::Limits::instructions). A launch that exceeds it faults. `None` means no limit.
    pub budget: Option<u64>,
    /// A profile that counts the executed instructions of all launches, by kernel.
    pub profile: Option<Arc<Profile>>,
}

impl CpuOptions {
    /// Sets the [`checks`](CpuOptions#structfield.checks).
    pub fn checks(self, checks: Checks) -> Self {
        Self { checks, ..self }
    }

    /// Sets the [`schedule`](CpuOptions#structfield.schedule).
    pub fn schedule(self, schedule: Schedule) -> Self {
        Self { schedule, ..self }
    }

    /// Sets the [`budget`](CpuOptions#structfield.budget) of each launch.
    pub fn budget(self, instructions: u64) -> Self {
        Self { budget: Some(instructions), ..self }
    }

    /// Sets the [`profile`](CpuOptions#structfield.profile).
    pub fn profile(self, profile: Arc<Profile>) -> Self {
        Self { profile: Some(profile), ..self }
    }

    /// Returns the options of every launch. `multiprocessors` is the number of threads of the device.
    pub(super) fn for_launches(&self, multiprocessors: u32) -> LaunchOptions {
        let Self { checks, schedule, budget, .. } = *self;
        LaunchOptions { checks, schedule, budget, profile: self.profile.clone(), multiprocessors }
    }
}
