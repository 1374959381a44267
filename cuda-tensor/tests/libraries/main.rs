//! cuBLAS, cuBLASLt and cuFFT on the first GPU of this machine, compared with the kernels of this crate.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cuda_tensor::{Activation, Float, Tensor, TensorOps, bf16, f16, libraries::set_enabled};

use cuda_async::{graph::GraphExt, open_blocking, prelude::*};

/// The first GPU. `None`, with a message, on a machine without one.
fn gpu() -> Option<Device> {
    open_blocking("cuda:0").inspect_err(|error| println!("not run: {error}")).ok()
}

/// Keeps the tests of this file apart: they turn the libraries off and on.
static LIBRARIES: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn numbers<T: Float>(count: usize, seed: usize) -> Vec<T> {
    (0..count).map(|at| T::of((((at + 7 * seed) * 37) % 101) as f64 / 50.0 - 1.0)).collect()
}

/// Runs an operation with the libraries and without them, and compares.
fn compare<T: Float, O: DeviceOp<Output = Tensor<T>>>(
    what: &str,
    tolerance: f64,
    op: impl Fn() -> O,
) {
    let Some(device) = gpu() else { return };
    let stream = device.new_stream().unwrap();
    let run = |enabled| {
        set_enabled(enabled);
        let tensor = op().sync_on(&stream).unwrap();
        let shape = tensor.shape().to_vec();
        (shape, tensor.cast::<f64>().to_host_vec().sync_on(&stream).unwrap())
    };
    let ((shape, ours), (library_shape, library)) = (run(false), run(true));
    assert_eq!(shape, library_shape);
    let scale = ours.iter().fold(1.0f64, |most, element| most.max(element.abs()));
    for (at, (is, should)) in library.iter().zip(&ours).enumerate() {
        assert!((is - should).abs() <= tolerance * scale, "{what} {at}: {is} and {should}");
    }
}

fn products<T: Float>(tolerance: f64) {
    let _lock = LIBRARIES.lock().unwrap();
    for [m, n, k] in [[1, 1, 1], [5, 3, 7], [64, 32, 128], [127, 65, 33]] {
        compare(T::NAME, tolerance, || {
            let b = Tensor::from_host(numbers::<T>(k * n, 2), [k, n]);
            Tensor::from_host(numbers::<T>(m * k, 1), [m, k]).matmul(b)
        });
        // Both transposed, in a batch, and a part of a larger matrix.
        compare(T::NAME, tolerance, || {
            let a = Tensor::from_host(numbers::<T>(3 * m * k, 1), [3, k, m]);
            let b = Tensor::from_host(numbers::<T>(3 * k * n, 2), [3, n, k]);
            let a = a.try_map(|a| a.transpose(1, 2));
            a.matmul(b.try_map(|b| b.transpose(1, 2)))
        });
        compare(T::NAME, tolerance, || {
            let a = Tensor::from_host(numbers::<T>((m + 2) * (k + 3), 1), [m + 2, k + 3]);
            let a = a.try_map(move |a| a.slice(0, 1..m + 1)?.slice(1, 3..));
            a.matmul(Tensor::from_host(numbers::<T>(k * n, 2), [1, k, n]))
        });
        for activation in [Activation::Identity, Activation::Relu, Activation::GeluTanh] {
            compare(T::NAME, tolerance, || {
                let w = Tensor::from_host(numbers::<T>(k * n, 2), [k, n]);
                let bias = Tensor::from_host(numbers::<T>(n, 3), n);
                Tensor::from_host(numbers::<T>(m * k, 1), [m, k]).linear(w, bias, activation)
            });
            // A bias that begins at the second element of its memory.
            compare(T::NAME, tolerance, || {
                let w = Tensor::from_host(numbers::<T>(k * n, 2), [k, n]);
                let bias = Tensor::from_host(numbers::<T>(n + 1, 3), n + 1);
                let bias = bias.try_map(|bias| bias.slice(0, 1..));
                Tensor::from_host(numbers::<T>(m * k, 1), [m, k]).linear(w, bias, activation)
            });
        }
    }
}

#[test]
fn products_of_f32_agree() {
    products::<f32>(1e-5);
}

#[test]
fn products_of_f64_agree() {
    products::<f64>(1e-13);
}

#[test]
fn products_of_f16_agree() {
    products::<f16>(2e-3);
}

#[test]
fn products_of_bf16_agree() {
    products::<bf16>(2e-2);
}

#[test]
fn transforms_agree() {
    let _lock = LIBRARIES.lock().unwrap();
    for n in [1, 2, 12, 97, 1 << 12, 30_030] {
        compare("f32", 1e-5, || Tensor::from_host(numbers::<f32>(4 * n, 1), [2, n, 2]).fft());
        compare("f64", 1e-12, || Tensor::from_host(numbers::<f64>(4 * n, 1), [2, n, 2]).fft());
        compare("f64", 1e-12, || Tensor::from_host(numbers::<f64>(4 * n, 1), [2, n, 2]).ifft());
        // Views that begin between the parts of a complex number.
        compare("f32", 1e-5, || {
            let x = Tensor::from_host(numbers::<f32>(2 * n + 1, 1), 2 * n + 1);
            x.try_map(move |x| x.slice(0, 1..)?.reshape([n, 2])).ifft()
        });
    }
}

#[test]
fn calls_on_many_streams_do_not_share_scratch_memory() {
    let _lock = LIBRARIES.lock().unwrap();
    let Some(device) = gpu() else { return };
    set_enabled(true);
    let n = 512;
    let whole = |seed: usize| -> Vec<f32> {
        (0..n * n).map(|at| ((at * (seed + 3)) % 5) as f32 - 2.0).collect()
    };
    let product = |seed: usize| {
        let a = Tensor::from_host(whole(seed), [n, n]);
        a.matmul(Tensor::from_host(whole(seed + 1), [n, n])).to_host_vec()
    };
    let alone: Vec<_> =
        (0..8).map(|seed| product(seed).sync_on(&device.new_stream().unwrap()).unwrap()).collect();
    std::thread::scope(|scope| {
        for (seed, expected) in alone.iter().enumerate() {
            let stream = device.new_stream().unwrap();
            scope.spawn(move || {
                for _ in 0..20 {
                    assert_eq!(product(seed).sync_on(&stream).unwrap(), *expected);
                }
            });
        }
    });
}

/// cuFFT prepares each shape. A recording cannot wait for that, and the error says what to run before.
#[test]
fn a_graph_needs_a_transform_that_ran_before() {
    let _lock = LIBRARIES.lock().unwrap();
    let Some(device) = gpu() else { return };
    set_enabled(true);
    let stream = device.new_stream().unwrap();
    Tensor::<f32>::warm_up().sync_on(&stream).unwrap();
    // No other test transforms this length.
    let x = Tensor::from_host(numbers::<f32>(2 * 77, 1), [77, 2]).sync_on(&stream).unwrap();
    let x = x.into_shared();
    let Err(error) = x.clone().fft().graph_on(&stream) else { panic!("it was recorded") };
    assert!(error.to_string().contains("run `the transform of a tensor of this shape`"), "{error}");
    let direct = x.clone().fft().to_host_vec().sync_on(&stream).unwrap();
    let graph = x.fft().graph_on(&stream).unwrap();
    let replayed =
        graph.launch().then(|output| output.dup()).to_host_vec().sync_on(&stream).unwrap();
    assert_eq!(replayed, direct);
}

#[test]
fn library_calls_are_recorded_in_graphs() {
    let _lock = LIBRARIES.lock().unwrap();
    let Some(device) = gpu() else { return };
    set_enabled(true);
    let stream = device.new_stream().unwrap();
    // Opens the libraries, so the first product may be recorded.
    Tensor::<f32>::warm_up().sync_on(&stream).unwrap();
    let x = Tensor::from_host(numbers::<f32>(64 * 64, 1), [64, 64]).sync_on(&stream).unwrap();
    let x = x.into_shared();
    let op =
        |x: cuda_tensor::SharedTensor<f32>| x.clone().matmul(x.clone()).mul_scalar(2.0).matmul(x);
    let graph = op(x.clone()).graph_on(&stream).unwrap();
    let direct = op(x).to_host_vec().sync_on(&stream).unwrap();
    graph.upload().unwrap();
    for _ in 0..5 {
        let replayed =
            graph.launch().then(|output| output.dup()).to_host_vec().sync_on(&stream).unwrap();
        assert_eq!(replayed, direct);
    }
}
