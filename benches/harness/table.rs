//! Timing and tables.

use std::time::{Duration, Instant};

/// One way of doing the measured work.
pub struct Way<'a> {
    /// The name in the table.
    pub name: &'static str,
    /// Does the work once.
    pub run: Box<dyn FnMut() + 'a>,
}

impl<'a> Way<'a> {
    /// Creates a way.
    pub fn new(name: &'static str, run: impl FnMut() + 'a) -> Self {
        Self { name, run: Box::new(run) }
    }
}

/// The number of measurements.
#[derive(Clone, Copy)]
pub struct Effort {
    /// Turns of each way. The ways take turns, so that a change of the machine's speed affects all of them.
    pub rounds: usize,
    /// Measurements in one turn.
    pub in_a_row: usize,
}

/// A row of a table: the way's name and its value.
pub type Row<'a> = (&'a str, f64);

/// Measures the median time of each way, in microseconds.
pub fn medians(ways: &mut [Way<'_>], effort: Effort) -> Vec<f64> {
    let mut times = vec![Vec::with_capacity(effort.rounds * effort.in_a_row); ways.len()];
    for way in ways.iter_mut() {
        // Warm-up: loads modules, fills pools, raises clocks.
        (0..effort.in_a_row).for_each(|_| (way.run)());
    }
    for _ in 0..effort.rounds {
        for (way, times) in ways.iter_mut().zip(&mut times) {
            times.extend((0..effort.in_a_row).map(|_| timed(&mut way.run)));
        }
    }
    times.into_iter().map(median).collect()
}

/// Measures the median rate of each way over `rounds` turns, in items per second. One execution processes `pieces`
/// items.
pub fn per_second(mut ways: Vec<Way<'_>>, pieces: usize, rounds: usize) -> Vec<Row<'static>> {
    let medians = medians(&mut ways, Effort { rounds, in_a_row: 1 });
    let rates = medians.into_iter().map(|micros| pieces as f64 / micros * 1e6);
    ways.iter().map(|way| way.name).zip(rates).collect()
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

/// Measures the ways and prints one block of a Markdown table: each median, and its ratio to the first.
pub fn report(what: &str, mut ways: Vec<Way<'_>>, effort: Effort) {
    let medians = medians(&mut ways, effort);
    let rows: Vec<_> = ways.iter().map(|way| way.name).zip(medians).collect();
    print_rows(what, &rows);
}

/// Prints one block of a Markdown table: each value, and its ratio to the first.
pub fn print_rows(what: &str, rows: &[Row<'_>]) {
    let first = rows.first().map_or(f64::NAN, |row| row.1);
    for (how, value) in rows {
        println!("| {what} | {how} | {value:.2} | {:.3} |", value / first);
    }
}

/// Prints the heading of a device's table of medians.
pub fn heading(device: &str) {
    println!("# {device}");
    columns(&["median us", "to the first"]);
}

/// Prints the heading of another table.
pub fn section(title: &str, values: &[&str]) {
    println!("\n## {title}");
    columns(values);
}

fn columns(values: &[&str]) {
    println!(
        "\n| what | how | {} |\n|---|---|{}",
        values.join(" | "),
        "---:|".repeat(values.len())
    );
}
