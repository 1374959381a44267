//! Compares three concurrent kernels with one kernel.

use benches::{Place, Way, baseline::Fork, heartbeat::one_thread, raw::Raw, report, section};
use cuda_async::{Error, join_all, prelude::*};

use crate::{
    ours::{Ours, Words},
    sizes::Sizes,
};

pub fn measure(
    raw: Option<&Raw>,
    ours: &Ours,
    sizes: &Sizes,
) -> Result<(), Box<dyn std::error::Error>> {
    section("Forks", &["median us", "to the first"]);
    let nanos = sizes.fork_nanos;
    let fork = raw.map(Fork::new).transpose()?;
    let buffers = Place::new([ours.words(1)?, ours.words(1)?, ours.words(1)?]);
    let (stream, executor) = (&ours.stream, one_thread());
    let mut ways = fork.as_ref().map_or_else(Vec::new, |fork| fork.ways(nanos));
    let one = |x| ours.timed(x, nanos);
    let one_after_another = |[a, b, c]: [Words; 3]| {
        let then = move |x: Words, rest| one(x).map(move |x| (x, rest));
        then(a, (b, c))
            .then(move |(a, (b, c))| then(b, (a, c)))
            .then(move |(b, (a, c))| one(c).map(move |c| [a, b, c]))
    };
    let zipped = |[a, b, c]: [Words; 3]| zip!(one(a), one(b), one(c)).map(|(a, b, c)| [a, b, c]);
    let joined = |all: [Words; 3]| join_all(all.map(one)).map(three);
    ways.extend([
        Way::new("one, `.sync_on`", || {
            buffers.lend(|[a, b, c]| one(a).map(|a| [a, b, c]).sync_on(stream));
        }),
        Way::new("three in sequence, `.sync_on`", || {
            buffers.lend(|all| one_after_another(all).sync_on(stream));
        }),
        Way::new("`zip!` of three, `.sync_on`", || {
            buffers.lend(|all| zipped(all).sync_on(stream));
        }),
        Way::new("one, `.await`", || {
            buffers.lend(|[a, b, c]| executor.block_on(one(a).map(|a| [a, b, c]).into_future()));
        }),
        Way::new("`zip!` of three, `.await`", || {
            buffers.lend(|all| executor.block_on(zipped(all).into_future()));
        }),
        Way::new("`join_all` of three, `.await`", || {
            buffers.lend(|all| executor.block_on(joined(all).into_future())?);
        }),
    ]);
    report(&format!("kernels of {} us", nanos / 1000), ways, sizes.effort);
    Ok(())
}

/// Converts a list of three buffers to an array.
fn three(all: Vec<Words>) -> cuda_async::Result<[Words; 3]> {
    all.try_into().map_err(|_| Error::AlreadyEnded)
}
