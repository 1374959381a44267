//! Matrix products and layers: bit-equal to plain Rust where the kernels of this crate compute them.

use cuda_tensor::{Activation, Float, Tensor, TensorOps, bf16, f16};

use cuda_async::{Device, Error, graph::GraphExt, prelude::*};

use crate::on_every_device;

on_every_device! {
    products_are_those_of_plain_rust
    products_of_views_and_batches
    layers_add_a_bias_and_apply_a_function
    empty_products
    shapes_that_do_not_fit_are_errors
    products_are_replayed_by_graphs
}

/// Numbers whose products and sums need rounding.
fn numbers(count: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / (1u64 << 23) as f64 - 1.0
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// The product of f32 matrices, in the order of the kernel.
fn reference(a: &[f32], b: &[f32], [m, n, k]: [usize; 3]) -> Vec<f32> {
    let element = |at: usize| {
        let (i, j) = (at / n, at % n);
        (0..k).fold(0.0f32, |sum, depth| a[i * k + depth].mul_add(b[depth * n + j], sum))
    };
    (0..m * n).map(element).collect()
}

/// Turns NVIDIA's libraries off, which round in another order.
fn without_libraries() {
    #[cfg(feature = "cudarc")]
    cuda_tensor::libraries::set_enabled(false);
}

fn products_are_those_of_plain_rust(device: &Device) {
    without_libraries();
    let stream = device.new_stream().unwrap();
    for sizes @ [m, n, k] in [[1, 1, 1], [3, 5, 7], [64, 64, 16], [65, 63, 17], [130, 70, 33]] {
        let [a, b] = [(m * k, 1), (k * n, 2)].map(|(count, seed)| numbers(count, seed));
        let [a, b] = [a, b]
            .map(|matrix| matrix.into_iter().map(|element| element as f32).collect::<Vec<_>>());
        let expected = reference(&a, &b, sizes);
        let product = Tensor::from_host(a, [m, k]).matmul(Tensor::from_host(b, [k, n]));
        let product = product.sync_on(&stream).unwrap();
        assert_eq!(product.shape(), [m, n]);
        assert_eq!(product.to_host_vec().sync_on(&stream).unwrap(), expected, "{sizes:?}");
    }
    product_of::<f64>(device);
    product_of::<f16>(device);
    product_of::<bf16>(device);
}

/// The product of small integers, which every type represents exactly.
fn product_of<T: Float>(device: &Device) {
    let stream = device.new_stream().unwrap();
    let whole = |count: usize, seed| -> Vec<T> {
        numbers(count, seed).into_iter().map(|number| T::of((number * 3.0).round())).collect()
    };
    let (m, n, k) = (17, 9, 5);
    let (a, b) = (whole(m * k, 3), whole(k * n, 4));
    let [wide_a, wide_b] = [&a, &b].map(|elements| {
        Tensor::from_host(elements.clone(), elements.len())
            .cast::<f32>()
            .to_host_vec()
            .sync_on(&stream)
            .unwrap()
    });
    let product = Tensor::from_host(a, [m, k]).matmul(Tensor::from_host(b, [k, n]));
    let product = product.cast::<f32>().to_host_vec().sync_on(&stream).unwrap();
    assert_eq!(product, reference(&wide_a, &wide_b, [m, n, k]), "{}", T::NAME);
}

fn products_of_views_and_batches(device: &Device) {
    without_libraries();
    let stream = device.new_stream().unwrap();
    let [a, b] = [5, 6].map(|seed| numbers(2 * 3 * 4, seed));
    let [a, b] =
        [a, b].map(|matrix| matrix.into_iter().map(|element| element as f32).collect::<Vec<_>>());
    let one = |batch: usize| {
        let (of_a, of_b) = (&a[batch * 12..][..12], &b[batch * 12..][..12]);
        // [3, 4] and [4, 3].
        reference(of_a, of_b, [3, 3, 4])
    };
    let x = Tensor::from_host(a.clone(), [2, 3, 4]).sync_on(&stream).unwrap();
    let y = Tensor::from_host(b.clone(), [2, 4, 3]).sync_on(&stream).unwrap();
    let list = |op: Tensor<f32>| op.to_host_vec().sync_on(&stream).unwrap();
    let batches = (&x).matmul(&y).sync_on(&stream).unwrap();
    assert_eq!(batches.shape(), [2, 3, 3]);
    assert_eq!(list(batches), [one(0), one(1)].concat());
    // One matrix for all of the batch, and a transposed one.
    let first = y.view().index(0, 0).unwrap();
    let shared = (&x).matmul(first).sync_on(&stream).unwrap();
    assert_eq!(list(shared)[..9], one(0));
    let transposed = y.view().transpose(1, 2).unwrap().dup().sync_on(&stream).unwrap();
    let again = transposed.transpose(1, 2).unwrap();
    assert_eq!(list((&x).matmul(&again).sync_on(&stream).unwrap()), [one(0), one(1)].concat());
    // A batch whose matrices do not lie at equal distances.
    let mixed = x.view().unsqueeze(1).unwrap().broadcast([2, 2, 3, 4]).unwrap();
    let product = mixed.matmul(y.view().unsqueeze(1).unwrap()).sync_on(&stream).unwrap();
    assert_eq!(product.shape(), [2, 2, 3, 3]);
    assert_eq!(list(product), [one(0), one(0), one(1), one(1)].concat());
    // Gaps in both directions.
    let gaps = x.view().slice(0, ..1).unwrap().slice(2, 1..3).unwrap().transpose(1, 2).unwrap();
    let rows = x.view().slice(0, ..1).unwrap();
    let product = list(gaps.matmul(rows).sync_on(&stream).unwrap());
    let column = |at: usize| (0..3).map(|row| a[row * 4 + at]).collect::<Vec<_>>();
    let left = [column(1), column(2)].concat();
    assert_eq!(product, reference(&left, &a[..12], [2, 4, 3]));
}

fn layers_add_a_bias_and_apply_a_function(device: &Device) {
    without_libraries();
    let stream = device.new_stream().unwrap();
    let (x, w) = (vec![1.0f32, 2.0, -3.0, 0.5], vec![1.0f32, -1.0, 0.5, 2.0, 0.25, -4.0]);
    let layer = |activation| {
        let x = Tensor::from_host(x.clone(), [2, 2]);
        let w = Tensor::from_host(w.clone(), [2, 3]);
        let bias = Tensor::from_host(vec![1.0f32, 0.0, -1.0], 3);
        x.linear(w, bias, activation).to_host_vec().sync_on(&stream).unwrap()
    };
    let plain = [6.0, -0.5, -8.5, -1.0, 3.125, -4.5];
    assert_eq!(layer(Activation::Identity), plain);
    assert_eq!(layer(Activation::Relu), plain.map(|element| element.max(0.0)));
    for (gelu, x) in layer(Activation::GeluTanh).into_iter().zip(plain.map(f64::from)) {
        let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
        let exact = 0.5 * x * (1.0 + inner.tanh());
        assert!((f64::from(gelu) - exact).abs() <= 1e-6 * x.abs().max(1.0), "{x}: {gelu}, {exact}");
    }
}

fn empty_products(device: &Device) {
    let stream = device.new_stream().unwrap();
    let product = |m, n, k| {
        let product = Tensor::<f32>::ones([m, k]).matmul(Tensor::ones([k, n]));
        product.sync_on(&stream).unwrap()
    };
    assert_eq!(product(0, 3, 2).shape(), [0, 3]);
    assert_eq!(product(3, 0, 2).shape(), [3, 0]);
    assert_eq!(product(2, 2, 0).to_host_vec().sync_on(&stream).unwrap(), [0.0; 4]);
}

fn shapes_that_do_not_fit_are_errors(device: &Device) {
    let stream = device.new_stream().unwrap();
    let error = |a: &[usize], b: &[usize]| {
        let product = Tensor::<f32>::ones(a).matmul(Tensor::ones(b));
        product.sync_on(&stream).unwrap_err()
    };
    for (a, b, part) in [
        (&[2, 3][..], &[2, 3][..], "[2, 3] cannot be multiplied by [2, 3]"),
        (&[2, 2][..], &[3, 2][..], "[2, 2] cannot be multiplied by [3, 2]"),
        (&[3][..], &[3, 2][..], "[3] cannot be multiplied"),
        (&[2, 2, 3][..], &[3, 3, 2][..], "must broadcast"),
    ] {
        let error = error(a, b);
        assert!(matches!(error, Error::Shape { .. }), "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
    // The sizes of these batches cannot be multiplied.
    let one = Tensor::<f32>::zeros([1, 1, 1, 1]).sync_on(&stream).unwrap().into_shared();
    let a = one.clone().broadcast([1 << 40, 1, 1, 1]).unwrap();
    let b = one.broadcast([1, 1 << 40, 1, 1]).unwrap();
    let error = a.matmul(b).sync_on(&stream).unwrap_err();
    assert!(matches!(error, Error::Shape { .. }), "{error}");
    let layer = Tensor::<f32>::ones([2, 3]).linear(
        Tensor::ones([3, 4]),
        Tensor::ones(3),
        Activation::Identity,
    );
    let error = layer.sync_on(&stream).unwrap_err().to_string();
    assert!(error.contains("the bias of `linear`: the shape [3] must be [4]"), "{error}");
}

fn products_are_replayed_by_graphs(device: &Device) {
    without_libraries();
    let stream = device.new_stream().unwrap();
    Tensor::<f32>::warm_up().sync_on(&stream).unwrap();
    let x = Tensor::from_host(vec![1.0f32, 2.0, 3.0, 4.0], [2, 2]).sync_on(&stream).unwrap();
    let x = x.into_shared();
    let graph = x.clone().matmul(x).graph_on(&stream).unwrap();
    for _ in 0..3 {
        let product =
            graph.launch().then(|output| output.dup()).to_host_vec().sync_on(&stream).unwrap();
        assert_eq!(product, [7.0, 10.0, 15.0, 22.0]);
    }
}
