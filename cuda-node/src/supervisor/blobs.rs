//! Blobs of one tenant: code of modules that clients have sent, by hash.

use bytes::Bytes;
use cuda_lease::wire::Hash;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::memory_budget::{MemoryBudget, Reserved};

/// The maximum number of bytes that the blobs of a tenant have in memory.
const LIMIT: usize = 256 << 20;

/// The maximum number of blobs of a tenant.
const MAX_BLOBS: usize = 4096;

/// The maximum number of bytes of blobs that are arriving.
const ARRIVING: u64 = 128 << 20;

/// The blobs of a tenant. The least recently used are dropped first. A node keeps them when a lease ends, for the next
/// lease of the tenant.
pub(super) struct Blobs {
    cache: Mutex<Cache>,
    arriving: MemoryBudget,
}

impl Default for Blobs {
    fn default() -> Self {
        Self { cache: Mutex::default(), arriving: MemoryBudget::new(ARRIVING) }
    }
}

#[derive(Default)]
struct Cache {
    blobs: FxHashMap<Hash, (Bytes, u64)>,
    bytes: usize,
    /// Counts uses.
    clock: u64,
}

impl Blobs {
    /// Waits until there is memory for a blob of `bytes` bytes, before its bytes are read.
    pub(super) async fn memory_for(&self, bytes: u64) -> Option<Reserved> {
        self.arriving.reserve(bytes).await
    }

    pub(super) fn get(&self, hash: &Hash) -> Option<Bytes> {
        let cache = &mut *self.cache.lock();
        let (blob, used) = cache.blobs.get_mut(hash)?;
        cache.clock += 1;
        *used = cache.clock;
        Some(blob.clone())
    }

    pub(super) fn insert(&self, hash: Hash, blob: Bytes) {
        let cache = &mut *self.cache.lock();
        cache.clock += 1;
        cache.bytes += blob.len();
        if let Some((old, _)) = cache.blobs.insert(hash, (blob, cache.clock)) {
            cache.bytes -= old.len();
        }
        while (cache.bytes > LIMIT && cache.blobs.len() > 1) || cache.blobs.len() > MAX_BLOBS {
            let oldest =
                cache.blobs.iter().min_by_key(|(_, (_, used))| *used).map(|(hash, _)| *hash);
            if let Some((old, _)) = oldest.and_then(|hash| cache.blobs.remove(&hash)) {
                cache.bytes -= old.len();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_recently_used_blob_is_dropped_first() {
        let blobs = Blobs::default();
        let half = Bytes::from(vec![0; LIMIT / 2]);
        blobs.insert([1; 32], half.clone());
        blobs.insert([2; 32], half.clone());
        assert!(blobs.get(&[1; 32]).is_some());
        blobs.insert([3; 32], half);
        assert!(blobs.get(&[2; 32]).is_none());
        assert!(blobs.get(&[1; 32]).is_some() && blobs.get(&[3; 32]).is_some());
    }

    #[test]
    fn number_of_blobs_is_limited() {
        let blobs = Blobs::default();
        for number in 0..2 * MAX_BLOBS {
            let mut hash = [0; 32];
            hash[..8].copy_from_slice(&number.to_le_bytes());
            blobs.insert(hash, Bytes::new());
        }
        assert_eq!(blobs.cache.lock().blobs.len(), MAX_BLOBS);
    }

    #[tokio::test]
    async fn arriving_bytes_are_limited() {
        let blobs = Blobs::default();
        let (first, second) = (blobs.memory_for(ARRIVING / 2).await, blobs.memory_for(1).await);
        let mut third = Box::pin(blobs.memory_for(ARRIVING));
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(third.as_mut().poll(&mut cx).is_pending());
        drop((first, second));
        assert!(third.await.is_some());
        assert!(blobs.memory_for(u64::MAX).await.is_some());
    }
}
