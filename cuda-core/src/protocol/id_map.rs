//! Maps whose keys are ids that a client chooses.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher, Hasher, RandomState},
    sync::LazyLock,
};

/// A map of ids. The client of a node chooses its ids, and a node looks them up while others wait for it. So the hash has
/// a secret: with a known one, a client chooses ids that collide, and each search looks at all of them.
pub type IdMap<K, V> = HashMap<K, V, IdHash>;

/// A set of ids, as [`IdMap`].
pub type IdSet<K> = HashSet<K, IdHash>;

/// The two secrets of the process. The second one is odd.
static SECRETS: LazyLock<[u64; 2]> =
    LazyLock::new(|| [0, 1].map(|n| RandomState::new().hash_one(n) | n));

/// The hash of an [`IdMap`].
#[derive(Debug, Clone, Copy)]
pub struct IdHash([u64; 2]);

impl Default for IdHash {
    fn default() -> Self {
        Self(*SECRETS)
    }
}

impl BuildHasher for IdHash {
    type Hasher = IdHasher;

    fn build_hasher(&self) -> IdHasher {
        let Self([state, factor]) = *self;
        IdHasher { state, factor }
    }
}

/// The state of an [`IdHash`].
#[derive(Debug)]
pub struct IdHasher {
    state: u64,
    factor: u64,
}

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    /// Both halves of the product, as the low half alone has equal low bits for ids with equal low bits.
    #[inline]
    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.state ^ word) * u128::from(self.factor);
        self.state = product as u64 ^ (product >> 64) as u64;
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.state
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::hash::BuildHasherDefault;

    use rustc_hash::FxHasher;

    use super::*;
    use crate::protocol::AllocId;

    /// The number of different values of the bits of a hash by which a table finds an entry.
    fn places<H: BuildHasher>(hash: &H, ids: &[AllocId]) -> usize {
        let place = |id: &AllocId| hash.hash_one(id) & 0xffff;
        ids.iter().map(place).collect::<HashSet<_>>().len()
    }

    #[test]
    fn ids_that_collide_in_a_hash_without_a_secret_do_not_collide() {
        // The factor of that hash is odd, so it has an inverse.
        let factor = 0xf135_7aea_2e62_a9c5_u64;
        let step =
            |inverse: u64| inverse.wrapping_mul(2_u64.wrapping_sub(factor.wrapping_mul(inverse)));
        let inverse = (0..6).fold(1, |inverse, _| step(inverse));
        let ids: Vec<_> = (0..1000).map(|n| AllocId(inverse.wrapping_mul(n << 6))).collect();
        assert_eq!(places(&BuildHasherDefault::<FxHasher>::default(), &ids), 1);
        assert!(places(&IdHash::default(), &ids) > 900);
        let ids: Vec<_> = (0..1000).map(AllocId).collect();
        assert!(places(&IdHash::default(), &ids) > 900);
    }
}
