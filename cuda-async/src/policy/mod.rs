//! Scheduling policies: each chooses the stream on which an operation runs.
//!
//! | policy | chosen stream |
//! |---|---|
//! | [`StreamPoolRoundRobin`], the default | the next idle stream of a pool |
//! | [`SingleStream`] | always the same one |
//! | [`LeastLoaded`] | the one with the fewest submissions in flight |
//! | [`Priorities`] | an ordinary one; urgent operations have a pool of their own |
//! | [`Devices`] | one of several devices |
//! | a type of your own | see [`SchedulingPolicy`] |
//!
//! A policy decides about concurrency, never about correctness: the library orders uses of a buffer on several streams.
//!
//! ```
//! use cuda_async::{policy::LeastLoaded, prelude::*};
//! let policy = LeastLoaded::new(&cuda_async::default_device()?)?;
//! let first = h2d([1u8]).then(to_host).schedule(&policy);
//! let second = h2d([2u8]).then(to_host).schedule(&policy); // at the same time
//! assert_eq!((first.wait()?, second.wait()?), (vec![1], vec![2]));
//! # Ok::<(), cuda_async::Error>(())
//! ```

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
