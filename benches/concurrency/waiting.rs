//! Measures the processor time that waiting takes.

use std::{
    error::Error,
    fs,
    time::{Duration, Instant},
};

use benches::{executor::Parking, raw::Raw, section};
use cuda_async::{join_all, prelude::*};

use crate::{
    ours::{Ours, Words},
    sizes::Sizes,
};

/// Kernels of a measurement.
const KERNELS: u32 = 50;

/// Streams that are waited for at once, in the rows for several.
const AT_ONCE: usize = 8;

pub fn measure(raw: Option<&Raw>, ours: &Ours, sizes: &Sizes) -> Result<(), Box<dyn Error>> {
    section("Processor time of waiting", &["us a kernel", "processor us a kernel"]);
    for nanos in [sizes.beside_nanos / 10, sizes.beside_nanos] {
        kernels(raw, ours, nanos)?;
    }
    Ok(())
}

fn kernels(raw: Option<&Raw>, ours: &Ours, nanos: u32) -> Result<(), Box<dyn Error>> {
    let what = format!("kernels of {} ms", nanos / 1_000_000);
    if let Some(raw) = raw {
        let lane = raw.lane(4096)?;
        row(&what, "raw driver, launch + synchronize", || {
            lane.timed(nanos);
            lane.synchronize();
        });
    }
    let parking = Parking::new();
    let mut words = Some(ours.words(1)?);
    let mut lend = |run: &dyn Fn(Words) -> cuda_async::Result<Words>| {
        words = words.take().and_then(|x| run(x).ok());
    };
    let one = |x| ours.timed(x, nanos);
    row(&what, "`.sync_on(&stream)`", || lend(&|x| one(x).sync_on(&ours.stream)));
    row(&what, "`.await`", || lend(&|x| parking.block_on(one(x).into_future())));
    let mut all = Some((0..AT_ONCE).map(|_| ours.words(1)).collect::<Result<Vec<_>, _>>()?);
    row(&what, "`join_all` of eight, `.await`", || {
        let several = |all: Vec<Words>| join_all(all.into_iter().map(one)).into_future();
        all = all.take().and_then(|all| parking.block_on(several(all)).ok());
    });
    Ok(())
}

fn row(what: &str, how: &str, mut run: impl FnMut()) {
    let (start, used) = (Instant::now(), processor_time());
    (0..KERNELS).for_each(|_| run());
    let (wall, used) = (start.elapsed(), processor_time().saturating_sub(used));
    let micros = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(KERNELS);
    println!("| {what} | {how} | {:.1} | {:.1} |", micros(wall), micros(used));
}

/// The processor time of all threads of this process, as `/proc/self/task/*/schedstat` counts it.
fn processor_time() -> Duration {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let nanos = threads.filter_map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanos.sum())
}
