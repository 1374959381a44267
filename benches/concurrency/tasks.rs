//! Measures many concurrent tasks. Each runs a sequence of pipelines of three small kernels on its own buffer.

use std::{error::Error, sync::Arc, thread};

use benches::{
    Place, Way,
    baseline::{THREADS, Threads},
    done, per_second, print_rows,
    raw::Raw,
    section,
};
use cuda_async::{
    Result as Done, SchedulingPolicy, Stream, policy::StreamPoolRoundRobin, prelude::*,
};
use tokio::{
    runtime::{Builder, Runtime},
    task::JoinSet,
};

use crate::{
    ours::{Floats, Ours},
    sizes::Sizes,
};

type Policy = Arc<dyn SchedulingPolicy>;

pub fn measure(raw: Option<&Raw>, ours: &Ours, sizes: &Sizes) -> Result<(), Box<dyn Error>> {
    section("Throughput", &["pipelines per second", "to the first"]);
    let mut threads = raw.map(|raw| Threads::new(raw, sizes.tasks, sizes.pipelines)).transpose()?;
    let tasks = Tasks::new(ours, sizes)?;
    let pool = |streams| -> Done<Policy> {
        Ok(Arc::new(StreamPoolRoundRobin::with_streams(&ours.device, streams)?))
    };
    let [eight, sixteen] = [pool(8)?, pool(16)?];
    let mut ways = Vec::new();
    if let Some(threads) = &mut threads {
        ways.push(Way::new("raw driver, a stream for each thread", || threads.run()));
    }
    ways.extend([
        Way::new("tokio, `.await`, default policy", || tasks.on_tokio(None)),
        Way::new("tokio, `.await`, 8 streams", || tasks.on_tokio(Some(&eight))),
        Way::new("tokio, `.await`, 16 streams", || tasks.on_tokio(Some(&sixteen))),
        Way::new("threads, `.sync_on` a stream for each", || tasks.on_threads()),
    ]);
    let rates = per_second(ways, sizes.tasks * sizes.pipelines, sizes.rounds);
    print_rows(&format!("{} tasks of 3 launches, {THREADS} threads", sizes.tasks), &rates);
    Ok(())
}

struct Tasks<'a> {
    ours: &'a Ours,
    /// A buffer for each task.
    buffers: Place<Vec<Floats>>,
    pipelines: usize,
    runtime: Runtime,
    /// A stream for each blocking thread.
    streams: Vec<Stream>,
}

impl<'a> Tasks<'a> {
    fn new(ours: &'a Ours, sizes: &Sizes) -> Result<Self, Box<dyn Error>> {
        let buffers = (0..sizes.tasks).map(|_| ours.floats()).collect::<Done<_>>()?;
        let streams = (0..THREADS).map(|_| ours.device.new_stream()).collect::<Done<_>>()?;
        let runtime = Builder::new_multi_thread().worker_threads(THREADS).build()?;
        let pipelines = sizes.pipelines;
        Ok(Self { ours, buffers: Place::new(buffers), pipelines, runtime, streams })
    }

    fn on_tokio(&self, policy: Option<&Policy>) {
        self.buffers.lend(|buffers| self.runtime.block_on(self.spawned(buffers, policy)));
    }

    async fn spawned(&self, buffers: Vec<Floats>, policy: Option<&Policy>) -> Done<Vec<Floats>> {
        let mut tasks = JoinSet::new();
        for x in buffers {
            tasks.spawn(task(self.ours.clone(), x, self.pipelines, policy.cloned()));
        }
        tasks.join_all().await.into_iter().collect()
    }

    /// Every thread cycles through its share of the tasks.
    fn on_threads(&self) {
        self.buffers.lend(|buffers| -> Done<_> {
            let share = buffers.len().div_ceil(THREADS);
            let mut rest = buffers.into_iter();
            thread::scope(|scope| {
                let start = |stream| {
                    let share = rest.by_ref().take(share).collect();
                    scope.spawn(move || self.blocking(share, stream))
                };
                let started: Vec<_> = self.streams.iter().map(start).collect();
                let mut all = Vec::new();
                for thread in started {
                    all.extend(done(thread.join().map_err(|_| "a thread panicked"))?);
                }
                Ok(all)
            })
        });
    }

    fn blocking(&self, mut share: Vec<Floats>, stream: &Stream) -> Done<Vec<Floats>> {
        for _ in 0..self.pipelines {
            let run = |x| self.ours.pipeline(x).sync_on(stream);
            share = share.into_iter().map(run).collect::<Done<_>>()?;
        }
        Ok(share)
    }
}

async fn task(ours: Ours, mut x: Floats, pipelines: usize, policy: Option<Policy>) -> Done<Floats> {
    for _ in 0..pipelines {
        let pipeline = ours.pipeline(x);
        x = match &policy {
            Some(policy) => pipeline.schedule(&**policy).await?,
            None => pipeline.await?,
        };
    }
    Ok(x)
}
