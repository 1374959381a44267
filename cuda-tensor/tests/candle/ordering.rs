//! The order of the work of both libraries on the same tensor.

use candle_core::{CudaStorage, Storage, Tensor as Theirs, backend::BackendDevice, op::BackpropOp};
use cuda_async::{interop::cudarc::driver::CudaSlice, memory::fill, prelude::*};
use cuda_tensor::{SharedTensor, Tensor, TensorOps};

use crate::gpu::{Delay, OwnDelay, cuda, gpus};

const LEN: usize = 1 << 20;

/// A tensor of candle in the memory of a slice.
fn wrap(slice: CudaSlice<u8>, device: &candle_core::Device) -> Theirs {
    let storage = Storage::Cuda(CudaStorage::wrap_cuda_slice(slice, cuda(device).clone()));
    Theirs::from_storage(storage, LEN, BackpropOp::none(), false)
}

#[test]
fn operation_runs_after_work_that_candle_enqueued_before() {
    for (_, stream, device) in gpus() {
        let theirs = cuda(&device).cuda_stream();
        let mut delay = Delay::new(&theirs);
        let mut in_flight = 0;
        for turn in 1..=u8::MAX {
            let pattern = theirs.clone_htod(&vec![turn; LEN]).unwrap();
            let mut slice = theirs.alloc_zeros::<u8>(LEN).unwrap();
            theirs.synchronize().unwrap();
            delay.enqueue();
            theirs.memcpy_dtod(&pattern, &mut slice).unwrap();
            let written = theirs.record_event(None).unwrap();
            let tensor = wrap(slice, &device);
            // SAFETY: no code writes the elements later.
            let ours = unsafe { SharedTensor::<u8>::from_candle_cuda(tensor) }.then(to_first);
            let run = || {
                // SAFETY: no foreign code uses the output.
                let first = unsafe { ours.async_on(&stream) }.unwrap();
                let early = !written.is_complete();
                (first.to_host_vec().sync_on(&stream).unwrap(), early)
            };
            // Every second turn runs on another thread, whose default stream differs from the one of candle's work.
            let (first, early) = match turn % 2 {
                0 => run(),
                _ => std::thread::scope(|scope| scope.spawn(run).join().unwrap()),
            };
            assert!(first == vec![turn; LEN], "turn {turn}");
            in_flight += u32::from(early);
            if in_flight > 5 {
                break;
            }
        }
        assert!(in_flight > 5, "candle's work was in flight in {in_flight} turns only");
    }
}

/// Copies the elements into a new tensor. `async_on` enqueues the copy without a wait.
fn to_first(tensor: SharedTensor<u8>) -> impl DeviceOp<Output = Tensor<u8>> {
    let target = uninitialized::<u8>(LEN);
    let copy = target.then(move |into| cuda_async::memory::copy(tensor.into_buffer(), into));
    copy.try_map(|(_, copy)| Tensor::from_buffer(copy, LEN))
}

#[test]
fn operation_runs_after_an_upload_and_a_fill_by_candle() {
    for (_, stream, device) in gpus() {
        for turn in 0..200u32 {
            let theirs = Theirs::from_vec(vec![turn; 1 << 18], 1 << 18, &device).unwrap();
            // SAFETY: no code writes the elements.
            let ours = unsafe { SharedTensor::<u32>::from_candle_cuda(theirs) };
            let max = ours.max().item().sync_on(&stream).unwrap();
            assert_eq!(max, turn);
            let zeros = Theirs::zeros(1 << 22, candle_core::DType::U32, &device).unwrap();
            // SAFETY: no code writes the elements.
            let ours = unsafe { SharedTensor::<u32>::from_candle_cuda(zeros) };
            assert_eq!(ours.max().item().sync_on(&stream).unwrap(), 0);
        }
    }
}

#[test]
fn work_that_candle_enqueues_later_runs_after_the_operation() {
    for (ours, stream, device) in gpus() {
        let theirs = cuda(&device).cuda_stream();
        let mut delay = OwnDelay::new(&stream);
        let mut in_flight = 0;
        for turn in 1..=u8::MAX {
            let x = zeros::<u8>(LEN).sync_on(&stream).unwrap();
            delay.enqueue();
            let filled = fill(x, turn).try_map(|x| Tensor::<u8>::from_buffer(x, LEN));
            let given = filled.then(|x| x.into_candle_cuda(&device));
            // SAFETY: candle's stream waits for the work.
            let tensor = unsafe { given.async_on(&stream) }.unwrap();
            let read = || {
                let before = theirs.record_event(None).unwrap();
                let early = !before.is_complete();
                (tensor.to_vec1::<u8>().unwrap(), early)
            };
            let (elements, early) = match turn % 2 {
                0 => read(),
                _ => std::thread::scope(|scope| scope.spawn(read).join().unwrap()),
            };
            assert!(elements == vec![turn; LEN], "turn {turn}");
            in_flight += u32::from(early);
            if in_flight > 5 {
                break;
            }
        }
        assert!(in_flight > 5, "candle's stream waited in {in_flight} turns only");
        drop(ours);
    }
}

#[test]
fn closure_of_an_operation_uses_the_converted_tensor() {
    for (_, stream, device) in gpus() {
        for turn in 0..100u32 {
            let given = Tensor::<u32>::full(turn, 1 << 20).then(|x| x.into_candle_cuda(&device));
            let copied = given.try_map(|theirs| {
                let host = theirs.to_vec1::<u32>().map_err(cuda_async::Error::other)?;
                Ok(host == vec![turn; 1 << 20])
            });
            assert!(copied.sync_on(&stream).unwrap());
        }
        cuda(&device).synchronize().unwrap();
    }
}
