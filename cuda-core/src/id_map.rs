//! Maps whose keys are ids that a client chooses.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;

/// A map of ids. The client of a node chooses its ids, and the node looks them up while others wait for it. So the hash
/// has a secret: without one, a client can choose ids that collide, and each search looks at all of them.
pub type IdMap<K, V> = HashMap<K, V, RandomState>;

/// A set of ids, as [`IdMap`].
pub type IdSet<K> = HashSet<K, RandomState>;

#[cfg(all(test, not(loom)))]
mod tests {
    use std::hash::{BuildHasher, BuildHasherDefault};

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
        assert!(places(&RandomState::default(), &ids) > 900);
        let ids: Vec<_> = (0..1000).map(AllocId).collect();
        assert!(places(&RandomState::default(), &ids) > 900);
    }
}
