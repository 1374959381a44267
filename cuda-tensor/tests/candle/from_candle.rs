//! `SharedTensor::from_candle_cuda`: the result is in candle's memory.

use candle_core::{Tensor as Theirs, WithDType, cuda_backend::CudaDType};
use cuda_async::{Stream, prelude::*};
use cuda_tensor::{Number, SharedTensor, TensorOps, bf16, f16};

use crate::gpu::{address, gpus};

/// Converts a tensor that no code writes.
fn take<T: Number + WithDType + CudaDType>(theirs: &Theirs, stream: &Stream) -> SharedTensor<T> {
    // SAFETY: no code writes the elements.
    unsafe { SharedTensor::<T>::from_candle_cuda(theirs.clone()) }.sync_on(stream).unwrap()
}

#[test]
fn result_has_the_memory_and_strides_of_the_tensor_of_candle() {
    for (_, stream, device) in gpus() {
        let elements: Vec<f32> = (0..24).map(|number| number as f32).collect();
        let whole = Theirs::from_vec(elements, (4, 3, 2), &device).unwrap();
        let views = [
            whole.clone(),
            whole.transpose(0, 2).unwrap(),
            whole.narrow(0, 1, 2).unwrap(),
            whole.narrow(1, 1, 2).unwrap().transpose(1, 2).unwrap(),
            whole.narrow(2, 1, 1).unwrap().broadcast_as((4, 3, 5)).unwrap(),
            whole.get(2).unwrap().get(1).unwrap().get(1).unwrap(),
        ];
        for theirs in views {
            let ours = take::<f32>(&theirs, &stream);
            assert!(ours.buffer().is_foreign());
            assert_eq!(ours.shape(), theirs.dims());
            let used = |strides: &[usize]| -> Vec<_> {
                let pairs = strides.iter().zip(theirs.dims());
                pairs.map(|(stride, size)| if *size == 1 { 0 } else { *stride }).collect()
            };
            assert_eq!(used(ours.layout().strides()), used(theirs.stride()));
            assert_eq!(ours.buffer().lend_raw(&stream).unwrap(), address::<f32>(&theirs));
            let host = theirs.to_device(&candle_core::Device::Cpu).unwrap();
            let expected: Vec<f32> = host.flatten_all().unwrap().to_vec1().unwrap();
            assert_eq!((&ours).to_host_vec().sync_on(&stream).unwrap(), expected);
            let negated: Vec<f32> = expected.iter().map(|element| -element).collect();
            assert_eq!(ours.neg().to_host_vec().sync_on(&stream).unwrap(), negated);
        }
    }
}

#[test]
fn variables_and_results_of_tracked_operations_convert() {
    for (_, stream, device) in gpus() {
        let variable = candle_core::Var::from_vec(vec![1i64, 2, 3, 4], (2, 2), &device).unwrap();
        let ours = take::<i64>(variable.as_tensor(), &stream);
        let turned = take::<i64>(&variable.as_tensor().t().unwrap(), &stream);
        drop(variable);
        assert_eq!(ours.to_host_vec().sync_on(&stream).unwrap(), [1, 2, 3, 4]);
        assert_eq!(turned.to_host_vec().sync_on(&stream).unwrap(), [1, 3, 2, 4]);
    }
}

#[test]
fn tensors_without_elements_convert() {
    for (_, stream, device) in gpus() {
        let theirs = Theirs::from_vec(Vec::<u8>::new(), (3, 0), &device).unwrap();
        let ours = take::<u8>(&theirs, &stream);
        assert_eq!((ours.shape(), ours.len()), (&[3, 0][..], 0));
        assert!(ours.to_host_vec().sync_on(&stream).unwrap().is_empty());
    }
}

#[test]
fn element_types_convert_in_both_directions() {
    fn round_trip<T: Number + WithDType + CudaDType>(values: [T; 2]) {
        for (_, stream, device) in gpus() {
            let theirs = Theirs::new(&values, &device).unwrap();
            let ours = take::<T>(&theirs, &stream);
            let given = ours.dup().then(|x| x.into_candle_cuda(&device)).sync_on(&stream).unwrap();
            assert_eq!(given.dtype(), T::DTYPE);
            assert_eq!(given.to_vec1::<T>().unwrap(), values);
        }
    }
    round_trip([1u8, 2]);
    round_trip([1i16, -2]);
    round_trip([1i32, -2]);
    round_trip([1u32, 2]);
    round_trip([1i64, -2]);
    round_trip([f16::ONE, f16::MAX]);
    round_trip([bf16::ONE, bf16::MAX]);
    round_trip([1.5f32, -2.5]);
    round_trip([1.5f64, -2.5]);
}

#[test]
fn both_libraries_read_one_tensor_concurrently() {
    for (_, stream, device) in gpus() {
        let elements: Vec<u32> = (0..1 << 20).collect();
        let theirs = Theirs::from_vec(elements.clone(), 1 << 20, &device).unwrap();
        let ours = take::<u32>(&theirs, &stream);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10 {
                        assert_eq!(theirs.to_vec1::<u32>().unwrap(), elements);
                        assert_eq!((&ours).to_host_vec().sync_on(&stream).unwrap(), elements);
                    }
                });
            }
        });
    }
}
