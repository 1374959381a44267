//! `Devices`: spreads operations over several devices.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use cuda_core::{Device, Error, Result, Stream};

use crate::policy::{least_loaded::LeastLoaded, scheduling_policy::SchedulingPolicy};

/// A policy that spreads operations over several devices, each with its own policy. An operation stays on one device,
/// and its input buffers must be on that device.
///
/// ```
/// use cuda_async::{Device, cuda_cpu::CpuProvider, open_blocking, policy::Devices, prelude::*};
/// let (first, second) = (open_blocking("cpu")?, Device::open(&CpuProvider::default(), 0)?);
/// let both = Devices::in_turn([first, second])?;
/// assert_eq!(futures::executor::block_on(h2d([1u8]).then(to_host).schedule(&both))?, [1]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
pub struct Devices {
    policies: Vec<Arc<dyn SchedulingPolicy>>,
    /// The number of choices so far if `by_load` is false, else the index of the policy chosen last.
    cursor: AtomicUsize,
    by_load: bool,
}

impl Devices {
    /// Creates a policy that uses the devices in turn, with [`LeastLoaded`] on each.
    ///
    /// # Errors
    /// The error of a device; [`Error::NoDevice`] if there is none.
    pub fn in_turn(devices: impl IntoIterator<Item = Device>) -> Result<Self> {
        Self::in_turn_over(policies(devices)?)
    }

    /// Creates a policy that uses the device with the fewest submissions in flight, with [`LeastLoaded`] on each. On a
    /// tie it takes the device that was used last.
    ///
    /// # Errors
    /// The errors of [`in_turn`](Devices::in_turn).
    pub fn least_loaded(devices: impl IntoIterator<Item = Device>) -> Result<Self> {
        Self::least_loaded_over(policies(devices)?)
    }

    /// Creates a policy that uses the given policies in turn.
    ///
    /// # Errors
    /// [`Error::NoDevice`] if there is none.
    pub fn in_turn_over(policies: Vec<Arc<dyn SchedulingPolicy>>) -> Result<Self> {
        Self::over(policies, false)
    }

    /// Creates a policy that uses the given policy with the smallest [`load`](SchedulingPolicy::load).
    ///
    /// # Errors
    /// [`Error::NoDevice`] if there is none.
    pub fn least_loaded_over(policies: Vec<Arc<dyn SchedulingPolicy>>) -> Result<Self> {
        Self::over(policies, true)
    }

    fn over(policies: Vec<Arc<dyn SchedulingPolicy>>, by_load: bool) -> Result<Self> {
        if policies.is_empty() {
            let available = "none, the list of devices is empty; pass at least one".into();
            return Err(Error::NoDevice { address: "any".into(), available });
        }
        Ok(Self { policies, cursor: AtomicUsize::new(0), by_load })
    }

    fn next_in_turn(&self) -> usize {
        self.cursor.fetch_add(1, Ordering::Relaxed) % self.policies.len()
    }

    fn next_by_load(&self) -> usize {
        let last = self.cursor.load(Ordering::Relaxed);
        let loads = self.policies.iter().map(|policy| policy.load()).enumerate();
        let best = loads.min_by_key(|(index, load)| (*load, *index != last));
        let index = best.map_or(0, |(index, _)| index);
        self.cursor.store(index, Ordering::Relaxed);
        index
    }
}

fn policies(devices: impl IntoIterator<Item = Device>) -> Result<Vec<Arc<dyn SchedulingPolicy>>> {
    let policy = |device| Ok(Arc::new(LeastLoaded::new(&device)?) as Arc<dyn SchedulingPolicy>);
    devices.into_iter().map(policy).collect()
}

impl SchedulingPolicy for Devices {
    fn place(&self) -> Result<Stream> {
        let index = if self.by_load { self.next_by_load() } else { self.next_in_turn() };
        self.policies[index].place()
    }

    fn load(&self) -> u64 {
        self.policies.iter().map(|policy| policy.load()).sum()
    }
}

impl std::fmt::Debug for Devices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Devices({})", self.policies.len())
    }
}
