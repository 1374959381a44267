//! The memory of the graph cache.

use cuda_core::internals::sync::atomic::{AtomicU64, Ordering};

/// The limit of the memory that the graphs of a backend may take, in bytes.
const MAX_CACHED_BYTES: u64 = 64 << 20;

/// The memory of a node of an executable, on host and device: an upper estimate.
const NODE_BYTES: u64 = 4 << 10;

/// The memory of an executable without nodes, on host and device: an upper estimate.
const GRAPH_BYTES: u64 = 64 << 10;

/// The memory that the cached graphs of one backend take.
#[derive(Debug, Default)]
pub(crate) struct CacheMemory(AtomicU64);

impl CacheMemory {
    /// Reserves the memory of a graph. Returns false if the limit leaves too little.
    pub(crate) fn reserve(&self, nodes: usize) -> bool {
        let bytes = bytes_of(nodes);
        let fits = self.0.fetch_add(bytes, Ordering::Relaxed) + bytes <= MAX_CACHED_BYTES;
        if !fits {
            self.0.fetch_sub(bytes, Ordering::Relaxed);
        }
        fits
    }

    /// Gives back the memory of a graph.
    pub(crate) fn release(&self, nodes: usize) {
        self.0.fetch_sub(bytes_of(nodes), Ordering::Relaxed);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

const fn bytes_of(nodes: usize) -> u64 {
    GRAPH_BYTES + nodes as u64 * NODE_BYTES
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn memory_stays_below_the_limit() {
        let memory = CacheMemory::default();
        let graphs = (0..10_000).filter(|_| memory.reserve(64)).count();
        assert!(graphs > 100 && memory.bytes() <= MAX_CACHED_BYTES, "{graphs} {memory:?}");
        (0..graphs).for_each(|_| memory.release(64));
        assert_eq!(memory.bytes(), 0);
    }
}
