//! The state of a device that items use while they run.

use std::sync::Arc;

use cuda_core::{NoticeSink, order::Poison};
use rayon::ThreadPool;

use super::{launch_options::LaunchOptions, lost::Lost, modules::Modules, notices::Notices};
use crate::Memory;

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
