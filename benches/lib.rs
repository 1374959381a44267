//! Shared parts of the benchmarks: timing of several ways in one run, tables, raw driver calls for comparison, a
//! counter of heap allocations, and a heartbeat for executors.

#[path = "harness/baseline.rs"]
pub mod baseline;
#[path = "harness/executor.rs"]
pub mod executor;
#[path = "harness/heap.rs"]
pub mod heap;
#[path = "harness/heartbeat.rs"]
pub mod heartbeat;
#[path = "harness/histogram.rs"]
mod histogram;
#[path = "harness/place.rs"]
mod place;
#[path = "harness/raw.rs"]
pub mod raw;
#[path = "harness/raw_graph.rs"]
pub mod raw_graph;
#[path = "harness/table.rs"]
mod table;
#[path = "harness/watcher.rs"]
pub mod watcher;

pub use place::Place;
pub use table::{Effort, Row, Way, heading, medians, per_second, print_rows, report, section};

/// Unwraps a result. Panics with the error, because a benchmark that failed has no result.
#[allow(clippy::panic)]
pub fn done<T, E: std::fmt::Display>(result: Result<T, E>) -> T {
    match result {
        Ok(output) => output,
        Err(error) => panic!("{error}"),
    }
}
