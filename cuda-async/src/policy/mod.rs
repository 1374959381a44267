//! Scheduling policies: each chooses the stream on which an operation runs.

// This folder uses `cuda-core` only. `runtime` holds the default policy and the policies of devices, and `run` asks
// them. A typical call goes from `SchedulingPolicy::place` to a stream of `cuda-core`.

mod devices;
mod least_loaded;
mod pool;
mod priorities;
mod round_robin;
mod scheduling_policy;
mod single_stream;

pub use devices::Devices;
pub use least_loaded::LeastLoaded;
pub use pool::{DEFAULT_STREAMS, MAX_POOL};
pub use priorities::Priorities;
pub use round_robin::{MAX_STREAMS, StreamPoolRoundRobin};
pub use scheduling_policy::SchedulingPolicy;
pub use single_stream::SingleStream;
