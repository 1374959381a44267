//! Measures where the graph cache must not cost time: single launches, and kernels that take longer than their launch.

use std::error::Error;

use benches::{Effort, Way, raw::Raw, report};

use crate::ours::Ours;

pub fn measure(_: Option<&Raw>, ours: &Ours) -> Result<(), Box<dyn Error>> {
    for kernels in [1, 3, 10] {
        for nanos in [1_000, 2_000, 4_000, 6_000, 10_000, 20_000, 40_000, 100_000] {
            let ways = vec![
                Way::new("without the cache", || ours.run_timed(kernels, nanos, false)),
                Way::new("with the cache", || ours.run_timed(kernels, nanos, true)),
            ];
            let what = format!("{kernels} kernels of {} us", nanos / 1000);
            report(&what, ways, Effort { rounds: 30, in_a_row: 20 });
        }
    }
    Ok(())
}
