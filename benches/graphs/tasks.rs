//! Measures many concurrent pipelines of three small kernels, with the graph cache and without it.

use std::{error::Error, sync::Arc, thread};

use benches::{
    Place, Way,
    baseline::{THREADS, Threads},
    done, per_second, print_rows,
    raw::{LEN, Raw},
    section,
};
use cuda_async::{
    Function, Result as Done, SchedulingPolicy, Stream, policy::StreamPoolRoundRobin, prelude::*,
};
use tokio::{
    runtime::{Builder, Runtime},
    task::JoinSet,
};

use crate::ours::{Floats, Ours, pipeline};

type Policy = Arc<dyn SchedulingPolicy>;

const PIPELINES: usize = 20;

const WITHOUT: [&str; 4] = [
    "without the cache, `.await`, default policy",
    "without the cache, `.await`, 8 streams",
    "without the cache, `.await`, 16 streams",
    "without the cache, threads, `.sync_on` a stream for each",
];

const WITH: [&str; 4] = [
    "graph cache, `.await`, default policy",
    "graph cache, `.await`, 8 streams",
    "graph cache, `.await`, 16 streams",
    "graph cache, threads, `.sync_on` a stream for each",
];

pub fn measure(raw: Option<&Raw>, ours: &Ours) -> Result<(), Box<dyn Error>> {
    section("Throughput", &["pipelines per second", "to the first"]);
    let tasks = if raw.is_some() { 1024 } else { 64 };
    let mut threads = raw.map(|raw| Threads::new(raw, tasks, PIPELINES)).transpose()?;
    let all = Tasks::new(ours, tasks)?;
    let pool = |streams| -> Done<Policy> {
        Ok(Arc::new(StreamPoolRoundRobin::with_streams(&ours.device, streams)?))
    };
    let [eight, sixteen] = [pool(8)?, pool(16)?];
    let mut ways = Vec::new();
    if let Some(threads) = &mut threads {
        ways.push(Way::new("raw driver, a stream for each thread", || threads.run()));
    }
    let (all, eight, sixteen) = (&all, &eight, &sixteen);
    for (cache, names) in [(false, WITHOUT), (true, WITH)] {
        let on = move || ours.device.set_graph_cache(cache);
        let [default, in_eight, in_sixteen, on_threads] = names;
        ways.extend([
            Way::new(default, move || {
                on();
                all.on_tokio(None);
            }),
            Way::new(in_eight, move || {
                on();
                all.on_tokio(Some(eight));
            }),
            Way::new(in_sixteen, move || {
                on();
                all.on_tokio(Some(sixteen));
            }),
            Way::new(on_threads, move || {
                on();
                all.on_threads();
            }),
        ]);
    }
    let rates = per_second(ways, tasks * PIPELINES, 9);
    print_rows(&format!("{tasks} tasks of 3 launches, {THREADS} threads"), &rates);
    Ok(())
}

struct Tasks {
    scale: Function,
    /// A buffer for each task.
    buffers: Place<Vec<Floats>>,
    runtime: Runtime,
    /// A stream for each blocking thread.
    streams: Vec<Stream>,
}

impl Tasks {
    fn new(ours: &Ours, tasks: usize) -> Result<Self, Box<dyn Error>> {
        let floats = || zeros(LEN).sync_on(&ours.stream);
        let buffers = (0..tasks).map(|_| floats()).collect::<Done<_>>()?;
        let streams = (0..THREADS).map(|_| ours.device.new_stream()).collect::<Done<_>>()?;
        let runtime = Builder::new_multi_thread().worker_threads(THREADS).build()?;
        Ok(Self { scale: ours.function(), buffers: Place::new(buffers), runtime, streams })
    }

    fn on_tokio(&self, policy: Option<&Policy>) {
        self.buffers.lend(|buffers| self.runtime.block_on(self.spawned(buffers, policy)));
    }

    async fn spawned(&self, buffers: Vec<Floats>, policy: Option<&Policy>) -> Done<Vec<Floats>> {
        let mut tasks = JoinSet::new();
        for x in buffers {
            tasks.spawn(task(self.scale.clone(), x, policy.cloned()));
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
                    let scale = &self.scale;
                    scope.spawn(move || blocking(scale, share, stream))
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
}

fn blocking(scale: &Function, mut share: Vec<Floats>, stream: &Stream) -> Done<Vec<Floats>> {
    for _ in 0..PIPELINES {
        let run = |x| pipeline(scale, x).sync_on(stream);
        share = share.into_iter().map(run).collect::<Done<_>>()?;
    }
    Ok(share)
}

async fn task(scale: Function, mut x: Floats, policy: Option<Policy>) -> Done<Floats> {
    for _ in 0..PIPELINES {
        let op = pipeline(&scale, x);
        x = match &policy {
            Some(policy) => op.schedule(&**policy).await?,
            None => op.await?,
        };
    }
    Ok(x)
}
