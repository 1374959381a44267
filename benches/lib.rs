//! What the benchmarks share: timing several ways of doing the same thing in one run, the tables, the raw
//! driver calls that they stand beside, and what counts allocations and measures an executor's pulse.

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
#[path = "harness/table.rs"]
mod table;
#[path = "harness/watcher.rs"]
pub mod watcher;

pub use place::Place;
pub use table::{Effort, Row, Way, heading, medians, per_second, print_rows, report, section};

/// What a benchmark that fails does: it has nothing to print.
#[allow(clippy::panic)]
pub fn done<T, E: std::fmt::Display>(result: Result<T, E>) -> T {
    match result {
        Ok(output) => output,
        Err(error) => panic!("{error}"),
    }
}
