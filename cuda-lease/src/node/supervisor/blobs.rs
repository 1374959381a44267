//! Blobs of one tenant: code of modules that clients have sent, by hash.

use bytes::Bytes;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::wire::Hash;

/// The maximum number of bytes that the blobs of a tenant have in memory.
const LIMIT: usize = 256 << 20;

/// The blobs of a tenant. The least recently used are dropped first.
#[derive(Default)]
pub(super) struct Blobs(Mutex<Cache>);

#[derive(Default)]
struct Cache {
    blobs: FxHashMap<Hash, (Bytes, u64)>,
    bytes: usize,
    /// Counts uses.
    clock: u64,
}

impl Blobs {
    pub(super) fn get(&self, hash: &Hash) -> Option<Bytes> {
        let cache = &mut *self.0.lock();
        let (blob, used) = cache.blobs.get_mut(hash)?;
        cache.clock += 1;
        *used = cache.clock;
        Some(blob.clone())
    }

    pub(super) fn insert(&self, hash: Hash, blob: Bytes) {
        let cache = &mut *self.0.lock();
        cache.clock += 1;
        cache.bytes += blob.len();
        if let Some((old, _)) = cache.blobs.insert(hash, (blob, cache.clock)) {
            cache.bytes -= old.len();
        }
        while cache.bytes > LIMIT && cache.blobs.len() > 1 {
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
}
