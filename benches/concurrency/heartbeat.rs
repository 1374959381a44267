//! Measures the delay of the other tasks of a one-threaded executor while kernels with read-backs are awaited on it.

use std::{error::Error, time::Duration};

use benches::{
    baseline, done,
    heartbeat::{PULSES, beside},
    raw::Raw,
    section,
};
use cuda_async::{Result as Done, prelude::*};
use tokio::task::{JoinSet, yield_now};

use crate::{
    ours::{Ours, Words, read_back},
    sizes::Sizes,
};

/// Elements of a read-back: 64 KiB.
const WORDS: usize = 8192;

/// The number of pipelines awaited concurrently, in the rows that are not sequential.
const AT_ONCE: usize = 8;

pub fn measure(raw: Option<&Raw>, ours: &Ours, sizes: &Sizes) -> Result<(), Box<dyn Error>> {
    section("Heartbeat of a one-threaded executor", &["p50 us", "p99 us", "max us"]);
    let lane = raw.map(|raw| raw.lane(WORDS * 8)).transpose()?;
    for (what, pulse) in PULSES {
        let nothing = Duration::from_nanos(u64::from(sizes.beside_nanos)) * sizes.beside as u32;
        beside(what, "no device work", pulse, async { tokio::time::sleep(nothing).await });
        if let Some(lane) = &lane {
            let how = "raw driver, one after the other, each synchronized";
            beside(
                what,
                how,
                pulse,
                baseline::synchronizing(lane, sizes.beside_nanos, sizes.beside),
            );
        }
        let buffer = || ours.words(WORDS);
        let one = pipelines(ours.clone(), buffer()?, sizes.beside_nanos, sizes.beside);
        beside(what, "`.await`, one after the other", pulse, async { done(one.await) });
        let buffers = (0..AT_ONCE).map(|_| buffer()).collect::<Done<Vec<_>>>()?;
        beside(what, "`.await`, 8 at a time", pulse, async {
            done(several(ours, buffers, sizes).await);
        });
    }
    Ok(())
}

/// Awaits kernels with read-backs in sequence.
async fn pipelines(ours: Ours, mut x: Words, nanos: u32, count: usize) -> Done<()> {
    for _ in 0..count {
        x = ours.timed(x, nanos).then(read_back).await?;
        yield_now().await;
    }
    Ok(())
}

/// Awaits the same number of kernels, with a task for each buffer.
async fn several(ours: &Ours, buffers: Vec<Words>, sizes: &Sizes) -> Done<()> {
    let mut tasks = JoinSet::new();
    for x in buffers {
        tasks.spawn(pipelines(ours.clone(), x, sizes.beside_nanos, sizes.beside / AT_ONCE));
    }
    tasks.join_all().await.into_iter().collect()
}
