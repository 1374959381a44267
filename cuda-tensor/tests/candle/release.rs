//! candle frees memory only after the last use by both libraries.

use std::{
    fs::DirEntry,
    sync::Arc,
    time::{Duration, Instant},
};

use candle_core::{CudaStorage, Storage, Tensor as Theirs, op::BackpropOp};
use cuda_async::{
    Error, Stream,
    interop::{
        ForeignCall,
        cudarc::driver::{CudaEvent, result},
    },
    memory::copy,
    prelude::*,
    tensor::{SharedTensor, TensorOps},
    with_context,
};

use crate::gpu::{Delay, OwnDelay, cuda, gpus};

const LEN: usize = 1 << 20;

/// Records an event of cudarc behind the work on a stream.
fn record(event: &CudaEvent, stream: &Stream) {
    let op = with_context(|cx| {
        // SAFETY: the command uses no memory.
        let recorded = cx.enqueue(|stream| unsafe {
            ForeignCall::new().submit(stream, |raw, _| {
                result::event::record(event.cu_event(), raw.stream.cast()).map_err(Error::other)
            })
        });
        recorded.map(|_| value(()))
    });
    // SAFETY: there is no output.
    unsafe { op.async_on(stream) }.unwrap();
}

/// Returns the number of handles of the stream of candle's device. Each slice of memory has one.
fn handles(device: &candle_core::Device) -> usize {
    Arc::strong_count(&cuda(device).cuda_stream()) - 1
}

#[test]
fn memory_is_freed_after_the_last_use_by_an_operation() {
    for (_, stream, device) in gpus() {
        let context = cuda(&device).cuda_stream().context().clone();
        let mut delay = OwnDelay::new(&stream);
        let before = handles(&device);
        let mut in_flight = 0;
        for turn in 1..=u8::MAX {
            let theirs = Theirs::from_vec(vec![turn; LEN], LEN, &device).unwrap();
            // SAFETY: no code writes the elements.
            let ours = unsafe { SharedTensor::<u8>::from_candle_cuda(theirs) };
            let ours = ours.sync_on(&stream).unwrap();
            assert!(handles(&device) > before);
            let target = zeros::<u8>(LEN).sync_on(&stream).unwrap();
            delay.enqueue();
            let copied = copy(ours.clone().into_buffer(), target).map(|(_, target)| target);
            // SAFETY: no foreign code uses the output.
            let target = unsafe { copied.async_on(&stream) }.unwrap();
            let done = context.new_event(None).unwrap();
            record(&done, &stream);
            drop(ours);
            in_flight += u32::from(!done.is_complete() && handles(&device) > before);
            let limit = Instant::now() + Duration::from_secs(60);
            while handles(&device) > before {
                assert!(Instant::now() < limit, "the memory is not freed");
                std::thread::yield_now();
            }
            assert!(done.is_complete(), "the memory was freed before its last use");
            let target = value(target).then(to_host).sync_on(&stream).unwrap();
            assert!(target == vec![turn; LEN], "turn {turn}");
            if in_flight > 2 {
                break;
            }
        }
        assert!(in_flight > 2, "uses were in flight in {in_flight} turns only");
    }
}

#[test]
fn memory_is_freed_after_the_last_use_by_candle() {
    for (_, stream, device) in gpus() {
        let theirs = cuda(&device).cuda_stream();
        let mut delay = Delay::new(&theirs);
        let mut in_flight = 0;
        for turn in 1..=u8::MAX {
            let slice = theirs.clone_htod(&vec![turn; LEN]).unwrap();
            let mut target = theirs.alloc_zeros::<u8>(LEN).unwrap();
            theirs.synchronize().unwrap();
            let storage = CudaStorage::wrap_cuda_slice(slice, cuda(&device).clone());
            let storage = Storage::Cuda(storage);
            let tensor = Theirs::from_storage(storage, LEN, BackpropOp::none(), false);
            // SAFETY: no code writes the elements.
            let ours = unsafe { SharedTensor::<u8>::from_candle_cuda(tensor.clone()) };
            let ours = ours.sync_on(&stream).unwrap();
            // The last use by this library is complete before the use by candle begins.
            assert_eq!((&ours).max().item().sync_on(&stream).unwrap(), turn);
            delay.enqueue();
            {
                let (storage, _) = tensor.storage_and_layout();
                let Storage::Cuda(storage) = &*storage else { panic!("not on the GPU") };
                theirs.memcpy_dtod(storage.as_cuda_slice::<u8>().unwrap(), &mut target).unwrap();
            }
            let done = theirs.record_event(None).unwrap();
            let held = handles(&device);
            drop(tensor);
            drop(ours);
            let limit = Instant::now() + Duration::from_secs(60);
            while handles(&device) >= held {
                assert!(Instant::now() < limit, "the memory is not freed");
                std::thread::yield_now();
            }
            in_flight += u32::from(!done.is_complete());
            // Another thread allocates the same size. It gets the tensor's memory if that was freed too early.
            std::thread::scope(|scope| {
                let wipe = || {
                    drop([(); 4].map(|()| theirs.alloc_zeros::<u8>(LEN).unwrap()));
                    // With driver 580, a thread's exit hangs if a free on its default stream is in flight.
                    theirs.synchronize().unwrap();
                };
                scope.spawn(wipe);
            });
            assert!(theirs.clone_dtoh(&target).unwrap() == vec![turn; LEN], "turn {turn}");
            if in_flight > 2 {
                break;
            }
        }
        assert!(in_flight > 2, "the use was in flight in {in_flight} turns only");
    }
}

/// The helper thread exits after it has released memory of candle, also if candle's work takes longer than the thread's
/// idle time.
#[test]
fn helper_thread_exits_after_long_work_of_candle() {
    for (_, stream, device) in gpus() {
        let theirs = cuda(&device).cuda_stream();
        let mut delay = Delay::new(&theirs);
        let tensor = Theirs::from_vec(vec![1u8; LEN], LEN, &device).unwrap();
        // SAFETY: no code writes the elements.
        let ours = unsafe { SharedTensor::<u8>::from_candle_cuda(tensor) };
        let ours = ours.sync_on(&stream).unwrap();
        let before = handles(&device);
        (0..100).for_each(|_| delay.enqueue());
        let done = theirs.record_event(None).unwrap();
        drop(ours);
        let limit = Instant::now() + Duration::from_secs(60);
        while handles(&device) >= before || !done.is_complete() || helpers() > 0 {
            assert!(Instant::now() < limit, "the thread does not end");
            std::thread::yield_now();
        }
    }
}

/// Returns the number of helper threads of devices.
fn helpers() -> usize {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |thread: &DirEntry| std::fs::read_to_string(thread.path().join("comm"));
    let is_helper = |thread: &DirEntry| name(thread).is_ok_and(|name| name.trim() == "cuda-helper");
    threads.filter_map(Result::ok).filter(is_helper).count()
}

#[test]
fn tensor_outlives_the_device_of_candle() {
    for (_, stream, device) in gpus() {
        let theirs = Theirs::from_vec(vec![3i64; 1000], 1000, &device).unwrap();
        // SAFETY: no code writes the elements.
        let ours = unsafe { SharedTensor::<i64>::from_candle_cuda(theirs) };
        let ours = ours.sync_on(&stream).unwrap();
        drop(device);
        assert_eq!(ours.sum().item().sync_on(&stream).unwrap(), 3000);
    }
}
