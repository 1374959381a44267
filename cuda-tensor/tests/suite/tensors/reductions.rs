//! Reductions and softmax with every launch shape.

use cuda_async::{
    Device,
    prelude::*,
    tensor::{Tensor, TensorOps, bf16, f16},
};

use super::reference::Host;
use crate::on_every_device;

on_every_device! {
    sums_of_every_launch_shape
    sums_do_not_depend_on_alignment
    argmax_and_argmin_of_every_launch_shape
    nan_and_infinity_are_reduced
    softmax_of_every_launch_shape
    softmax_does_not_depend_on_alignment
    results_are_contiguous
    long_thin_columns_are_summed
    halves_are_summed_in_f32
    means_and_bool_reductions
}

/// Sizes whose middle dimension is reduced: short and long rows, and several chunks of rows and columns.
const SIZES: [[usize; 3]; 14] = [
    [1, 1, 1],
    [5, 33, 1],
    [3, 1025, 1],
    [1500, 7, 1],
    [40, 16, 1],
    [2, 32768, 1],
    [2, 32769, 1],
    [1, 100_003, 1],
    [1024, 300, 1],
    [1030, 2200, 1],
    [1, 70, 3],
    [2, 1000, 5],
    [2, 5000, 6],
    [1, 3, 70_001],
];

fn number(i: usize) -> i64 {
    ((i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as i64 - (1 << 23)
}

fn numbers(shape: [usize; 3]) -> Host<i64> {
    Host::new(&shape, (0..shape.iter().product()).map(number).collect())
}

fn sums_of_every_launch_shape(device: &Device) {
    let stream = device.new_stream().unwrap();
    for shape in SIZES {
        let host = numbers(shape);
        let x = Tensor::from_host(host.elements.clone(), shape).sync_on(&stream).unwrap();
        let x = x.into_shared();
        let sums = x.clone().sum_dim(1).to_host_vec().sync_on(&stream).unwrap();
        assert_eq!(sums, host.fold(1, |row| row.iter().sum::<i64>()).elements, "{shape:?}");
        let total = x.clone().sum().item().sync_on(&stream).unwrap();
        assert_eq!(total, host.elements.iter().sum::<i64>());
        let narrow = x.clone().cast::<u8>().max_dim(1).to_host_vec().sync_on(&stream).unwrap();
        let bytes = host.map(|x| x as u8);
        assert_eq!(narrow, bytes.fold(1, |row| *row.iter().max().unwrap()).elements, "{shape:?}");
        // Sums of whole numbers below 2^53 are exact in any order.
        let floats = x.cast::<f64>().sum_dim(1).to_host_vec().sync_on(&stream).unwrap();
        assert_eq!(floats, sums.iter().map(|x| *x as f64).collect::<Vec<_>>());
    }
}

/// The order of additions does not depend on the address, also where packs of 16 bytes are not aligned.
fn sums_do_not_depend_on_alignment(device: &Device) {
    let stream = device.new_stream().unwrap();
    const N: usize = 40_000;
    let x = Tensor::<f32>::rand(N + 3, 3).sync_on(&stream).unwrap().into_shared();
    for start in 0..4 {
        let part = x.clone().slice(0, start..start + N).unwrap();
        let moved = part.clone().dup().sum().item().sync_on(&stream).unwrap();
        let here = part.sum().item().sync_on(&stream).unwrap();
        assert_eq!(here.to_bits(), moved.to_bits());
    }
}

fn softmax_does_not_depend_on_alignment(device: &Device) {
    let stream = device.new_stream().unwrap();
    for n in [1024, 20_000] {
        let x = Tensor::<f32>::randn(2 * n + 3, 3).sync_on(&stream).unwrap().into_shared();
        let part = x.slice(0, 1..2 * n + 1).unwrap().reshape([2, n]).unwrap();
        let moved = part.clone().dup().softmax(1).to_host_vec().sync_on(&stream).unwrap();
        assert_eq!(part.softmax(1).to_host_vec().sync_on(&stream).unwrap(), moved, "{n}");
    }
}

/// A dimension that is not the last: the result is in row-major order too.
fn results_are_contiguous(device: &Device) {
    let stream = device.new_stream().unwrap();
    let x = Tensor::<f32>::randn([3, 4, 5], 1).sync_on(&stream).unwrap().into_shared();
    let x = x.transpose(0, 2).unwrap();
    for dim in 0..3 {
        assert!(x.clone().softmax(dim).sync_on(&stream).unwrap().is_contiguous());
        assert!(x.clone().sum_dim(dim).sync_on(&stream).unwrap().is_contiguous());
        assert!(x.clone().argmin(dim).sync_on(&stream).unwrap().is_contiguous());
    }
    assert!(x.clone().exp().sync_on(&stream).unwrap().is_contiguous());
    assert!(x.clone().add(x).sync_on(&stream).unwrap().is_contiguous());
}

fn long_thin_columns_are_summed(device: &Device) {
    let stream = device.new_stream().unwrap();
    let sums = Tensor::<u32>::ones([1 << 18, 2]).sum_dim(0).to_host_vec().sync_on(&stream).unwrap();
    assert_eq!(sums, [1 << 18; 2]);
}

fn argmax_and_argmin_of_every_launch_shape(device: &Device) {
    let stream = device.new_stream().unwrap();
    for shape in SIZES {
        // Rows with equal elements: the result is the index of the first one.
        let host = numbers(shape).map(|x| x % 50);
        let x = Tensor::from_host(host.elements.clone(), shape).sync_on(&stream).unwrap();
        let x = x.into_shared();
        let first = |row: &[i64], best: i64| row.iter().position(|x| *x == best).unwrap() as u64;
        let largest = x.clone().argmax(1).to_host_vec().sync_on(&stream).unwrap();
        let expected = host.fold(1, |row| first(row, *row.iter().max().unwrap()));
        assert_eq!(largest, expected.elements, "{shape:?}");
        let smallest = x.argmin(1).to_host_vec().sync_on(&stream).unwrap();
        let expected = host.fold(1, |row| first(row, *row.iter().min().unwrap()));
        assert_eq!(smallest, expected.elements, "{shape:?}");
    }
}

fn nan_and_infinity_are_reduced(device: &Device) {
    let stream = device.new_stream().unwrap();
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let rows = vec![1.0, nan, 3.0, nan, -inf, -inf, -inf, -inf, inf, -inf, 2.0, inf];
    let x = Tensor::from_host(rows, [3, 4]).sync_on(&stream).unwrap().into_shared();
    let list = |op: Tensor<f32>| op.to_host_vec().sync_on(&stream).unwrap();
    let largest = list(x.clone().max_dim(1).sync_on(&stream).unwrap());
    assert!(largest[0].is_nan() && largest[1..] == [-inf, inf]);
    let smallest = list(x.clone().min_dim(1).sync_on(&stream).unwrap());
    assert!(smallest[0].is_nan() && smallest[1..] == [-inf, -inf]);
    let places = x.clone().argmax(1).to_host_vec().sync_on(&stream).unwrap();
    assert_eq!(places, [1, 0, 0]);
    assert_eq!(x.argmin(1).to_host_vec().sync_on(&stream).unwrap(), [1, 0, 1]);
}

fn softmax_of_every_launch_shape(device: &Device) {
    let stream = device.new_stream().unwrap();
    let short = [(1, 1), (9, 10), (40, 256), (3, 257), (3, 512), (3, 513), (2, 1000)];
    let long = [(3, 4096), (2, 4097), (2, 8192), (2, 8193), (2, 16_384), (1, 16_385), (1, 50_000)];
    for (rows, n) in short.into_iter().chain(long) {
        let x = Tensor::<f32>::randn([rows, n], n as u64).mul_scalar(4.0);
        let x = x.sync_on(&stream).unwrap().into_shared();
        let elements = x.clone().to_host_vec().sync_on(&stream).unwrap();
        let expected = Host::new(&[rows, n], elements.clone()).fold(1, |row| {
            let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let all: Vec<_> = row.iter().map(|x| f64::from(*x - max).exp()).collect();
            let sum: f64 = all.iter().sum();
            all.into_iter().map(|x| x / sum).collect::<Vec<_>>()
        });
        let expected = expected.elements.concat();
        let within = |here: &[f32], limit: f64| {
            let apart = |(x, y): (&f32, &f64)| ((f64::from(*x) - y) / y.max(1e-20)).abs();
            here.iter().zip(&expected).map(apart).fold(0.0, f64::max) < limit
        };
        let close = |here: &[f32]| within(here, 1e-5);
        let here = x.clone().softmax(1).to_host_vec().sync_on(&stream).unwrap();
        assert!(close(&here), "{rows} {n}");
        let columns = x.clone().transpose(0, 1).unwrap().softmax(0);
        assert!(close(&columns.transposed_to_host().sync_on(&stream).unwrap()), "{rows} {n}");
        // Rounding x to eight bits changes its exponential by several percent.
        let half = x.clone().cast::<bf16>().softmax(1).cast::<f32>().to_host_vec();
        assert!(within(&half.sync_on(&stream).unwrap(), 0.1), "{rows} {n}");
        let wide = x.cast::<f64>().softmax(1).cast::<f32>().to_host_vec().sync_on(&stream).unwrap();
        assert!(close(&wide), "{rows} {n}");
    }
    // The softmax of a row of minus infinity is NaN. Beside a finite element, that of minus infinity is 0.
    let inf = f32::INFINITY;
    for n in [2, 9000] {
        let mut row = vec![-inf; n];
        let lost = Tensor::from_host(row.clone(), [1, n]).softmax(1).to_host_vec();
        assert!(lost.sync_on(&stream).unwrap().iter().all(|x| x.is_nan()), "{n}");
        row[n - 1] = 5.0;
        let sure =
            Tensor::from_host(row, [1, n]).softmax(1).to_host_vec().sync_on(&stream).unwrap();
        assert_eq!((sure[0], sure[n - 1]), (0.0, 1.0));
    }
}

trait TransposedToHost: DeviceOp<Output = Tensor<f32>> {
    /// The elements of the transposed tensor.
    fn transposed_to_host(self) -> impl DeviceOp<Output = Vec<f32>> {
        self.try_map(|x| x.transpose(0, 1)).then(|x| x.to_host_vec())
    }
}

impl<O: DeviceOp<Output = Tensor<f32>>> TransposedToHost for O {}

fn halves_are_summed_in_f32(device: &Device) {
    let stream = device.new_stream().unwrap();
    // Adding ones one by one stops at 2048 in f16, and at 256 in bf16.
    for n in [3000, 50_000] {
        let sum = Tensor::<f16>::ones(n).sum().item().sync_on(&stream).unwrap();
        assert_eq!(sum, f16::from_f64(n as f64));
        let sum = Tensor::<bf16>::ones([n, 2]).sum_dim(0).to_host_vec().sync_on(&stream).unwrap();
        assert_eq!(sum, [bf16::from_f64(n as f64); 2]);
    }
}

fn means_and_bool_reductions(device: &Device) {
    let stream = device.new_stream().unwrap();
    let x = Tensor::from_host(vec![1.0f64, 2.0, 3.0, 6.0], [2, 2]).sync_on(&stream).unwrap();
    assert_eq!(x.view().mean().item().sync_on(&stream).unwrap(), 3.0);
    assert_eq!(x.mean_dim(0).to_host_vec().sync_on(&stream).unwrap(), [2.0, 4.0]);
    // The sum and the number exceed f16.
    let halves = Tensor::full(f16::from_f32(0.5), [300, 300]).sync_on(&stream).unwrap();
    assert_eq!(halves.view().mean().item().sync_on(&stream).unwrap(), f16::from_f32(0.5));
    let means = halves.mean_dim(0).to_host_vec().sync_on(&stream).unwrap();
    assert_eq!(means, [f16::from_f32(0.5); 300]);
    let flags = Tensor::from_bools([true, false, true, true], [2, 2]).sync_on(&stream).unwrap();
    assert_eq!(flags.view().max_dim(1).to_host_vec().sync_on(&stream).unwrap(), [true, true]);
    assert_eq!(flags.min_dim(1).to_host_vec().sync_on(&stream).unwrap(), [false, true]);
}
