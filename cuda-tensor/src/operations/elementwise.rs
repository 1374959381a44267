//! Elementwise operations of one tensor: `Unary`, `FloatUnary`. Also `clamp` and `select`.

use cuda_async::{
    DeviceOp, IntoDeviceOp, defer,
    kernel::{ByValue, ModuleCache, launch},
};
use cuda_core::Function;

use crate::{
    argument::argument::{Read, StridedIndex, Written, vector_config},
    element::{
        dtype::{DType, Float, Number, Signed},
        kernels::{FloatKernels, Kernels, kernel},
    },
    forms::TensorInput,
    operations::{
        copy::{Contiguous, contiguous},
        create::allocate,
        pairs::Binary,
    },
    shape::{
        error::of_operation,
        layout::{Layout, broadcast_shape},
    },
    tensor::Tensor,
};

/// An elementwise function of one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unary {
    /// `-x`; integers wrap.
    Neg,
    /// The absolute value; the minimum of an integer type is unchanged.
    Abs,
    /// `x`, or 0 if `x` is negative.
    Relu,
}

/// An elementwise function of one floating-point number. f16 and bf16 are computed in f32 and rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FloatUnary {
    /// `e` to the power of `x`.
    Exp,
    /// The natural logarithm.
    Ln,
    /// The square root, rounded as IEEE 754 requires.
    Sqrt,
    /// The sine of radians.
    Sin,
    /// The cosine of radians.
    Cos,
    /// The hyperbolic tangent.
    Tanh,
    /// The error function.
    Erf,
    /// The largest integer that is at most `x`.
    Floor,
    /// The smallest integer that is at least `x`.
    Ceil,
    /// The nearest integer, ties to even.
    Round,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// `x * (1 + erf(x / sqrt(2))) / 2` (Hendrycks and Gimpel, 2016).
    Gelu,
    /// `1 / x`.
    Recip,
}

pub(crate) fn map<I>(x: I, operation: Unary) -> impl DeviceOp<Output = Tensor<I::Element>>
where
    I: TensorInput<Element: Signed>,
{
    apply(x, <I::Element as Kernels>::map(), "map", 1, operation as u32)
}

pub(crate) fn map_float<I>(
    x: I,
    operation: FloatUnary,
) -> impl DeviceOp<Output = Tensor<I::Element>>
where
    I: TensorInput<Element: Float>,
{
    // The number of packs that a thread loads before it computes: `FLOAT_PACKS` in `kernels/math.cuh`.
    let packs = if I::Element::HALF { 4 } else { 1 };
    apply(x, I::Element::math(), "map_float", packs, operation as u32)
}

fn apply<I: TensorInput>(
    x: I,
    cache: &'static ModuleCache,
    name: &'static str,
    packs: usize,
    operation: u32,
) -> impl DeviceOp<Output = Tensor<I::Element>> {
    map_with(x, cache, name, move |kernel, x, y| {
        let n = y.len();
        let args = (Read(x), Written(y), n as u64, operation);
        // SAFETY: reads x and writes y, all below n.
        unsafe { launch(&kernel, vector_config::<I::Element>(n, packs), args) }
    })
}

/// Computes `max(x, low)`, and then the minimum of that and `high`.
pub(crate) fn clamp<I>(
    x: I,
    (low, high): (I::Element, I::Element),
) -> impl DeviceOp<Output = Tensor<I::Element>>
where
    I: TensorInput<Element: Number>,
{
    map_with(x, <I::Element as Kernels>::map(), "clamp", move |kernel, x, y| {
        let (n, [low, high]) = (y.len(), [low, high].map(ByValue));
        let args = (Read(x), Written(y), n as u64, low, high);
        let config = vector_config::<I::Element>(n, Binary::Max.packs::<I::Element>());
        // SAFETY: reads x and writes y, all below n.
        unsafe { launch(&kernel, config, args) }
    })
}

/// Makes a new tensor in the shape of `x`. `launch` gets the kernel, `x` in row-major order, and the tensor to write.
pub(super) fn map_with<I, U, L, O>(
    x: I,
    cache: &'static ModuleCache,
    name: &'static str,
    launch: L,
) -> impl DeviceOp<Output = Tensor<U>>
where
    I: TensorInput,
    U: DType,
    L: FnOnce(Function, Contiguous<I>, Tensor<U>) -> O + Send,
    O: IntoDeviceOp<Output = Tensor<U>> + Send,
{
    contiguous(x).then(move |x| {
        let layout = Layout::contiguous(x.layout().shape())?;
        let kernel = kernel::<I::Element>(cache, name);
        Ok(allocate(layout).then(move |y| kernel.then(move |kernel| launch(kernel, x, y))))
    })
}

/// The number of packs that a thread of `choose` loads before it computes: `CHOOSE_PACKS` in `kernels/strided.cuh`. The
/// fastest number on an H200.
const CHOOSE_PACKS: usize = 4;

/// Takes each element from `a` where the mask is `true`, and from `b` elsewhere.
pub(crate) fn select<M, A, B>(
    (mask, (a, b)): (M, (A, B)),
) -> impl DeviceOp<Output = Tensor<A::Element>>
where
    M: TensorInput<Element = bool>,
    A: TensorInput,
    B: TensorInput<Element = A::Element>,
{
    defer(move || {
        let shape = broadcast_shape(a.layout().shape(), b.layout().shape())
            .and_then(|shape| broadcast_shape(mask.layout().shape(), &shape));
        let shape = of_operation("select", shape)?;
        let [m, x, y] = [mask.layout(), a.layout(), b.layout()]
            .map(|layout| of_operation("select", layout.broadcast(&shape)));
        let walk = StridedIndex::new(&shape, [m?.strides(), x?.strides(), y?.strides()]);
        let layout = Layout::contiguous(&shape[..])?;
        Ok(allocate(layout).then(move |y: Tensor<A::Element>| {
            kernel::<A::Element>(<A::Element as Kernels>::strided(), "choose").then(move |choose| {
                let config = walk.0.config::<A::Element>(CHOOSE_PACKS);
                let args = (Read(mask), Read(a), Read(b), Written(y), walk);
                // SAFETY: reads the operands at the offsets of their layouts, which are inside their memory, and writes
                // y.
                unsafe { launch(&choose, config, args) }
            })
        }))
    })
}
