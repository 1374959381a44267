//! Allocations that grow: their addresses are reserved once, and memory is taken as they grow.

use cuda_core::{
    Result,
    protocol::{AllocId, Answer, PoolId},
};
use parking_lot::Mutex;

use super::{
    backend::CpuBackend,
    items::{item::QueueItem, resolve::Allocation, work::Work},
    pools::Pools,
    queues::queue::After,
    state::errors,
};

impl CpuBackend {
    /// Reserves addresses. Memory is only taken by [`commit`](Self::commit).
    pub(super) fn reserve(&self, id: AllocId, bytes: u64) -> Result<()> {
        self.epoch()?;
        let address = self.shared.device.memory.reserve(bytes).map_err(errors::out_of_memory)?;
        let pool = PoolId::DEFAULT;
        self.names.add_allocation(id, Allocation { address, bytes: 0, pool, module: None });
        Ok(())
    }

    /// Lets a reserved allocation use `bytes` bytes, as soon as submitted frees have made room.
    pub(super) fn commit(&self, id: AllocId, bytes: u64, answer: Answer) {
        let promise = || {
            let epoch = self.epoch()?;
            let mut pools = self.order.lock();
            let before = self.names.find(id)?;
            let more = bytes.saturating_sub(before.bytes);
            self.make_room(&mut pools, PoolId::DEFAULT, more)?;
            let promise = self.shared.device.memory.promise_growth(before.address, bytes, more);
            let promise = promise.map_err(errors::out_of_memory)?;
            pools.take(PoolId::DEFAULT, more);
            self.names.add_allocation(id, Allocation { bytes: before.bytes + more, ..before });
            Ok((promise, before.address, epoch))
        };
        match promise() {
            Ok((promise, address, epoch)) => {
                let grow =
                    Work::Grow { promise, address, bytes, answer: Box::new(Mutex::new(answer)) };
                let item = QueueItem::new(grow, None, epoch);
                self.growth.push(item, After::new(), &self.shared);
            }
            Err(error) => answer.give(Err(error)),
        }
    }

    /// Makes pools return the bytes that they keep, if an allocation does not fit beside them.
    pub(super) fn make_room(&self, pools: &mut Pools, pool: PoolId, bytes: u64) -> Result<()> {
        let beside = pools.idle_beside(pool, bytes)?;
        if beside > 0 && !self.shared.device.memory.has_bytes(beside.saturating_add(bytes)) {
            pools.trim_all();
        }
        Ok(())
    }
}
