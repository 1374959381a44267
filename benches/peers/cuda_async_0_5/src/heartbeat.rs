//! Delay of the other tasks of a one-threaded executor while kernels with read-backs are awaited on it.

use std::{error::Error, hint::black_box, time::Duration};

use benches::{
    baseline, done,
    heartbeat::{PULSES, beside},
    raw::{Address, Raw},
    section,
};
use cuda_async::{device_operation::DeviceOp, error::DeviceError};
use tokio::task::{JoinSet, yield_now};

use crate::peer::{Peer, Pinned, WORDS, to_host_vec};

const NANOS: u32 = 10_000_000;
const PIPELINES: usize = 128;

/// The number of pipelines awaited concurrently, in the rows that are not sequential.
const AT_ONCE: usize = 8;

/// The read-back of a pipeline.
#[derive(Clone, Copy)]
enum ReadBack {
    ToHostVec,
    Pinned(Pinned),
}

pub fn measure(raw: &Raw, peer: &Peer) -> Result<(), Box<dyn Error>> {
    section("Heartbeat of a one-threaded executor", &["p50 us", "p99 us", "max us"]);
    let lane = raw.lane(WORDS * 8)?;
    let buffers = (0..AT_ONCE).map(|_| peer.buffer(WORDS * 8)).collect::<Result<Vec<_>, _>>()?;
    let pinned = (0..AT_ONCE).map(|_| Pinned::new()).collect::<Result<Vec<_>, _>>()?;
    let all = |way: fn(Pinned) -> ReadBack| -> Vec<(Address, ReadBack)> {
        buffers.iter().copied().zip(pinned.iter().copied().map(way)).collect()
    };
    for (what, pulse) in PULSES {
        let nothing = Duration::from_nanos(u64::from(NANOS)) * PIPELINES as u32;
        beside(what, "no device work", pulse, async { tokio::time::sleep(nothing).await });
        let how = "raw driver, one after the other, each synchronized";
        beside(what, how, pulse, baseline::synchronizing(&lane, NANOS, PIPELINES));
        for (how, way) in [
            (
                "peer, `.await`, cutile's read-back, one after the other",
                all(|_| ReadBack::ToHostVec),
            ),
            ("peer, `.await`, own pinned read-back, one after the other", all(ReadBack::Pinned)),
        ] {
            let one = way.iter().take(1).map(|(x, read)| (peer.clone(), *x, *read));
            beside(what, how, pulse, async {
                for (peer, x, read) in one {
                    done(pipelines(peer, x, read, PIPELINES).await);
                }
            });
        }
        for (how, way) in [
            ("peer, `.await`, cutile's read-back, 8 at a time", all(|_| ReadBack::ToHostVec)),
            ("peer, `.await`, own pinned read-back, 8 at a time", all(ReadBack::Pinned)),
        ] {
            beside(what, how, pulse, async { done(several(peer, way).await) });
        }
    }
    Ok(())
}

async fn pipelines(
    peer: Peer,
    x: Address,
    read: ReadBack,
    count: usize,
) -> Result<(), DeviceError> {
    for _ in 0..count {
        let kernel = peer.timed(x, NANOS);
        match read {
            ReadBack::ToHostVec => drop(black_box(kernel.then(move |()| to_host_vec(x)).await?)),
            ReadBack::Pinned(pinned) => kernel.then(move |()| pinned.read(x)).await?,
        }
        yield_now().await;
    }
    Ok(())
}

async fn several(peer: &Peer, all: Vec<(Address, ReadBack)>) -> Result<(), DeviceError> {
    let mut tasks = JoinSet::new();
    for (x, read) in all {
        tasks.spawn(pipelines(peer.clone(), x, read, PIPELINES / AT_ONCE));
    }
    tasks.join_all().await.into_iter().collect()
}
