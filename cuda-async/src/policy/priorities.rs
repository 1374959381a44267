//! `Priorities`: two pools, one of which goes first.

use cuda_core::{Device, Result, Stream};

use crate::policy::{
    pool::DEFAULT_STREAMS, round_robin::StreamPoolRoundRobin, scheduling_policy::SchedulingPolicy,
};

/// A pool of streams whose work the device begins first, and one of ordinary streams. As a policy it is the
/// ordinary one.
///
/// A kernel that runs is not interrupted. Forks inside an operation borrow streams of its own priority. A device
/// that knows no priorities treats both alike.
///
/// ```
/// use cuda_async::{default_device, policy::Priorities, prelude::*};
/// let priorities = Priorities::new(&default_device()?)?;
/// let bulk = h2d(vec![0u8; 1 << 20]).schedule(&priorities);
/// let urgent = h2d(vec![1u8]).then(to_host).schedule(priorities.high());
/// assert_eq!(futures::executor::block_on(urgent)?, [1]);
/// futures::executor::block_on(bulk)?;
/// # Ok::<(), cuda_async::Error>(())
/// ```
#[derive(Debug)]
pub struct Priorities {
    high: StreamPoolRoundRobin,
    low: StreamPoolRoundRobin,
}

impl Priorities {
    /// [`DEFAULT_STREAMS`] streams of each kind: of the highest priority that `device` has, and of the default
    /// one.
    ///
    /// # Errors
    /// What the device says.
    pub fn new(device: &Device) -> Result<Self> {
        Ok(Self {
            // The nearest that there is.
            high: StreamPoolRoundRobin::with_priority(device, DEFAULT_STREAMS, i32::MIN)?,
            low: StreamPoolRoundRobin::new(device)?,
        })
    }

    /// For what is urgent.
    pub fn high(&self) -> &StreamPoolRoundRobin {
        &self.high
    }

    /// For the rest.
    pub fn low(&self) -> &StreamPoolRoundRobin {
        &self.low
    }
}

impl SchedulingPolicy for Priorities {
    fn place(&self) -> Result<Stream> {
        self.low.place()
    }

    fn load(&self) -> u64 {
        self.high.load() + self.low.load()
    }
}
