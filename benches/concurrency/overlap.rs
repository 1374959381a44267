//! Uploads, processes and downloads chunks, and compares the time with the slowest of the three steps alone.

use std::ops::ControlFlow;

use benches::{
    Place, Row, Way, done,
    heartbeat::one_thread,
    medians, print_rows,
    raw::{Lane, Raw},
    section,
};
use cuda_async::{Error, Stream, in_order, iterate, join_all, ops::empty, prelude::*, to_pinned};
use tokio::runtime::Runtime;

use crate::{
    ours::{Ours, Words},
    sizes::Sizes,
};

/// The numbers of streams that share the chunks.
const LANES: [usize; 3] = [3, 4, 8];

pub fn measure(
    raw: Option<&Raw>,
    ours: &Ours,
    sizes: &Sizes,
) -> Result<(), Box<dyn std::error::Error>> {
    section("Overlap", &["median us", "to the slowest alone"]);
    let lanes = match raw {
        Some(raw) => (0..LANES[2]).map(|_| raw.lane(sizes.chunk * 8)).collect::<Result<_, _>>()?,
        None => Vec::new(),
    };
    let (one, executor) = (Place::new(ours.words(sizes.chunk)?), one_thread());
    let chunks = Chunks { ours, sizes, one, executor };
    let mut ways = raw_ways(&lanes, sizes);
    ways.extend(chunks.ways());
    let medians = medians(&mut ways, sizes.chunk_effort);
    let slowest = medians.iter().take(3).copied().fold(0.0, f64::max);
    let mut rows: Vec<Row<'_>> = vec![("the slowest of the first three", slowest)];
    rows.extend(ways.iter().map(|way| way.name).zip(medians));
    print_rows(&format!("{} chunks of {} KiB", sizes.chunks, sizes.chunk / 128), &rows);
    Ok(())
}

fn raw_ways<'a>(lanes: &'a [Lane<'_>], sizes: &'a Sizes) -> Vec<Way<'a>> {
    let [first, ..] = lanes else { return Vec::new() };
    let alone = |name, run: fn(&Lane<'_>, u32)| {
        Way::new(name, move || {
            (0..sizes.chunks).for_each(|_| run(first, sizes.chunk_nanos));
            first.synchronize();
        })
    };
    let together = |name, lanes: &'a [Lane<'_>]| {
        Way::new(name, move || {
            for chunk in 0..sizes.chunks {
                let lane = &lanes[chunk % lanes.len()];
                lane.upload();
                lane.timed(sizes.chunk_nanos);
                lane.download();
            }
            lanes.iter().for_each(Lane::synchronize);
        })
    };
    vec![
        alone("raw driver, uploads alone", |lane, _| lane.upload()),
        alone("raw driver, kernels alone", |lane, nanos| lane.timed(nanos)),
        alone("raw driver, downloads alone", |lane, _| lane.download()),
        together("raw driver, 3 streams", &lanes[..LANES[0]]),
        together("raw driver, 4 streams", &lanes[..LANES[1]]),
        together("raw driver, 8 streams", &lanes[..LANES[2]]),
    ]
}

struct Chunks<'a> {
    ours: &'a Ours,
    sizes: &'a Sizes,
    /// The buffer of the rows with kernels or downloads alone.
    one: Place<Words>,
    executor: Runtime,
}

impl Chunks<'_> {
    fn ways(&self) -> Vec<Way<'_>> {
        let executor = &self.executor;
        let stream = &self.ours.stream;
        vec![
            Way::new("uploads alone", || done(self.uploads().sync_on(stream))),
            Way::new("kernels alone", || self.one.lend(|x| self.kernels(x).sync_on(stream))),
            Way::new("downloads alone", || self.one.lend(|x| downloads(x, self.sizes, stream))),
            Way::new("3 x `in_order`, `.sync_on`", || {
                done(self.together(LANES[0]).sync_on(stream));
            }),
            Way::new("4 x `in_order`, `.sync_on`", || {
                done(self.together(LANES[1]).sync_on(stream));
            }),
            Way::new("8 x `in_order`, `.sync_on`", || {
                done(self.together(LANES[2]).sync_on(stream));
            }),
            Way::new("8 x `in_order`, `.await`", || {
                done(executor.block_on(self.together(LANES[2]).into_future()));
            }),
            Way::new("`join_all` of all, `.await`", || {
                done(executor.block_on(self.together(self.sizes.chunks).into_future()));
            }),
        ]
    }

    /// Processes all chunks in `lanes` sequences. Each sequence waits for a chunk before it starts the next.
    fn together(&self, lanes: usize) -> impl DeviceOp<Output = ()> {
        let nanos = self.sizes.chunk_nanos;
        let chunk = move || {
            self.upload().then(move |x| self.ours.timed(x, nanos)).then(to_pinned).map(drop)
        };
        let row = move |_| in_order((0..self.sizes.chunks / lanes).map(move |_| chunk()));
        join_all((0..lanes).map(row)).map(drop)
    }

    fn uploads(&self) -> impl DeviceOp<Output = ()> {
        in_order((0..self.sizes.chunks).map(|_| self.upload().map(drop))).map(drop)
    }

    /// Uploads from pinned memory that was used before, as in a program that reads files into it.
    fn upload(&self) -> impl DeviceOp<Output = Words> {
        empty(|| self.ours.device.pinned_uninitialized::<u64>(self.sizes.chunk).map(h2d))
    }

    fn kernels(&self, x: Words) -> impl DeviceOp<Output = Words> {
        iterate((x, self.sizes.chunks), |(x, left)| {
            self.ours.timed(x, self.sizes.chunk_nanos).map(move |x| match left {
                1 => ControlFlow::Break(x),
                _ => ControlFlow::Continue((x, left - 1)),
            })
        })
    }
}

/// Numbers of concurrent sequences: while one is awaited, another is in flight.
fn downloads(x: Words, sizes: &Sizes, stream: &Stream) -> Result<Words, Error> {
    let row = |_| in_order((0..sizes.chunks / LANES[0]).map(|_| to_pinned(&x).map(drop)));
    join_all((0..LANES[0]).map(row)).sync_on(stream)?;
    Ok(x)
}
