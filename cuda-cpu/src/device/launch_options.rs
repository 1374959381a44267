//! The checks, order, budget and profile of a device's launches.

use std::sync::Arc;

use crate::{Checks, CpuOptions, Profile, Schedule};

/// See [`CpuOptions`].
pub(crate) struct Watching {
    pub(crate) checks: Checks,
    pub(crate) schedule: Schedule,
    pub(crate) budget: Option<u64>,
    pub(crate) profile: Option<Arc<Profile>>,
}

impl Watching {
    pub(crate) fn new(options: &CpuOptions) -> Self {
        let CpuOptions { checks, schedule, budget, .. } = *options;
        Self { checks, schedule, budget, profile: options.profile.clone() }
    }
}
