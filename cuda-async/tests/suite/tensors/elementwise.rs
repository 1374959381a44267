//! Elementwise operations on sizes and offsets that do and do not fill blocks of packs.

use cuda_async::{
    Device,
    prelude::*,
    tensor::{Binary, Float, Number, Tensor, TensorOps, bf16, f16},
};

use crate::on_every_device;

on_every_device! {
    binary_operations_cover_partial_blocks
    float_functions_cover_partial_blocks
}

/// Returns pairs of a size and the offset of the first element. The sizes are close to multiples of the elements of a block.
/// An offset of 1 makes the address unaligned to packs of 16 bytes.
fn cases<T>() -> impl Iterator<Item = (usize, usize)> {
    let block = 256 * 16 / size_of::<T>();
    let sizes = [1, 9, block - 1, block, block + 1, 2 * block, 3 * block + 17, 8 * block + 1];
    sizes.into_iter().flat_map(|n| [(n, 0), (n, 1)])
}

fn binary_operations_cover_partial_blocks(device: &Device) {
    check_binary::<f32>(device, |x| x as f32);
    check_binary::<f64>(device, |x| x as f64);
    check_binary::<f16>(device, |x| f16::from_f32(x as f32));
    check_binary::<bf16>(device, |x| bf16::from_f32(x as f32));
    check_binary::<i32>(device, |x| x as i32);
    check_binary::<u8>(device, |x| x as u8);
}

/// Checks binary operations. Every type represents the integers exactly.
fn check_binary<T: Number + PartialEq>(device: &Device, number: fn(usize) -> T) {
    let stream = device.new_stream().unwrap();
    for (n, start) in cases::<T>() {
        let expected = |f: fn(usize) -> usize| -> Vec<T> {
            (start..start + n).map(|i| number(f(i % 100))).collect()
        };
        let all: Vec<T> = (0..n + start).map(|i| number(i % 100)).collect();
        let x = Tensor::from_host(all, n + start).sync_on(&stream).unwrap().into_shared();
        let x = x.slice(0, start..).unwrap();
        let sum = x.clone().add(x.clone()).to_host_vec();
        let moved = x.clone().add_scalar(number(3)).to_host_vec();
        let from = x.clone().map_scalar_left(Binary::Sub, number(100)).to_host_vec();
        let squares = x.clone().cast::<f32>().mul(x.cast::<f32>()).to_host_vec();
        let (sum, moved, from, squares) = zip!(sum, moved, from, squares).sync_on(&stream).unwrap();
        let case = (T::NAME, n, start);
        assert!(sum == expected(|x| 2 * x), "{case:?}");
        assert!(moved == expected(|x| x + 3), "{case:?}");
        assert!(from == expected(|x| 100 - x), "{case:?}");
        assert!(squares.iter().zip(start..).all(|(it, i)| *it == (i % 100).pow(2) as f32));
    }
}

fn float_functions_cover_partial_blocks(device: &Device) {
    check_roots::<f32>(device, |x| x as f32);
    check_roots::<f64>(device, |x| x as f64);
    check_roots::<f16>(device, |x| f16::from_f32(x as f32));
    check_roots::<bf16>(device, |x| bf16::from_f32(x as f32));
}

fn check_roots<T: Float + PartialEq>(device: &Device, number: fn(usize) -> T) {
    let stream = device.new_stream().unwrap();
    for (n, start) in cases::<T>() {
        let squares: Vec<T> = (0..n + start).map(|i| number((i % 12).pow(2))).collect();
        let x = Tensor::from_host(squares, n + start).sync_on(&stream).unwrap().into_shared();
        let roots = x.slice(0, start..).unwrap().sqrt().to_host_vec().sync_on(&stream).unwrap();
        let expected: Vec<T> = (start..start + n).map(|i| number(i % 12)).collect();
        assert!(roots == expected, "{:?}", (T::NAME, n, start));
    }
}
