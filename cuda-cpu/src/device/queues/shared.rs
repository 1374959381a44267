//! State that the queues of a device share.

use std::sync::Arc;

use super::{memory_waiters::MemoryWaiters, pumps::Pumps, queue::Queue, timer::Timer};
use crate::device::state::device_state::DeviceState;

pub(crate) struct Shared {
    pub(crate) device: DeviceState,
    pub(crate) pumps: Pumps<Queue>,
    /// The timer of adversarial timing.
    pub(crate) clock: Timer<Due>,
    pub(crate) memory_waiters: MemoryWaiters<Queue>,
}

/// A delayed step.
pub(crate) enum Due {
    Queue(Arc<Queue>, Arc<Shared>),
    Report(Arc<Queue>, Arc<Shared>),
}

impl Due {
    fn act(self) {
        match self {
            Due::Queue(queue, shared) => queue.start(&shared),
            Due::Report(queue, shared) => queue.report(&shared),
        }
    }
}

impl Shared {
    pub(crate) fn new(device: DeviceState, pumps: Pumps<Queue>) -> Self {
        let clock = Timer::new("cuda-cpu-clock", Due::act);
        Self { device, pumps, clock, memory_waiters: MemoryWaiters::default() }
    }

    /// Restarts the queues that wait for device memory. Called after memory was freed.
    pub(crate) fn memory_freed(self: &Arc<Self>) {
        self.memory_waiters.take().iter().for_each(|queue| queue.start(self));
    }
}
