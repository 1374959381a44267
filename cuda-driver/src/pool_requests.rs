//! Requests about memory that may block: they run on the helper thread.

use cuda_core::protocol::{AllocId, Answer, PoolId, Reply};

use super::{backend::CudaBackend, objects::Pools};

impl CudaBackend {
    /// Takes memory for reserved addresses, on the helper thread.
    pub(super) fn commit(&self, id: AllocId, bytes: u64, answer: Answer) {
        let mapping = match self.primary.alive().and_then(|()| self.memory.mapping(id)) {
            Ok(mapping) => mapping,
            Err(error) => return answer.give(Err(error)),
        };
        self.answer_later(answer, move |_, bound| {
            mapping.commit(bytes, bound).map(|()| Reply::Committed)
        });
    }

    /// Returns free memory of a pool to the system, on the helper thread.
    pub(super) fn trim(&self, pool: PoolId, keep: u64, answer: Answer) {
        let flushed = self.primary.bind().and_then(|bound| self.flush_all(&bound));
        let (pool, streams) = match flushed.and_then(|()| self.pools.find(pool)) {
            Ok(pool) => (pool, self.streams.all()),
            Err(error) => return answer.give(Err(error)),
        };
        self.answer_later(answer, move |primary, bound| {
            streams.iter().for_each(|stream| stream.settle_frees(primary, bound));
            pool.trim(primary.api, keep, bound);
            Pools::memory(primary, &pool, bound).map(Reply::Pool)
        });
    }
}
