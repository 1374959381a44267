//! Import and export keep elements, shapes and strides.

use cuda_tensor::{
    DType, Number, Tensor, TensorOps, bf16,
    dlpack::{
        ManagedTensor,
        abi::{DL_BFLOAT, DL_BOOL, DL_CPU, DL_FLOAT, DL_INT, DL_UINT},
    },
    f16,
};

use cuda_async::{Device, open_blocking, prelude::*};
use proptest::prelude::*;

use crate::producer::Foreign;

fn cpu() -> Device {
    open_blocking("cpu").unwrap()
}

/// Exports a tensor and imports it again.
fn round_trip<T: DType>(tensor: Tensor<T>) -> Tensor<T> {
    let stream = tensor.device().new_stream().unwrap();
    let managed = tensor.into_dlpack().sync_on(&stream).unwrap();
    // SAFETY: the pointer is valid and is used once. No other code uses the memory.
    unsafe {
        let managed = ManagedTensor::from_raw(managed.into_raw()).unwrap();
        Tensor::<T>::from_dlpack(managed).sync_on(&stream).unwrap()
    }
}

/// The elements in row-major order of the indices.
fn reference(elements: &[f32], first: usize, shape: &[i64], strides: &[i64]) -> Vec<f32> {
    let place = |mut n: i64| {
        let mut offset = first as i64;
        for (size, stride) in shape.iter().zip(strides).rev() {
            offset += n % size * stride;
            n /= size;
        }
        offset as usize
    };
    (0..shape.iter().product()).map(|n| elements[place(n)]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn import_of_host_memory_keeps_the_elements_with_any_strides(
        dims in prop::collection::vec((0..5i64, -7..8i64), 0..5),
    ) {
        let (shape, strides): (Vec<_>, Vec<_>) = dims.into_iter().unzip();
        let far = |negative: bool| -> i64 {
            let steps = shape.iter().zip(&strides).filter(|(_, stride)| (**stride < 0) == negative);
            steps.map(|(size, stride)| (size - 1).max(0) * stride).sum::<i64>().abs()
        };
        let first = far(true) as usize;
        let elements: Vec<f32> = (0..=first as i64 + far(false)).map(|number| number as f32).collect();
        let expected = reference(&elements, first, &shape, &strides);
        let (managed, deleted) = Foreign::of(elements, first, &shape, Some(&strides)).managed();
        let stream = cpu().new_stream().unwrap();
        // SAFETY: no other code uses the memory.
        let x = unsafe { Tensor::<f32>::from_dlpack(managed) }.sync_on(&stream).unwrap();
        let sizes: Vec<_> = x.shape().iter().map(|size| *size as i64).collect();
        prop_assert_eq!(sizes, shape);
        prop_assert_eq!(x.to_host_vec().sync_on(&stream).unwrap(), expected);
        deleted.assert_once();
    }

    #[test]
    fn round_trip_of_a_view_keeps_the_elements(
        shape in prop::collection::vec(1..5usize, 3),
        order in Just(vec![0usize, 1, 2]).prop_shuffle(),
        cut in 0..3usize,
        repeat in prop::bool::ANY,
    ) {
        let stream = cpu().new_stream().unwrap();
        let len: usize = shape.iter().product();
        let make = || {
            let x = Tensor::<i32>::arange(0..len as i32).sync_on(&stream).unwrap();
            let x = x.reshape(&shape[..]).unwrap().permute(&order).unwrap();
            let size = x.shape()[cut];
            let x = x.slice(cut, size / 2..).unwrap();
            if repeat { x.unsqueeze(0).unwrap().broadcast([&[2], &cut_shape(&shape, &order, cut)[..]].concat()).unwrap() } else { x }
        };
        let (x, y) = (make(), round_trip(make()));
        prop_assert_eq!(x.shape(), y.shape());
        let elements = |x: Tensor<i32>| x.to_host_vec().sync_on(&stream).unwrap();
        prop_assert_eq!(elements(x), elements(y));
    }
}

/// Returns the shape of a permuted tensor without the first half of dimension `cut`.
fn cut_shape(shape: &[usize], order: &[usize], cut: usize) -> Vec<usize> {
    let mut shape: Vec<_> = order.iter().map(|dim| shape[*dim]).collect();
    shape[cut] -= shape[cut] / 2;
    shape
}

/// Checks the type of an exported tensor, and imports it again.
fn assert_type<T: Number>(values: Vec<T>, code: u8, bits: u8) {
    let stream = cpu().new_stream().unwrap();
    let x = Tensor::from_host(values.clone(), values.len()).sync_on(&stream).unwrap();
    let managed = x.into_dlpack().sync_on(&stream).unwrap();
    let (dtype, device) = (managed.dtype(), managed.device());
    assert_eq!((dtype.code, dtype.bits, dtype.lanes), (code, bits, 1));
    assert_eq!((device.device_type, device.device_id), (DL_CPU, 0));
    assert_eq!(managed.strides().unwrap(), [1]);
    // SAFETY: no other code uses the memory.
    let x = unsafe { Tensor::<T>::from_dlpack(managed) };
    assert_eq!(x.to_host_vec().sync_on(&stream).unwrap(), values);
}

#[test]
fn every_element_type_has_a_dlpack_type() {
    assert_type(vec![-1i8, 2], DL_INT, 8);
    assert_type(vec![-1i16, 2], DL_INT, 16);
    assert_type(vec![-1i32, 2], DL_INT, 32);
    assert_type(vec![-1i64, 2], DL_INT, 64);
    assert_type(vec![1u8, 2], DL_UINT, 8);
    assert_type(vec![1u16, 2], DL_UINT, 16);
    assert_type(vec![1u32, 2], DL_UINT, 32);
    assert_type(vec![1u64, 2], DL_UINT, 64);
    assert_type(vec![f16::ONE, f16::MAX], DL_FLOAT, 16);
    assert_type(vec![bf16::ONE, bf16::MAX], DL_BFLOAT, 16);
    assert_type(vec![1.5f32, -2.5], DL_FLOAT, 32);
    assert_type(vec![1.5f64, -2.5], DL_FLOAT, 64);
    let stream = cpu().new_stream().unwrap();
    let mask = Tensor::from_bools([true, false, true], 3).sync_on(&stream).unwrap();
    let managed = mask.into_dlpack().sync_on(&stream).unwrap();
    assert_eq!((managed.dtype().code, managed.dtype().bits), (DL_BOOL, 8));
    // SAFETY: no other code uses the memory.
    let mask = unsafe { Tensor::<bool>::from_dlpack(managed) };
    assert_eq!(mask.to_host_vec().sync_on(&stream).unwrap(), [true, false, true]);
}

#[test]
fn form_before_dlpack_1_is_imported_and_exported() {
    let stream = cpu().new_stream().unwrap();
    let (raw, deleted) = Foreign::counting(&[2, 3]).raw_unversioned();
    // SAFETY: each pointer is valid and is used once. No other code uses the memory.
    unsafe {
        let managed = ManagedTensor::from_raw_unversioned(raw).unwrap();
        assert_eq!((managed.shape(), managed.strides()), (&[2, 3][..], None));
        // Into DLPack 1.x and back.
        let managed = ManagedTensor::from_raw(managed.into_raw()).unwrap();
        assert_eq!((managed.shape(), managed.strides()), (&[2, 3][..], Some(&[3, 1][..])));
        let raw = managed.into_raw_unversioned().unwrap();
        let managed = ManagedTensor::from_raw_unversioned(raw).unwrap();
        assert_eq!(managed.into_raw_unversioned().unwrap(), raw);
        assert_eq!(deleted.count(), 0);
        let managed = ManagedTensor::from_raw_unversioned(raw).unwrap();
        let x = Tensor::<f32>::from_dlpack(managed).to_host_vec().sync_on(&stream).unwrap();
        assert_eq!(x, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    }
    deleted.assert_once();
}

#[test]
fn scalars_and_empty_tensors_are_exchanged() {
    let stream = cpu().new_stream().unwrap();
    let one = round_trip(Tensor::<f64>::full(2.5, ()).sync_on(&stream).unwrap());
    assert_eq!((one.shape().len(), one.item().sync_on(&stream).unwrap()), (0, 2.5));
    let none = round_trip(Tensor::<f32>::zeros([0, 3]).sync_on(&stream).unwrap());
    assert_eq!((none.shape(), none.len()), (&[0, 3][..], 0));
    let (managed, deleted) = Foreign::counting(&[3, 0]).managed();
    // SAFETY: no other code uses the memory.
    let none = unsafe { Tensor::<f32>::from_dlpack(managed) }.sync_on(&stream).unwrap();
    assert_eq!(none.shape(), [3, 0]);
    deleted.assert_once();
}

#[test]
fn large_tensor_with_strides_is_imported_in_async_code() {
    let (rows, columns) = (1200, 1000);
    let elements: Vec<f32> = (0..rows * columns).map(|number| number as f32).collect();
    let expected = reference(&elements, 0, &[columns, rows], &[1, columns]);
    let foreign = Foreign::of(elements, 0, &[columns, rows], Some(&[1, columns]));
    let (managed, deleted) = foreign.managed();
    // SAFETY: no other code uses the memory.
    let x = unsafe { Tensor::<f32>::from_dlpack(managed) }.to_host_vec().on(&cpu());
    assert!(futures::executor::block_on(x.into_future()).unwrap() == expected);
    deleted.assert_once();
}

#[test]
fn copy_of_a_shared_tensor_is_not_read_only() {
    let stream = cpu().new_stream().unwrap();
    let shared = Tensor::<u8>::zeros(4).sync_on(&stream).unwrap().into_shared();
    let managed = shared.into_dlpack().sync_on(&stream).unwrap();
    // Only the consumer uses the copy on the host.
    assert!(!managed.is_read_only());
}

#[test]
fn stride_of_a_dimension_of_one_element_is_ignored() {
    let stream = cpu().new_stream().unwrap();
    let strides = [i64::MAX, 1, i64::MIN, 3];
    let elements = (0..6).map(|number| number as f32).collect();
    let (managed, _) = Foreign::of(elements, 0, &[1, 3, 1, 2], Some(&strides)).managed();
    // SAFETY: no other code uses the memory.
    let x = unsafe { Tensor::<f32>::from_dlpack(managed) }.sync_on(&stream).unwrap();
    assert_eq!(x.to_host_vec().sync_on(&stream).unwrap(), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
}
