//! The options of a device's launches: checks, schedule, budget and profile.

use std::sync::Arc;

use crate::{Checks, Profile, Schedule};

/// The options of every launch, from [`CpuOptions`](crate::CpuOptions).
pub(crate) struct LaunchOptions {
    pub(crate) checks: Checks,
    pub(crate) schedule: Schedule,
    pub(crate) budget: Option<u64>,
    pub(crate) profile: Option<Arc<Profile>>,
    /// The threads of the device, which are its multiprocessors.
    pub(crate) multiprocessors: u32,
}
