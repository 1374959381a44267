//! Statistics of the library's own time, by `criterion`: `cargo bench -p benches --bench micro [-- FILTER]`.
//!
//! The device completes everything immediately, so no driver is measured. `criterion` compares each run with the one
//! before, which shows the effect of a change. `overhead` measures the same operations beside raw driver calls, in
//! turns.

#[path = "../overhead/null.rs"]
mod null;
#[allow(dead_code)] // `overhead` uses the rest
#[path = "../overhead/ours.rs"]
mod ours;

use std::time::Duration;

use criterion::{Criterion, Throughput};
use cuda_async::Device;

use crate::{null::NullProvider, ours::Ours};

/// Operations in one measurement.
const OPS: usize = 100;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let ours = Ours::new(&Device::open(&NullProvider, 0)?)?;
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(3))
        .configure_from_args();
    let mut group = criterion.benchmark_group("library");
    group.throughput(Throughput::Elements(OPS as u64));
    group.bench_function("build and drop a launch", |bench| bench.iter(|| ours.build(OPS)));
    group.bench_function("sync_on", |bench| bench.iter(|| ours.sync_on_in_sequence(OPS)));
    group.bench_function("chain, sync_on", |bench| bench.iter(|| ours.chain_sync(OPS)));
    group.bench_function("await, one stream", |bench| {
        bench.iter(|| ours.awaited_in_sequence(&ours.single, OPS));
    });
    group.bench_function("await, default policy", |bench| {
        bench.iter(|| ours.plainly_awaited(OPS));
    });
    group.bench_function("read-only launch, sync_on", |bench| {
        bench.iter(|| (0..OPS).for_each(|_| ours.read_sync_on()));
    });
    group.finish();
    criterion.final_summary();
    Ok(())
}
