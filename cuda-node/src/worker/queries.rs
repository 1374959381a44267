//! Queries about objects that wait for an answer.

use std::hash::Hash;

use cuda_core::internals::IdMap;

/// The queries about each object. Only the end of its own wait looks at them: there may be thousands, and a client has
/// other objects with each command.
pub(super) struct Queries<K> {
    of: IdMap<K, Vec<u64>>,
    count: usize,
}

impl<K> Default for Queries<K> {
    fn default() -> Self {
        Self { of: IdMap::default(), count: 0 }
    }
}

impl<K: Eq + Hash> Queries<K> {
    /// The number of queries.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn add(&mut self, object: K, query: u64) {
        self.of.entry(object).or_default().push(query);
        self.count += 1;
    }

    /// Takes the queries about an object.
    pub(super) fn take(&mut self, object: &K) -> Vec<u64> {
        let queries = self.of.remove(object).unwrap_or_default();
        self.count -= queries.len();
        queries
    }
}
