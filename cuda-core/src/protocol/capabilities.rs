//! Capabilities: properties of a backend that change how its client uses it.

/// The limits and properties of a backend, as plain data. A wrapper forwards them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The maximum number of submissions in flight on a stream. A client that has more to submit waits.
    pub submissions_in_flight: u64,
    /// The limit on the bytes of host memory that the copies in flight on a stream use. A client that has more to
    /// submit waits. One copy may use more: it is submitted when less than the limit is in flight.
    pub host_bytes_in_flight: u64,
    /// The maximum number of bytes of device memory that this client may allocate. The client counts them, and refuses
    /// an allocation beyond the quota without asking the backend.
    pub memory_quota: u64,
    /// Whether a complete submission makes visible the host bytes of all submissions that it came after. These may be
    /// on other streams. True for devices of this process. If it is false, the client waits for each stream's own
    /// report before it touches host memory.
    pub ordered_visibility: bool,
    /// Whether [`Backend::host_block`](super::Backend::host_block) may block for long, because it pins memory. Clients
    /// then call it on a helper thread when they are inside a poll.
    pub slow_host_blocks: bool,
    /// Whether the backend takes graphs ([`Control::CreateGraph`](super::Control::CreateGraph)).
    pub graphs: bool,
    /// Whether a graph may have loops ([`Work::Repeat`](super::Work::Repeat)).
    pub loops: bool,
    /// Whether the backend has a graph cache, which needs deferrable submissions
    /// ([`Backend::submit_deferrable`](super::Backend::submit_deferrable)).
    pub graph_cache: bool,
    /// Whether the backend takes launches with [attributes](super::LaunchAttributes) and answers
    /// [`Request::Occupancy`](super::Request::Occupancy).
    pub launch_attributes: bool,
    /// The maximum number of memory pools that this client may have in addition to the default one. 0 if the backend
    /// has no pools.
    pub pools: u32,
    /// Whether pools can be [managed](super::PoolSpec::is_managed). Managed memory does not count against the quota.
    pub managed_pools: bool,
    /// Whether allocations can grow ([`Control::Reserve`](super::Control::Reserve)).
    pub growable: bool,
    /// Whether a client may make a new allocation of dropped memory without a free. The backend does not see that the
    /// allocation is new. So it must not track initialized bytes or lost contents of single allocations.
    pub reuses_memory: bool,
}

impl Capabilities {
    /// Returns the usual capabilities of a device of this process with `memory` bytes.
    pub fn local(memory: u64) -> Self {
        Self {
            submissions_in_flight: 768,
            host_bytes_in_flight: 256 << 20,
            memory_quota: memory,
            ordered_visibility: true,
            slow_host_blocks: false,
            graphs: false,
            loops: false,
            graph_cache: false,
            launch_attributes: true,
            pools: 0,
            managed_pools: false,
            growable: false,
            reuses_memory: false,
        }
    }
}
