//! Measures how long the calls of a thread take while the graph cache builds a graph of another thread's work.

use std::{
    error::Error,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use benches::{done, print_rows, raw::Raw, section};
use cuda_async::{Result as Done, Stream, prelude::*};

use crate::ours::Ours;

/// Kernels of a window.
const KERNELS: usize = 64;

/// Windows of one stream. The cache has built their graphs long before the last one.
const WINDOWS: usize = 100;

/// Streams for each row. The row is the median of their longest calls.
const STREAMS: usize = 9;

pub fn measure(_: Option<&Raw>, ours: &Ours) -> Result<(), Box<dyn Error>> {
    section("Calls of another thread", &["longest us", "to the first"]);
    for nanos in [2_000, 10_000, 20_000, 40_000, 100_000] {
        let (without, _) = median_of_longest(ours, nanos, false);
        let (with, built) = median_of_longest(ours, nanos, true);
        let how = format!("with the cache, which built {built} graphs for {STREAMS} streams");
        let rows = [("without the cache", without), (&how, with)];
        print_rows(&format!("windows of {KERNELS} kernels of {} us", nanos / 1000), &rows);
    }
    ours.device.set_graph_cache(true);
    Ok(())
}

/// Returns the time, and the number of graphs that were built.
fn median_of_longest(ours: &Ours, nanos: u32, cache: bool) -> (f64, u64) {
    ours.device.set_graph_cache(cache);
    let calls = (0..STREAMS).map(|_| done(longest_call(ours, nanos)));
    let (mut longest, built): (Vec<_>, Vec<_>) = calls.unzip();
    longest.sort_unstable();
    (longest[STREAMS / 2].as_secs_f64() * 1e6, built.iter().sum())
}

/// Runs windows on a new stream, and a short kernel again and again on another one. Returns the longest time of a short
/// kernel with its wait, and the number of graphs that were built.
fn longest_call(ours: &Ours, nanos: u32) -> Done<(Duration, u64)> {
    let [busy, other] = [ours.device.new_stream()?, ours.device.new_stream()?];
    let (ends, before) = (AtomicBool::new(false), ours.device.graph_cache().built);
    thread::scope(|scope| {
        scope.spawn(|| {
            done(run_windows(ours, &busy, nanos));
            ends.store(true, Ordering::Relaxed);
        });
        let mut x = zeros(1).sync_on(&other)?;
        let mut longest = Duration::ZERO;
        while !ends.load(Ordering::Relaxed) {
            let start = Instant::now();
            x = ours.timed(x, 1_000).sync_on(&other)?;
            longest = longest.max(start.elapsed());
        }
        Ok((longest, ours.device.graph_cache().built.saturating_sub(before)))
    })
}

fn run_windows(ours: &Ours, stream: &Stream, nanos: u32) -> Done<()> {
    let mut word = zeros(1).sync_on(stream)?;
    for _ in 0..WINDOWS {
        word = ours.timed_chain(word, KERNELS, nanos).sync_on(stream)?;
    }
    Ok(())
}
