//! A limit for host memory that tasks use at a time.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The unit in which bytes are counted, because a semaphore counts in `u32`.
const UNIT: u64 = 1 << 10;

/// Bytes of host memory. Tasks wait for them in the order of their requests.
#[derive(Clone)]
pub(super) struct MemoryBudget {
    units: Arc<Semaphore>,
    total: u64,
}

/// Memory of a budget. Dropping it gives the memory back.
pub(super) type Reserved = OwnedSemaphorePermit;

impl MemoryBudget {
    pub(super) fn new(total: u64) -> Self {
        Self { units: Arc::new(Semaphore::new((total / UNIT) as usize)), total }
    }

    /// Waits until `bytes` bytes are free, and takes them. A request for more than the whole budget takes the whole.
    pub(super) async fn reserve(&self, bytes: u64) -> Option<Reserved> {
        // The semaphore is never closed.
        self.units.clone().acquire_many_owned(self.units_for(bytes)).await.ok()
    }

    /// As [`reserve`](Self::reserve), without a wait. Returns `None` if the bytes are not free.
    pub(super) fn try_reserve(&self, bytes: u64) -> Option<Reserved> {
        self.units.clone().try_acquire_many_owned(self.units_for(bytes)).ok()
    }

    /// Gives back what `reserved` has beyond `bytes` bytes.
    pub(super) fn shrink(&self, mut reserved: Reserved, bytes: u64) -> Reserved {
        reserved.split(self.units_for(bytes) as usize).unwrap_or(reserved)
    }

    fn units_for(&self, bytes: u64) -> u32 {
        u32::try_from(bytes.min(self.total).div_ceil(UNIT)).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::{future::Future, pin::pin, task::Context};

    use super::*;

    #[tokio::test]
    async fn request_waits_until_the_budget_has_its_bytes() {
        let budget = MemoryBudget::new(4 * UNIT);
        let (first, second) = (budget.reserve(2 * UNIT).await, budget.reserve(1).await);
        assert_eq!(budget.units.available_permits(), 1);
        let mut whole = pin!(budget.reserve(u64::MAX));
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(whole.as_mut().poll(&mut cx).is_pending());
        drop((first, second));
        let whole = whole.await.unwrap();
        let _part = budget.shrink(whole, UNIT + 1);
        assert_eq!(budget.units.available_permits(), 2);
    }
}
