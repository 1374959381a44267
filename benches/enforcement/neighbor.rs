//! A tenant that runs small pipelines all the time and compares their bits.

use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use cuda_async::{
    Device, DeviceBuffer, Function, LaunchConfig, Result, Stream, iterate, launch, prelude::*,
};

const LEN: usize = 4096;

/// The launches of a pipeline.
const LAUNCHES: usize = 20;

/// Uploads numbers, launches a chain of kernels, and reads back.
pub struct Pipeline {
    stream: Stream,
    scale: Function,
    numbers: Vec<f32>,
}

impl Pipeline {
    pub fn new(device: &Device) -> Result<Self> {
        let scale =
            device.load_ptx_blocking(include_str!("../../kernels/basic.ptx"))?.function("scale")?;
        let numbers = (0..LEN).map(|number| number as f32 / 7.0).collect();
        Ok(Self { stream: device.new_stream()?, scale, numbers })
    }

    pub fn run(&self) -> Result<Vec<u32>> {
        let step = |x: DeviceBuffer<f32>| {
            let config = LaunchConfig::for_num_elems(LEN);
            // SAFETY: reads and writes `x`, of `LEN` elements.
            unsafe { launch(&self.scale, config, (x, 1.01f32, LEN as u32)) }
        };
        let chain = |x: DeviceBuffer<f32>| {
            iterate((x, 0usize), move |(x, count)| {
                step(x).map(move |x| match count + 1 {
                    LAUNCHES => ControlFlow::Break(x),
                    count => ControlFlow::Continue((x, count)),
                })
            })
        };
        let out = h2d(&*self.numbers).then(chain).then(to_host).sync_on(&self.stream)?;
        Ok(out.into_iter().map(f32::to_bits).collect())
    }
}

/// A thread that runs pipelines.
pub struct Neighbor {
    count: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Result<u64>>,
}

impl Neighbor {
    pub fn start(device: &Device) -> Result<Self> {
        let pipeline = Pipeline::new(device)?;
        let expected = pipeline.run()?;
        let (count, ends) = <(Arc<AtomicU64>, Arc<AtomicBool>)>::default();
        let (counter, end) = (count.clone(), ends.clone());
        let thread = thread::spawn(move || {
            let mut wrong = 0;
            while !end.load(Ordering::Relaxed) {
                wrong += u64::from(pipeline.run()? != expected);
                counter.fetch_add(1, Ordering::Relaxed);
            }
            Ok(wrong)
        });
        Ok(Self { count, ends, thread })
    }

    /// The pipelines per second during `time`.
    pub fn rate(&self, time: Duration) -> f64 {
        let (started, before) = (Instant::now(), self.count.load(Ordering::Relaxed));
        thread::sleep(time);
        (self.count.load(Ordering::Relaxed) - before) as f64 / started.elapsed().as_secs_f64()
    }

    /// Ends the thread. Returns the number of pipelines whose bits differ from the first.
    pub fn stop(self) -> Result<u64, Box<dyn std::error::Error>> {
        self.ends.store(true, Ordering::Relaxed);
        Ok(self.thread.join().map_err(|_| "the neighbor panicked")??)
    }
}
