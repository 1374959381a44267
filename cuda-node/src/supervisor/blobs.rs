//! Blobs: code of modules that clients have sent, by tenant and hash.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use cuda_lease::{authority::Tenant, wire::Hash};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::uploads::{TenantUploads, Uploads};

/// The maximum number of bytes that the blobs of a tenant have in memory.
const TENANT_BYTES: usize = 256 << 20;

/// The maximum number of bytes that the blobs of all tenants have in memory.
const BYTES: usize = 1 << 30;

/// The bytes that a blob counts besides its own: it has an entry.
const ENTRY_BYTES: usize = 256;

/// The maximum number of blobs of a tenant.
const MAX_BLOBS: usize = 4096;

/// The blobs of all tenants. A node keeps them when a lease ends, for the next lease of the tenant.
///
/// Of a tenant that has too many, the least recently used are dropped first. If all tenants together have too many, so
/// are those of the tenant that has the most.
#[derive(Default)]
pub(super) struct BlobStore {
    store: Mutex<Store>,
    uploads: Arc<Uploads>,
}

/// The blobs of one tenant.
pub(super) struct Blobs {
    store: Arc<BlobStore>,
    tenant: Tenant,
    uploads: TenantUploads,
}

#[derive(Default)]
struct Store {
    tenants: FxHashMap<Tenant, Cache>,
    bytes: usize,
    /// Counts uses.
    clock: u64,
}

#[derive(Default)]
struct Cache {
    /// With a secret of the hash table: clients and workers make up hashes, and choose ones that collide otherwise.
    blobs: HashMap<Hash, (Bytes, u64)>,
    bytes: usize,
}

impl BlobStore {
    /// Returns the blobs of a tenant.
    pub(super) fn of(self: &Arc<Self>, tenant: &Tenant) -> Arc<Blobs> {
        let uploads = self.uploads.of(tenant);
        Arc::new(Blobs { store: self.clone(), tenant: tenant.clone(), uploads })
    }
}

impl Blobs {
    /// The uploads of the tenant.
    pub(super) fn uploads(&self) -> &TenantUploads {
        &self.uploads
    }

    pub(super) fn get(&self, hash: &Hash) -> Option<Bytes> {
        let store = &mut *self.store.store.lock();
        let (blob, used) = store.tenants.get_mut(&self.tenant)?.blobs.get_mut(hash)?;
        store.clock += 1;
        *used = store.clock;
        Some(blob.clone())
    }

    pub(super) fn insert(&self, hash: Hash, blob: Bytes) {
        let store = &mut *self.store.store.lock();
        store.clock += 1;
        let cache = store.tenants.entry(self.tenant.clone()).or_default();
        let added = blob.len() + ENTRY_BYTES;
        let old = cache.blobs.insert(hash, (blob, store.clock));
        let replaced = old.map_or(0, |(old, _)| old.len() + ENTRY_BYTES);
        cache.bytes = cache.bytes + added - replaced;
        store.bytes = store.bytes + added - replaced;
        while cache.bytes > TENANT_BYTES && cache.blobs.len() > 1 || cache.blobs.len() > MAX_BLOBS {
            store.bytes -= cache.drop_oldest();
        }
        while store.bytes > BYTES {
            let most = store.tenants.iter_mut().max_by_key(|(_, cache)| cache.bytes);
            let Some((tenant, most)) = most else { return };
            store.bytes -= most.drop_oldest();
            if most.blobs.is_empty() {
                let tenant = tenant.clone();
                store.tenants.remove(&tenant);
            }
        }
    }
}

impl Cache {
    /// Drops the least recently used blob. Returns the bytes that it counted.
    fn drop_oldest(&mut self) -> usize {
        let oldest = self.blobs.iter().min_by_key(|(_, (_, used))| *used).map(|(hash, _)| *hash);
        let dropped = oldest.and_then(|hash| self.blobs.remove(&hash));
        let bytes = dropped.map_or(0, |(blob, _)| blob.len() + ENTRY_BYTES);
        self.bytes -= bytes;
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blobs() -> Arc<Blobs> {
        Arc::<BlobStore>::default().of(&Tenant::local())
    }

    #[test]
    fn least_recently_used_blob_is_dropped_first() {
        let blobs = blobs();
        let half = Bytes::from(vec![0; TENANT_BYTES / 2 - ENTRY_BYTES]);
        blobs.insert([1; 32], half.clone());
        blobs.insert([2; 32], half.clone());
        assert!(blobs.get(&[1; 32]).is_some());
        blobs.insert([3; 32], half);
        assert!(blobs.get(&[2; 32]).is_none());
        assert!(blobs.get(&[1; 32]).is_some() && blobs.get(&[3; 32]).is_some());
    }

    #[test]
    fn number_of_blobs_is_limited() {
        let blobs = blobs();
        for number in 0..2 * MAX_BLOBS {
            let mut hash = [0; 32];
            hash[..8].copy_from_slice(&number.to_le_bytes());
            blobs.insert(hash, Bytes::new());
        }
        assert_eq!(blobs.store.store.lock().tenants[&blobs.tenant].blobs.len(), MAX_BLOBS);
    }

    #[test]
    fn tenant_with_the_most_bytes_makes_room_for_others() {
        let store = Arc::<BlobStore>::default();
        let of = |name: &str| store.of(&Tenant::new(name).unwrap());
        let blob = |bytes: usize| Bytes::from(vec![0; bytes]);
        let small = of("small");
        small.insert([1; 32], blob(1 << 20));
        let names: Vec<_> = (0..5).map(|number| format!("large-{number}")).collect();
        for name in &names {
            for number in 0..4 {
                of(name).insert([number; 32], blob(60 << 20));
            }
        }
        assert!(small.get(&[1; 32]).is_some());
        let store = store.store.lock();
        assert!(store.bytes <= BYTES && store.bytes > BYTES - (60 << 20));
        assert_eq!(store.bytes, store.tenants.values().map(|cache| cache.bytes).sum::<usize>());
        assert!(store.tenants.values().all(|cache| !cache.blobs.is_empty()));
    }

    #[test]
    fn collisions_of_hashes_cannot_be_foreseen() {
        use std::hash::BuildHasher;
        let hashed = || Cache::default().blobs.hasher().hash_one([1; 32]);
        assert_ne!(hashed(), hashed());
    }
}
