//! `Priorities`: a pool of streams with high priority, and an ordinary pool.

use cuda_core::{Device, Result, Stream};

use crate::policy::{
    pool::DEFAULT_STREAMS, round_robin::StreamPoolRoundRobin, scheduling_policy::SchedulingPolicy,
};

/// Two pools of streams: one of high priority for urgent operations, and one of default priority. Used as a policy, it
/// chooses from the pool of default priority.
///
/// The device does not interrupt a running kernel. The forks of an operation use streams of the operation's priority. A
/// device without priorities gives both pools the same priority.
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
    /// Creates the pools, each with [`DEFAULT_STREAMS`] streams of `device`. One has the device's highest priority, the
    /// other the default priority.
    ///
    /// # Errors
    /// The error of the device if it has no stream to lend.
    pub fn new(device: &Device) -> Result<Self> {
        Ok(Self {
            // The device takes its nearest priority.
            high: StreamPoolRoundRobin::with_priority(device, DEFAULT_STREAMS, i32::MIN)?,
            low: StreamPoolRoundRobin::new(device)?,
        })
    }

    /// Returns the pool for urgent operations.
    pub fn high(&self) -> &StreamPoolRoundRobin {
        &self.high
    }

    /// Returns the pool for all other operations.
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
