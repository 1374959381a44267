//! Compares the leases of two nodes, such as one with a sandbox and one without.
//!
//! A worker differs from the next one by up to 15 percent in the time of a short operation, by the processors and the
//! addresses that it happens to get. So many workers of each node are measured, in turn.

use std::{
    thread,
    time::{Duration, Instant},
};

use cuda_async::Result;

use crate::{MANY, Side, acquire};

/// The workers of each node.
const WORKERS: usize = 24;

/// The time until another worker is a spare one: its start delays operations.
const REPLENISHED: Duration = Duration::from_secs(1);

/// A measurement of each worker: the name, the number of repetitions, and the operation.
type Row = (&'static str, usize, fn(&Side) -> Result<()>);

const ROWS: [Row; 3] = [
    ("one launch, waited for", 2000, |side| {
        side.chain(1);
        Ok(())
    }),
    ("upload, 100 launches, read-back", 500, Side::pipeline),
    ("a stream of 20,000 launches", 5, |side| {
        side.chain(MANY);
        Ok(())
    }),
];

/// Prints the median times of both nodes, and the mean ratio of the first to the second with its standard error.
pub fn compare(first: &str, second: &str) -> Result<()> {
    let mut times = [(); ROWS.len()].map(|()| Vec::new());
    for round in 0..WORKERS {
        // Each node is the first one as often as the other.
        let (one, other) = match round % 2 {
            0 => (first, second),
            _ => (second, first),
        };
        let (one, other) = (measure(one)?, measure(other)?);
        let pairs = one.into_iter().zip(other);
        for (times, (one, other)) in times.iter_mut().zip(pairs) {
            times.push(if round % 2 == 0 { (one, other) } else { (other, one) });
        }
    }
    println!("\n| what | first, us | second, us | first / second | standard error |");
    println!("|---|---:|---:|---:|---:|");
    for ((what, ..), times) in ROWS.iter().zip(times) {
        let median_of = |side: fn(&(f64, f64)) -> f64| median(times.iter().map(side).collect());
        let ratios: Vec<_> = times.iter().map(|(one, other)| (one / other).ln()).collect();
        let count = ratios.len() as f64;
        let mean = ratios.iter().sum::<f64>() / count;
        let squares: f64 = ratios.iter().map(|ratio| (ratio - mean).powi(2)).sum();
        let error = (squares / (count - 1.0) / count).sqrt();
        let (one, other) = (median_of(|pair| pair.0), median_of(|pair| pair.1));
        println!("| {what} | {one:.2} | {other:.2} | {:.4} | {error:.4} |", mean.exp());
    }
    Ok(())
}

/// The median time of each row with a new worker, in microseconds.
fn measure(node: &str) -> Result<[f64; ROWS.len()]> {
    let lease = acquire(node)?;
    let side = Side::new(lease.device())?;
    thread::sleep(REPLENISHED);
    let mut medians = [0.0; ROWS.len()];
    for (to, (_, count, run)) in medians.iter_mut().zip(ROWS) {
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let started = Instant::now();
            run(&side)?;
            times.push(started.elapsed().as_secs_f64() * 1e6);
        }
        *to = median(times);
    }
    Ok(medians)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
