//! Fourier transforms.

use std::f64::consts::TAU;

use cuda_tensor::{FftFloat, Tensor, TensorOps};

use cuda_async::{Device, Error, prelude::*};

use crate::on_every_device;

on_every_device! {
    transforms_are_those_of_the_definition
    inverse_gives_the_numbers_back
    shapes_without_pairs_are_errors
    views_that_begin_between_pairs
    an_empty_batch_of_any_length_is_empty
}

/// A length that cannot be factored in a test.
fn an_empty_batch_of_any_length_is_empty(device: &Device) {
    let stream = device.new_stream().unwrap();
    let empty = Tensor::<f32>::zeros([0, (1 << 61) - 1, 2]).fft().ifft();
    assert_eq!(empty.sync_on(&stream).unwrap().shape(), [0, (1 << 61) - 1, 2]);
}

/// The address of the first pair is not a multiple of its size.
fn views_that_begin_between_pairs(device: &Device) {
    let stream = device.new_stream().unwrap();
    for n in [4, 15, 64] {
        let mut x = numbers(n);
        let copied = Tensor::from_host(x.clone(), [n, 2]).fft().to_host_vec();
        let copied = copied.sync_on(&stream).unwrap();
        x.insert(0, 1.0);
        let x = Tensor::from_host(x, 2 * n + 1).sync_on(&stream).unwrap().into_shared();
        let view = x.slice(0, 1..).unwrap().reshape([n, 2]).unwrap();
        let transformed = view.fft().to_host_vec().sync_on(&stream).unwrap();
        for (is, should) in transformed.iter().zip(copied) {
            assert!((is - should).abs() < 1e-9, "{n}: {is}, {should}");
        }
    }
}

/// Complex numbers, the real and the imaginary part of each.
fn numbers(n: usize) -> Vec<f64> {
    (0..2 * n).map(|at| ((at * at * 7 + 3 * at) % 23) as f64 / 8.0 - 1.0).collect()
}

/// The transform by its definition.
fn definition(x: &[f64]) -> Vec<f64> {
    let n = x.len() / 2;
    let transform = |k: usize| {
        (0..n).fold([0.0, 0.0], |[re, im], j| {
            let angle = -TAU * (j * k % n) as f64 / n as f64;
            let (sine, cosine) = angle.sin_cos();
            let (a, b) = (x[2 * j], x[2 * j + 1]);
            [re + a * cosine - b * sine, im + a * sine + b * cosine]
        })
    };
    (0..n).flat_map(transform).collect()
}

fn transforms_are_those_of_the_definition(device: &Device) {
    transforms::<f64>(device, 1e-12);
    transforms::<f32>(device, 1e-5);
}

fn transforms<T: FftFloat>(device: &Device, tolerance: f64) {
    let stream = device.new_stream().unwrap();
    for n in [1, 2, 3, 4, 7, 8, 12, 30, 64, 97, 128, 210] {
        let rows = [numbers(n), numbers(n).into_iter().map(|number| 1.0 - number).collect()];
        let x: Vec<T> = rows.concat().into_iter().map(T::of).collect();
        let transformed = Tensor::from_host(x, [2, n, 2]).fft().cast::<f64>().to_host_vec();
        let transformed = transformed.sync_on(&stream).unwrap();
        let expected = rows.map(|row| definition(&row)).concat();
        let scale = expected.iter().fold(1.0f64, |most, element| most.max(element.abs()));
        for (at, (is, should)) in transformed.iter().zip(&expected).enumerate() {
            assert!((is - should).abs() <= tolerance * scale, "{n}, {at}: {is}, {should}");
        }
    }
}

fn inverse_gives_the_numbers_back(device: &Device) {
    let stream = device.new_stream().unwrap();
    for n in [1, 6, 64, 1000] {
        let back = Tensor::from_host(numbers(n), [n, 2]).fft().ifft().to_host_vec();
        let back = back.sync_on(&stream).unwrap();
        assert!(back.iter().zip(numbers(n)).all(|(is, was)| (is - was).abs() < 1e-12), "{n}");
    }
    let none = Tensor::<f32>::zeros([3, 0, 2]).fft().sync_on(&stream).unwrap();
    assert_eq!(none.shape(), [3, 0, 2]);
}

fn shapes_without_pairs_are_errors(device: &Device) {
    let stream = device.new_stream().unwrap();
    for shape in [&[2][..], &[4, 3][..], &[][..]] {
        let error = Tensor::<f32>::zeros(shape).fft().sync_on(&stream).unwrap_err();
        assert!(matches!(error, Error::Shape { .. }), "{error}");
        assert!(error.to_string().contains("must be [.., n, 2]"), "{error}");
    }
}
