//! Spans and events of `tracing`.
//!
//! They have their own test binary: `tracing` remembers for each event of the process whether a subscriber wants it,
//! and misses the event if a thread without a subscriber meets it for the first time while another one sets its
//! subscriber.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    io::Write,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use cuda_async::{
    Device, DeviceBuffer, LaunchConfig, cuda_cpu::CpuProvider, launch, policy::SingleStream,
    prelude::*,
};
use tracing_subscriber::{fmt::format::FmtSpan, util::SubscriberInitExt};

/// One test at a time, so no other thread meets an event while a subscriber is set.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Runs `run` on this thread and returns its spans and events, a line for each, without the numbers of streams.
fn traced(run: impl FnOnce()) -> Vec<String> {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_span_events(FmtSpan::CLOSE)
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .without_time()
        .finish();
    let guard = subscriber.set_default();
    run();
    drop(guard);
    let text = String::from_utf8(std::mem::take(&mut lines.0.lock().unwrap())).unwrap();
    let without_times = |line: &str| {
        let words = line.split_whitespace();
        let kept =
            words.filter(|word| !word.starts_with("stream=") && !word.starts_with("number="));
        kept.take_while(|word| !word.starts_with("time.")).collect::<Vec<_>>().join(" ")
    };
    text.lines().map(without_times).collect()
}

#[test]
fn runs_named_operations_and_submissions_are_traced() {
    let _alone = alone();
    let device = Device::open(&CpuProvider::default(), 0).unwrap();
    let kernels = device.load_ptx_blocking(include_str!("../../kernels/basic.ptx")).unwrap();
    let scale = kernels.function("scale").unwrap();
    let policy = SingleStream::new(&device).unwrap();
    let op = || {
        let scale = scale.clone();
        let scaled = move |x: DeviceBuffer<f32>| {
            // SAFETY: reads and writes x, of two elements.
            unsafe { launch(&scale, LaunchConfig::new(1, 32), (x, 2.0f32, 2u32)) }
        };
        h2d(vec![1.0f32, 2.0]).then(scaled).named("twice").then(to_host)
    };
    let expected = [
        "TRACE run{device=\"cpu\"}:operation{name=\"twice\"}: cuda_async::submission: upload bytes=8",
        "TRACE run{device=\"cpu\"}:operation{name=\"twice\"}: cuda_async::submission: launch kernel=\"scale\" grid=[1, 1, 1] block=[32, 1, 1] shared_bytes=0",
        "DEBUG run{device=\"cpu\"}:operation{name=\"twice\"}: cuda_async: close",
        "TRACE run{device=\"cpu\"}: cuda_async::submission: download bytes=8",
        "DEBUG run{device=\"cpu\"}: cuda_async: close",
    ];
    let blocking = traced(|| drop(op().schedule(&policy).wait().unwrap()));
    assert_eq!(blocking, expected);
    let awaited = traced(|| drop(futures::executor::block_on(op().schedule(&policy)).unwrap()));
    assert_eq!(awaited, expected);
    let stream = device.new_stream().unwrap();
    let synchronous = traced(|| drop(op().sync_on(&stream).unwrap()));
    assert_eq!(synchronous, expected);
}

/// A launch that is recorded does not run, so only its replay is an event.
#[test]
fn replays_are_traced_and_recorded_launches_are_not() {
    let _alone = alone();
    let device = Device::open(&CpuProvider::default(), 0).unwrap();
    let kernels = device.load_ptx_blocking(include_str!("../../kernels/basic.ptx")).unwrap();
    let (scale, stream) = (kernels.function("scale").unwrap(), device.new_stream().unwrap());
    let x = zeros::<f32>(2).sync_on(&stream).unwrap();
    // SAFETY: reads and writes x, of two elements.
    let op = unsafe { launch(&scale, LaunchConfig::new(1, 32), (x, 2.0f32, 2u32)) };
    let mut recorded = None;
    let lines = traced(|| recorded = Some(cuda_async::graph::record(op, &device).unwrap()));
    assert!(!lines.iter().any(|line| line.contains("submission:")), "{lines:?}");
    let (_x, recording) = recorded.unwrap().into_parts();
    let lines = traced(|| _ = recording.replay(&stream).unwrap());
    assert_eq!(lines, ["TRACE cuda_async::submission: replay nodes=1"]);
    stream.synchronize().unwrap();
}

/// A subscriber may use the stream whose submission it sees.
#[test]
fn subscriber_runs_without_the_locks_of_the_stream() {
    struct Uses(cuda_async::Stream);
    impl Write for Uses {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.join(&[]).unwrap();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let _alone = alone();
    let device = Device::open(&CpuProvider::default(), 0).unwrap();
    let stream = device.new_stream().unwrap();
    let used = stream.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_writer(move || Uses(used.clone()))
        .finish();
    let guard = subscriber.set_default();
    assert_eq!(h2d(vec![1u8, 2]).then(to_host).sync_on(&stream).unwrap(), [1, 2]);
    drop(guard);
}
