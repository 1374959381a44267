//! The library agrees with plain Rust on every stream and policy of its caller, also with two devices at the same time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

use cuda_async::{
    Result, SchedulingPolicy, Stream,
    cuda_cpu::CpuProvider,
    default_device,
    policy::{Devices, LeastLoaded},
    prelude::*,
};
use examples::library::{softmax, softmax_batches, softmax_rows, warm_up};
use futures::{TryStreamExt, executor::block_on};

/// The maximum difference of two results. The device's `exp` may differ in its last bits.
const TOLERANCE: f32 = 1e-6;

/// Computes softmax in plain Rust.
fn expected(x: &[f32], columns: usize) -> Vec<f32> {
    let of_row = |row: &[f32]| {
        let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let e: Vec<f32> = row.iter().map(|x| (x - largest).exp()).collect();
        let sum: f32 = e.iter().sum();
        e.into_iter().map(move |e| e / sum).collect::<Vec<_>>()
    };
    x.chunks_exact(columns).flat_map(of_row).collect()
}

#[track_caller]
fn assert_agree(result: &[f32], expected: &[f32]) {
    assert_eq!(result.len(), expected.len());
    let error = |(result, expected): (&f32, &f32)| (result - expected).abs();
    let largest = result.iter().zip(expected).map(error).fold(0.0, f32::max);
    assert!(largest <= TOLERANCE, "{largest}");
}

fn wave(len: usize, period: f32) -> Vec<f32> {
    (0..len).map(|i| 5.0 * (i as f32 / period).sin()).collect()
}

/// Opens the default device and a separate CPU device.
fn two_devices() -> Result<[Device; 2]> {
    Ok([default_device()?, Device::open(&CpuProvider::default(), 0)?])
}

#[test]
fn two_threads_use_two_streams() -> Result<()> {
    let device = default_device()?;
    warm_up(&device)?;
    let rows = |x: &[f32], columns| softmax_rows(&device.new_stream()?, x, columns);
    let (wide, tall) = (wave(3 * 300, 7.0), wave(50 * 4, 3.0));
    thread::scope(|threads| {
        let other = threads.spawn(|| rows(&wide, 300));
        assert_agree(&rows(&tall, 4)?, &expected(&tall, 4));
        assert_agree(&other.join().unwrap()?, &expected(&wide, 300));
        Ok(())
    })
}

#[test]
fn part_of_a_row_is_left_out() -> Result<()> {
    let stream = default_device()?.new_stream()?;
    assert_eq!(softmax_rows(&stream, &[0.0, 0.0, 1.0], 2)?, [0.5, 0.5]);
    assert!(softmax_rows(&stream, &[], 2)?.is_empty());
    Ok(())
}

/// Counts the operations that it places.
struct Counting(LeastLoaded, Arc<AtomicUsize>);

impl SchedulingPolicy for Counting {
    fn place(&self) -> Result<Stream> {
        self.1.fetch_add(1, SeqCst);
        self.0.place()
    }
}

#[test]
fn batches_run_on_both_devices() -> Result<()> {
    let devices = two_devices()?;
    let counts = [Arc::<AtomicUsize>::default(), Arc::default()];
    let counting = |(device, count): (&Device, &Arc<AtomicUsize>)| {
        Ok(Arc::new(Counting(LeastLoaded::new(device)?, count.clone()))
            as Arc<dyn SchedulingPolicy>)
    };
    let policies = devices.iter().zip(&counts).map(counting).collect::<Result<_>>()?;
    let both = Devices::in_turn_over(policies)?;

    let batches = || (1..=20).map(|n| wave(n * 8, 3.0));
    let results: Vec<_> = block_on(softmax_batches(both, batches(), 8).try_collect())?;
    assert_eq!(results.len(), 20);
    for (result, batch) in results.iter().zip(batches()) {
        assert_agree(result, &expected(&batch, 8));
    }
    assert_eq!(counts.map(|count| count.load(SeqCst)), [10, 10]);
    Ok(())
}

/// The signature guarantees that the operation borrows nothing.
#[tokio::test]
async fn operation_can_be_spawned() -> Result<()> {
    tokio::task::spawn_blocking(default_device).await.unwrap()?;
    let task = {
        let x = h2d([1.0f32, 1.0]).await?;
        tokio::spawn(softmax(x, 2).then(to_host).into_future())
    };
    assert_eq!(task.await.unwrap()?, [0.5, 0.5]);
    Ok(())
}

#[test]
fn each_device_loads_the_kernels() -> Result<()> {
    for device in two_devices()? {
        assert_eq!(softmax_rows(&device.new_stream()?, &[1.0, 1.0], 2)?, [0.5, 0.5]);
    }
    Ok(())
}
