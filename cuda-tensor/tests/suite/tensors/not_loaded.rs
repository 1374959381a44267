//! Operations on tensors whose kernels are not loaded, where they cannot wait for them.

use cuda_async::{
    Device, Error,
    cuda_cpu::CpuProvider,
    graph::GraphExt,
    prelude::*,
    tensor::{DType, FftFloat, Float, Number, Tensor, TensorOps, bf16, f16},
};

/// A device on which no kernel is loaded.
fn fresh() -> Device {
    Device::open(&CpuProvider::default(), 0).unwrap()
}

fn recorded<T: Send + Sync>(op: impl DeviceOp<Output = T>) -> Error {
    op.graph_on(&fresh().new_stream().unwrap()).map(drop).unwrap_err()
}

const MESSAGE: &str = "the kernels of this operation are not loaded on the device, and an operation that is recorded or submitted without waiting cannot wait until they are; first run `Tensor::<T>::warm_up()` on the device";

fn check<T: DType>(error: Error) {
    assert!(matches!(error.root(), Error::NotLoaded { .. }), "{error:?}");
    assert_eq!(error.root().to_string(), MESSAGE.replace("<T>", &format!("<{}>", T::NAME)));
}

#[test]
fn error_names_the_operation_that_loads_the_kernels() {
    check::<f32>(recorded(Tensor::<f32>::ones(3)));
    check::<f32>(recorded(Tensor::<f32>::zeros([2, 3]).add(Tensor::zeros(3))));
    check::<f64>(recorded(Tensor::<f64>::zeros(3).exp()));
    check::<i64>(recorded(Tensor::<i64>::zeros([2, 2]).sum_dim(0)));
    check::<u8>(recorded(Tensor::<f32>::zeros(2).cast::<u8>()));
    // The kernels of copies serve several types.
    check::<bool>(recorded(Tensor::<bool>::zeros([2, 2]).dup()));
    check::<f16>(recorded(Tensor::<f16>::zeros([2, 2]).softmax(0)));
    check::<bf16>(recorded(Tensor::<bf16>::zeros([2, 2]).matmul(Tensor::zeros([2, 2]))));
    check::<f64>(recorded(Tensor::<f64>::zeros([4, 2]).fft()));
    check::<f32>(recorded(Tensor::<f32>::rand(4, 1)));
    check::<f32>(recorded(Tensor::<f32>::warm_up()));
    // SAFETY: refused before anything runs.
    let detached = unsafe { Tensor::<f32>::ones(3).async_on(&fresh().new_stream().unwrap()) };
    check::<f32>(detached.unwrap_err());
    let named = recorded(Tensor::<f32>::ones(3).named("ones"));
    assert!(named.to_string().starts_with("operation \"ones\": the kernels of"), "{named}");
}

cuda_async::kernels! {
    #[ptx = "../kernels/basic.ptx"]
    unsafe struct Basic; // SAFETY: `scale` stays below n, the length of x.

    #[elements(n)]
    safe fn scale(x: &mut [f32], factor: f32, n: u32 = x.len());
}

#[test]
fn error_names_the_declared_kernels() {
    let op = || Basic::loaded().then(|basic| basic.scale(zeros(3), 2.0));
    let error = recorded(op());
    assert!(error.to_string().ends_with("first run `Basic::loaded()` on the device"), "{error}");
    let device = fresh();
    let stream = device.new_stream().unwrap();
    Basic::loaded().sync_on(&stream).unwrap();
    assert_eq!(op().graph_on(&stream).unwrap().len(), 2);
}

/// Records operations of every kind after `warm_up`.
fn operations<T: Number>(stream: &cuda_async::Stream) {
    Tensor::<T>::warm_up().sync_on(stream).unwrap();
    let x = || Tensor::<T>::ones([2, 2]);
    let record = |op: cuda_async::BoxedOp<'static, ()>| op.graph_on(stream).map(drop).unwrap();
    record(x().add(Tensor::arange_by(T::ONE, T::ONE, 2)).map(drop).boxed());
    record(x().map2(x(), cuda_async::tensor::Binary::Pow).map(drop).boxed());
    record(x().mul_assign(x()).map(drop).boxed());
    record(x().cast::<T>().sum().max().map(drop).boxed());
    record(x().argmax(0).map(drop).boxed());
    record(x().try_map(|x| x.transpose(0, 1)).dup().map(drop).boxed());
    let compared = x().max().compare(x().min(), cuda_async::tensor::Comparison::Gt);
    let go = cuda_async::graph::DeviceScalar::new(0u32).sync_on(stream).unwrap();
    record(go.set_from(compared).boxed());
}

fn of_floats<T: Float>(stream: &cuda_async::Stream) {
    operations::<T>(stream);
    let x = || Tensor::<T>::rand([2, 2], 1);
    x().exp().softmax(0).matmul(x()).graph_on(stream).unwrap();
}

fn of_fft<T: FftFloat>(stream: &cuda_async::Stream) {
    of_floats::<T>(stream);
    Tensor::<T>::ones([3, 2]).fft().ifft().graph_on(stream).unwrap();
}

#[test]
fn every_operation_is_recorded_after_warm_up() {
    let stream = || fresh().new_stream().unwrap();
    of_fft::<f32>(&stream());
    of_fft::<f64>(&stream());
    of_floats::<bf16>(&stream());
    of_floats::<f16>(&stream());
    operations::<i8>(&stream());
    operations::<u64>(&stream());
}
