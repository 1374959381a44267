//! The statistics of the graph cache.

/// Counts of a device's graph cache, for the streams that exist. The counts of a stream are removed with the stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GraphCacheInfo {
    /// The windows that were launched as graphs.
    pub launches: u64,
    /// The submissions in these windows.
    pub nodes: u64,
    /// The submissions among them whose parameters had changed since the last launch.
    pub changes: u64,
    /// The graphs that were built.
    pub built: u64,
    /// The number of times that a graph did not save enough time, or that the driver or the memory limit refused it.
    pub refused: u64,
    /// The graphs that were dropped to make room for others.
    pub evicted: u64,
    /// An estimate of the memory of all graphs, in bytes.
    pub bytes: u64,
}
