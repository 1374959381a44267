//! The types of operations grow in proportion to the operation, so that the compiler's time does too. A type that
//! contains the operation before it twice takes minutes for a chain of a dozen operations.

use std::any::type_name_of_val;

use cuda_tensor::{Activation, Comparison, Tensor, TensorOps};

use cuda_async::{ExecutionContext, defer, memory::fill, ops::bind, prelude::*, with_context};

cuda_async::kernels! {
    #[ptx = "../kernels/basic.ptx"]
    unsafe struct Basic; // SAFETY: `scale` stays below n, the length of x.

    #[elements(n)]
    safe fn scale(x: &mut [f32], factor: f32, n: u32 = x.len());
}

/// The length of the name of the type, which omits the captures of closures.
fn size<O: DeviceOp>(op: &O) -> usize {
    type_name_of_val(op).len()
}

/// Asserts that a chain of four steps has at most 2.5 times the type of one of two steps. The compiler's time for a
/// chain of tensor operations grows faster than its length, so the chains are short.
macro_rules! assert_linear {
    ($first:expr, |$op:ident| $step:expr) => {{
        let $op = $first;
        let $op = $step;
        let $op = $step;
        let two = size(&$op);
        let $op = $step;
        let $op = $step;
        let four = size(&$op);
        assert!(2 * four <= 5 * two, "{}: {two}, {four}", stringify!($step));
    }};
}

fn x() -> impl DeviceOp<Output = Tensor<f32>> {
    Tensor::ones([2, 2])
}

#[test]
fn types_of_tensor_operations_grow_linearly() {
    assert_linear!(x(), |op| op.exp());
    assert_linear!(x(), |op| op.relu());
    assert_linear!(x(), |op| op.add_scalar(1.0));
    assert_linear!(x(), |op| op.add(Tensor::ones(())));
    assert_linear!(x(), |op| x().add(op));
    assert_linear!(x(), |op| op.add_assign(Tensor::ones(())));
    assert_linear!(x(), |op| x().memcpy(op));
    assert_linear!(x(), |op| op.dup().softmax(0));
    assert_linear!(x(), |op| op.matmul(x()));
    assert_linear!(x(), |op| x().linear(op, Tensor::ones(2), Activation::Relu));
    assert_linear!(x(), |op| op.sum_dim(0).mean());
    assert_linear!(x(), |op| op.argmax(0).cast::<f32>());
    assert_linear!(x(), |op| op.compare(x(), Comparison::Gt).select(x(), x()));
    assert_linear!(x(), |op| x().compare(op, Comparison::Gt).cast::<f32>());
    assert_linear!(x(), |op| op.fft().ifft());
}

fn first(list: Vec<f32>, count: usize) -> Vec<f32> {
    list.into_iter().take(count).collect()
}

/// Generic, so that the name of the closure contains the operation.
fn giving<O: Send>(op: O) -> impl FnOnce() -> O + Send {
    move || op
}

fn giving_in<O: Send>(op: O) -> impl FnOnce(ExecutionContext) -> O + Send {
    move |_| op
}

/// A generic function that takes an operation.
fn first_of(list: impl DeviceOp<Output = Vec<f32>>) -> impl DeviceOp<Output = Vec<f32>> {
    list.map(bind(first, 1))
}

#[test]
fn types_of_combinators_grow_linearly() {
    assert_linear!(zeros::<f32>(2), |op| op.then(|x| fill(x, 1.0)));
    assert_linear!(zeros::<f32>(2).then(to_host), |op| first_of(op));
    assert_linear!(zeros::<f32>(2), |op| defer(giving(op)));
    assert_linear!(zeros::<f32>(2), |op| with_context(giving_in(op)));
    assert_linear!(zeros::<f32>(2), |op| op.named("step").timed().map(|(x, _)| x));
    assert_linear!(zeros::<f32>(2), |op| zip!(op, zeros::<u8>(1)).map(|(x, _)| x));
}

#[test]
fn types_of_declared_kernels_grow_linearly() -> cuda_async::Result<()> {
    let kernels = Basic::loaded().sync_on(&cuda_async::open_blocking("cpu")?.new_stream()?)?;
    assert_linear!(zeros::<f32>(2), |op| kernels.scale(op, 2.0));
    Ok(())
}
