//! The state of a device, and its errors.
//!
//! [`DeviceState`] has the memory, the modules and the notices. A fault is stored in [`lost::Lost`]: until the device
//! is reset, items are skipped and fail with the fault, and submissions are refused with `DeviceLost`, except frees and
//! joins. A panic counts as a fault ([`lost::contained`]). This folder uses `memory`, `launch`, `observe` and `fault`. `items`
//! and `queues` use it.

pub(crate) mod errors;
pub(crate) mod lost;
pub(crate) mod modules;
pub(crate) mod notices;

use std::sync::Arc;

use cuda_core::NoticeSink;
use cuda_core::order::Poison;
use rayon::ThreadPool;

use self::lost::Lost;
use self::modules::Modules;
use self::notices::Notices;
use crate::{Checks, Memory, Profile, Schedule};

/// The state of a device that items use while they run.
pub(crate) struct DeviceState {
    pub(crate) memory: Arc<Memory>,
    pub(crate) modules: Modules,
    /// The threads that help to run blocks. `None` if the device has only one thread.
    pub(crate) pool: Option<ThreadPool>,
    /// The options of every launch.
    pub(crate) launch_options: LaunchOptions,
    pub(crate) lost: Lost,
    pub(crate) poison: Poison,
    pub(crate) notices: Notices,
}

impl DeviceState {
    pub(crate) fn new(
        memory: Memory,
        pool: Option<ThreadPool>,
        launch_options: LaunchOptions,
        sink: Arc<dyn NoticeSink>,
    ) -> Self {
        Self {
            memory: Arc::new(memory),
            modules: Modules::default(),
            pool,
            launch_options,
            lost: Lost::default(),
            poison: Poison::default(),
            notices: Notices::new(sink),
        }
    }
}

/// The options of every launch, from [`CpuOptions`](crate::CpuOptions).
pub(crate) struct LaunchOptions {
    pub(crate) checks: Checks,
    pub(crate) schedule: Schedule,
    pub(crate) budget: Option<u64>,
    pub(crate) profile: Option<Arc<Profile>>,
    /// The threads of the device, which are its multiprocessors.
    pub(crate) multiprocessors: u32,
}
