//! The baseline of each block: the same work by plain driver calls.

use std::{cell::Cell, thread};

use cudarc::driver::result::DriverError;
use tokio::task::yield_now;

use crate::{
    Way, done,
    raw::{Address, Event, LEN, Lane, Raw},
    watcher::Watcher,
};

/// The number of threads that run many tasks.
pub const THREADS: usize = 8;

/// Returns two ways to wait for a kernel: synchronize the stream, or watch a flag that the stream writes.
///
/// # Errors
/// The error of the driver.
pub fn woken<'a>(lane: &'a Lane<'_>, nanos: u32) -> Result<Vec<Way<'a>>, DriverError> {
    let flag = lane.flag()?;
    let watcher = Watcher::new(flag.word);
    let count = Cell::new(0);
    let synchronize = Way::new("raw driver, launch + synchronize", move || {
        lane.timed(nanos);
        lane.synchronize();
    });
    let watched = Way::new("raw driver, launch + flag write, watched, unpark", move || {
        count.set(count.get() + 1);
        lane.timed(nanos);
        lane.write(&flag, count.get());
        watcher.wait_for(count.get());
    });
    Ok(vec![synchronize, watched])
}

/// Three streams and the events that order them.
pub struct Fork<'a> {
    lanes: [Lane<'a>; 3],
    forked: Event,
    joined: [Event; 2],
}

impl<'a> Fork<'a> {
    /// Makes the streams for the calling thread.
    ///
    /// # Errors
    /// The error of the driver.
    pub fn new(raw: &'a Raw) -> Result<Self, DriverError> {
        let lanes = [raw.lane(4096)?, raw.lane(4096)?, raw.lane(4096)?];
        let [forked, b, c] = [lanes[0].event()?, lanes[0].event()?, lanes[0].event()?];
        Ok(Self { lanes, forked, joined: [b, c] })
    }

    /// One kernel, three kernels in sequence, three concurrent kernels.
    pub fn ways(&self, nanos: u32) -> Vec<Way<'_>> {
        let in_a_row = move |kernels: usize| {
            (0..kernels).for_each(|_| self.lanes[0].timed(nanos));
            self.lanes[0].synchronize();
        };
        vec![
            Way::new("raw driver, one", move || in_a_row(1)),
            Way::new("raw driver, three in sequence", move || in_a_row(3)),
            Way::new("raw driver, three forked and joined by events", move || self.run(nanos)),
        ]
    }

    fn run(&self, nanos: u32) {
        let [root, branches @ ..] = &self.lanes;
        root.record(&self.forked);
        root.timed(nanos);
        for (branch, joined) in branches.iter().zip(&self.joined) {
            branch.wait(&self.forked);
            branch.timed(nanos);
            branch.record(joined);
            root.wait(joined);
        }
        root.synchronize();
    }
}

/// Threads without an executor, each with a stream and a share of the buffers.
pub struct Threads<'a> {
    shares: Vec<(Lane<'a>, Vec<Address>)>,
    pipelines: usize,
}

impl<'a> Threads<'a> {
    /// Shares `buffers` buffers among [`THREADS`] threads.
    ///
    /// # Errors
    /// The error of the driver.
    pub fn new(raw: &'a Raw, buffers: usize, pipelines: usize) -> Result<Self, DriverError> {
        let mut shares = Vec::new();
        for _ in 0..THREADS {
            let lane = raw.lane(LEN * 4)?;
            let buffers = (0..buffers / THREADS).map(|_| lane.buffer());
            let buffers = buffers.collect::<Result<_, _>>()?;
            shares.push((lane, buffers));
        }
        Ok(Self { shares, pipelines })
    }

    /// Runs the given number of pipelines on each buffer.
    pub fn run(&mut self) {
        let pipelines = self.pipelines;
        thread::scope(|scope| {
            for (lane, buffers) in &mut self.shares {
                scope.spawn(move || blocking(lane, buffers, pipelines));
            }
        });
    }
}

fn blocking(lane: &mut Lane<'_>, buffers: &[Address], pipelines: usize) {
    done(lane.bind());
    for x in (0..pipelines).flat_map(|_| buffers) {
        (0..3).for_each(|_| lane.scale(*x));
        lane.synchronize();
    }
}

/// A task that blocks its thread in the driver for each kernel and its download.
pub async fn synchronizing(lane: &Lane<'_>, nanos: u32, kernels: usize) {
    for _ in 0..kernels {
        lane.timed(nanos);
        lane.download();
        lane.synchronize();
        yield_now().await;
    }
}
