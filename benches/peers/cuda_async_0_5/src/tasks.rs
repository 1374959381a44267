//! Many concurrent tasks. Each runs a sequence of pipelines of three small kernels on its own buffer.

use std::{error::Error, sync::Arc, thread};

use benches::{
    Way,
    baseline::{THREADS, Threads},
    done, per_second, print_rows,
    raw::{Address, LEN, Raw},
    section,
};
use cuda_async::{device_operation::DeviceOp, error::DeviceError};
use cuda_core::Stream;
use tokio::{
    runtime::{Builder, Runtime},
    task::JoinSet,
};

use crate::peer::{Peer, Policy};

const TASKS: usize = 1024;
const PIPELINES: usize = 20;
const ROUNDS: usize = 9;

pub fn measure(raw: &Raw, peer: &Peer) -> Result<(), Box<dyn Error>> {
    section("Throughput", &["pipelines per second", "to the first"]);
    let mut threads = Threads::new(raw, TASKS, PIPELINES)?;
    let tasks = Tasks::new(peer)?;
    let [eight, sixteen] = [peer.pool(8)?, peer.pool(16)?];
    let on_tokio = |policy: Option<&Policy>| done(tasks.on_tokio(policy));
    let ways = vec![
        Way::new("raw driver, a stream for each thread", || threads.run()),
        Way::new("peer, tokio, `.await`, its default policy (4 streams a thread)", || {
            on_tokio(None);
        }),
        Way::new("peer, tokio, `.await`, single stream", || on_tokio(Some(&peer.single))),
        Way::new("peer, tokio, `.await`, 8 streams", || on_tokio(Some(&eight))),
        Way::new("peer, tokio, `.await`, 16 streams", || on_tokio(Some(&sixteen))),
        Way::new("peer, threads, `.sync_on` a stream for each", || tasks.on_threads()),
    ];
    let rates = per_second(ways, TASKS * PIPELINES, ROUNDS);
    print_rows(&format!("{TASKS} tasks of 3 launches, {THREADS} threads"), &rates);
    Ok(())
}

struct Tasks<'a> {
    peer: &'a Peer,
    buffers: Vec<Address>,
    runtime: Runtime,
    /// A stream for each blocking thread.
    streams: Vec<Arc<Stream>>,
}

impl<'a> Tasks<'a> {
    fn new(peer: &'a Peer) -> Result<Self, Box<dyn Error>> {
        let buffers = (0..TASKS).map(|_| peer.buffer(LEN * 4)).collect::<Result<_, _>>()?;
        let streams = (0..THREADS).map(|_| peer.device.new_stream()).collect::<Result<_, _>>()?;
        let device = peer.device.clone();
        // A future on an explicit policy expects its thread to be bound to the context.
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .on_thread_start(move || done(device.bind_to_thread()))
            .build()?;
        Ok(Self { peer, buffers, runtime, streams })
    }

    fn on_tokio(&self, policy: Option<&Policy>) -> Result<(), DeviceError> {
        self.runtime.block_on(async {
            let mut tasks = JoinSet::new();
            for x in &self.buffers {
                tasks.spawn(task(self.peer.clone(), *x, policy.cloned()));
            }
            tasks.join_all().await.into_iter().collect()
        })
    }

    /// Every thread cycles through its share of the tasks.
    fn on_threads(&self) {
        let shares = self.buffers.chunks(TASKS / THREADS).zip(&self.streams);
        thread::scope(|scope| {
            for (share, stream) in shares {
                scope.spawn(|| done(self.blocking(share, stream)));
            }
        });
    }

    fn blocking(&self, share: &[Address], stream: &Arc<Stream>) -> Result<(), DeviceError> {
        self.peer.device.bind_to_thread()?;
        (0..PIPELINES).flat_map(|_| share).try_for_each(|x| self.peer.pipeline(*x).sync_on(stream))
    }
}

async fn task(peer: Peer, x: Address, policy: Option<Policy>) -> Result<(), DeviceError> {
    for _ in 0..PIPELINES {
        let pipeline = peer.pipeline(x);
        match &policy {
            Some(policy) => pipeline.schedule(policy)?.await?,
            None => pipeline.await?,
        }
    }
    Ok(())
}
