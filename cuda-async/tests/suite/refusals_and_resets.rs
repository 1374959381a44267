//! Submissions that are refused half way, and resets during queries, on the CPU device.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use cuda_async::{Device, DeviceBuffer, Error, Function, LaunchConfig, Stream, launch, prelude::*};
use cuda_cpu::CpuProvider;

use crate::{kernels::Kernels, polling::iterations_for};

/// Takes a pointer. Its static shared memory leaves no room for dynamic shared memory, which only the backend knows.
pub const LARGE: &str = "
    .version 8.0
    .target sm_75
    .address_size 64
    .visible .entry large(.param .u64 p) {
        .shared .align 4 .b8 tile[4096];
        .reg .u32 %r<3>;
        mov.u32 %r1, tile;
        mov.u32 %r2, 1;
        st.shared.u32 [%r1], %r2;
        ret;
    }";

fn own() -> Device {
    Device::open(&CpuProvider::default(), 0).unwrap()
}

fn kernel(device: &Device, ptx: &str, name: &str) -> Function {
    device.load_ptx_blocking(ptx).unwrap().function(name).unwrap()
}

/// Enqueues a slow kernel and a download of `x` on one stream. On another stream, which is dropped, enqueues a launch
/// with `x` that is refused after it was ordered behind the download.
fn refused_behind_a_download(
    device: &Device,
    reader: &Stream,
    x: &mut DeviceBuffer<u32>,
) -> cuda_async::cuda_core::Download<u32> {
    let (kernels, long) =
        (Kernels::load(device), iterations_for(device, Duration::from_millis(60)));
    // SAFETY: the output is dropped.
    drop(unsafe { zeros::<u32>(1).then(|out| kernels.spin(out, long)).async_on(reader) }.unwrap());
    let download = x.download(reader, 0..64, device.pinned_uninitialized(64).unwrap()).unwrap();
    let large = kernel(device, LARGE, "large");
    let config = LaunchConfig::new(1, 1).shared_bytes(device.info().max_shared_bytes);
    // SAFETY: the kernel uses nothing of x.
    let refused = unsafe { launch(&large, config, (x,)) }.sync_on(&device.new_stream().unwrap());
    assert!(matches!(refused.map(drop), Err(Error::InvalidLaunch { .. })));
    // This retires the stream of the refused launch, if it counts as idle.
    drop(device.new_stream().unwrap());
    download
}

#[test]
fn work_after_a_refused_launch_still_waits_for_readers() {
    let device = own();
    let (reader, writer) = (device.new_stream().unwrap(), device.new_stream().unwrap());
    let mut x = h2d(vec![1u32; 64]).sync_on(&reader).unwrap();
    let download = refused_behind_a_download(&device, &reader, &mut x);
    let mut twos = device.pinned::<u32>(64).unwrap();
    twos.fill(2);
    x.upload(&writer, 0, twos).unwrap();
    writer.synchronize().unwrap();
    assert_eq!(download.wait().unwrap()[..], [1; 64]);
}

#[test]
fn buffers_of_a_refused_launch_are_freed_after_their_readers() {
    let device = own();
    let reader = device.new_stream().unwrap();
    let mut x = h2d(vec![1u32; 64]).sync_on(&reader).unwrap();
    let download = refused_behind_a_download(&device, &reader, &mut x);
    drop(x);
    drop(device.new_stream().unwrap());
    assert_eq!(download.wait().unwrap()[..], [1; 64]);
}

/// Faults on `stream` without waiting for the fault.
fn fault(device: &Device, stream: &Stream) {
    let trap = kernel(device, include_str!("../../../kernels/faults.ptx"), "trap_at");
    let op = zeros::<u32>(64).then(|x| {
        // SAFETY: writes x, of 64 elements, or traps.
        unsafe { launch(&trap, LaunchConfig::new(1, 64), (x, 5u32, 64u32)) }
    });
    // SAFETY: the output is dropped.
    drop(unsafe { op.async_on(stream) });
}

/// Each try doubled the access histories of the two buffers in an earlier version.
#[test]
fn repeated_contents_lost_errors_do_not_grow() {
    let device = own();
    let (lost, stream) = (device.new_stream().unwrap(), device.new_stream().unwrap());
    let floats = |value: f32| h2d(vec![value; 64]).sync_on(&lost).unwrap();
    let (mut a, mut b) = (floats(1.0), floats(2.0));
    fault(&device, &lost);
    // Enqueued behind the fault before the fault was known.
    let _ = a.copy_from(&lost, b.as_slice());
    let _ = b.copy_from(&lost, a.as_slice());
    let _ = lost.synchronize();
    let start = Instant::now();
    for _ in 0..100 {
        assert!(
            a.copy_from(&stream, b.as_slice()).is_err()
                && b.copy_from(&stream, a.as_slice()).is_err()
        );
    }
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[test]
fn query_during_a_reset_does_not_hide_lost_work() {
    let device = own();
    // These streams make the end of the reset slow.
    let _many: Vec<_> = (0..1500).map(|_| device.new_stream().unwrap()).collect();
    let stream = device.new_stream().unwrap();
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                let _ = stream.query();
            }
        });
        for _ in 0..15 {
            let sevens = h2d(vec![7u8; 64]).sync_on(&stream).unwrap();
            let mut place = device.pinned_uninitialized::<u8>(64).unwrap();
            place.fill(0xEE);
            fault(&device, &stream);
            let download = sevens.download(&stream, 0..64, place);
            let is_well = |new: Stream| zeros::<u8>(1).sync_on(&new).is_ok();
            while device.new_stream().is_ok_and(is_well) {}
            device.reset().unwrap();
            if let Ok(mut download) = download
                && let Some(Ok(arrived)) = download.try_take()
            {
                assert_eq!(arrived[..], [7; 64], "it never arrived");
            }
        }
        ended.store(true, Ordering::Relaxed);
    });
}

#[test]
fn concurrent_resets_end_while_streams_are_created() {
    for _ in 0..20 {
        let device = own();
        let _many: Vec<_> = (0..444).map(|_| device.new_stream().unwrap()).collect();
        let start = Barrier::new(3);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    start.wait();
                    (0..3).for_each(|_| device.reset().unwrap());
                });
            }
            start.wait();
            let made: Vec<_> = (0..8).map(|_| device.new_stream().unwrap()).collect();
            for stream in &made {
                assert_eq!(zeros::<u8>(8).then(to_host).sync_on(stream).unwrap(), [0; 8]);
            }
        });
    }
}

#[test]
fn stream_created_during_a_reset_works() {
    let device = own();
    let stream = device.new_stream().unwrap();
    let ended = AtomicBool::new(false);
    let made = std::sync::Mutex::new(Vec::new());
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                if let Ok(new) = device.new_stream() {
                    let mut made = made.lock().unwrap();
                    made.truncate(100);
                    made.insert(0, new);
                }
            }
        });
        for turn in 0..60 {
            fault(&device, &stream);
            thread::sleep(Duration::from_micros(turn * 7 % 200));
            device.reset().unwrap();
            let made = std::mem::take(&mut *made.lock().unwrap());
            for new in made.iter().chain([&stream]) {
                assert_eq!(zeros::<u8>(8).then(to_host).sync_on(new).unwrap(), [0; 8]);
            }
        }
        ended.store(true, Ordering::Relaxed);
    });
}
