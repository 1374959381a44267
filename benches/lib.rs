//! What the benchmarks share: timing several ways of doing the same thing in one run, and the table.

use std::time::{Duration, Instant};

/// One way of doing something: its name, and what does it once.
pub struct Way<'a> {
    /// As it stands in the table.
    pub name: &'static str,
    /// Does it once.
    pub run: Box<dyn FnMut() + 'a>,
}

impl<'a> Way<'a> {
    /// A way.
    pub fn new(name: &'static str, run: impl FnMut() + 'a) -> Self {
        Self { name, run: Box::new(run) }
    }
}

/// How long to measure.
#[derive(Clone, Copy)]
pub struct Effort {
    /// Turns that every way gets; they take turns, so that a change of the machine meets all of them.
    pub rounds: usize,
    /// Times in a row that a way is done in one turn.
    pub in_a_row: usize,
}

/// The median time of each way, in microseconds.
pub fn medians(ways: &mut [Way<'_>], effort: Effort) -> Vec<f64> {
    let mut times = vec![Vec::with_capacity(effort.rounds * effort.in_a_row); ways.len()];
    for way in ways.iter_mut() {
        // Warm: modules loaded, pools filled, clocks up.
        (0..effort.in_a_row).for_each(|_| (way.run)());
    }
    for _ in 0..effort.rounds {
        for (way, times) in ways.iter_mut().zip(&mut times) {
            times.extend((0..effort.in_a_row).map(|_| timed(&mut way.run)));
        }
    }
    times.into_iter().map(median).collect()
}

fn timed(run: &mut dyn FnMut()) -> Duration {
    let start = Instant::now();
    run();
    start.elapsed()
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).map_or(0.0, |time| time.as_secs_f64() * 1e6)
}

/// Measures and prints one block of a Markdown table: each way, and its ratio to the first.
pub fn report(what: &str, mut ways: Vec<Way<'_>>, effort: Effort) {
    let medians = medians(&mut ways, effort);
    let first = medians.first().copied().unwrap_or(f64::NAN);
    for (way, median) in ways.iter().zip(&medians) {
        println!("| {what} | {} | {median:.2} | {:.3} |", way.name, median / first);
    }
}

/// The heading of the table.
pub fn heading(device: &str) {
    println!("# {device}\n\n| what | how | median us | to the first |\n|---|---|---:|---:|");
}
