//! Elementwise operations: `Unary`, `Binary`, `Comparison`.

use crate::{
    DeviceOp, defer,
    kernel::{ByValue, ModuleCache, launch},
    ops::Either,
    tensor::{
        argument::argument::{
            InPlace, Kept, Read, StridedIndex, Written, element_config, vector_config,
        },
        element::{
            dtype::{DType, Float, Number, Signed},
            kernels::{FloatKernels, Kernels, kernel},
        },
        forms::{TensorInput, TensorOutput},
        operations::{
            copy::{contiguous, copy},
            create::allocate,
        },
        shape::{
            error::{broadcast_target, of_operation},
            layout::{Layout, broadcast_shape},
        },
        tensor::Tensor,
    },
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

/// An elementwise function of two numbers. Integers wrap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Binary {
    /// `a + b`.
    Add,
    /// `a - b`.
    Sub,
    /// `a * b`.
    Mul,
    /// `a / b`. An integer quotient is truncated towards 0, and an integer divided by 0 gives 0.
    Div,
    /// The remainder of the truncated division, with the sign of `a`. The remainder of an integer divided by 0 is 0.
    Rem,
    /// The larger one; NaN if one is NaN.
    Max,
    /// The smaller one; NaN if one is NaN.
    Min,
    /// `a` to the power of `b`. Integers wrap. For a negative `b`, an integer gives `1 / a^-b`, truncated towards 0, and 0
    /// gives 0.
    Pow,
}

/// A comparison of two elements. All but [`Ne`](Comparison::Ne) are `false` if one is NaN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// `a == b`
    Eq,
    /// `a != b`
    Ne,
    /// `a < b`
    Lt,
    /// `a <= b`
    Le,
    /// `a > b`
    Gt,
    /// `a >= b`
    Ge,
}

impl Binary {
    /// Returns the module with the kernels of this function.
    fn kernels<T: Kernels>(self) -> &'static ModuleCache {
        match self {
            Self::Rem | Self::Pow => T::powers(),
            _ => T::map(),
        }
    }

    /// Returns the number of packs of 16 bytes that a thread loads before it computes: `PACKS` in `kernels/binary.cuh`.
    const fn packs<T: DType>(self) -> usize {
        match self {
            Self::Rem | Self::Pow => 1,
            _ if T::HALF => 2,
            _ => 1,
        }
    }
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
    contiguous(x).then(move |x| {
        let layout = Layout::contiguous(x.layout().shape());
        layout.map(|layout| {
            allocate(layout).then(move |y| {
                kernel::<I::Element>(cache, name).then(move |map| {
                    let n = y.len();
                    let args = (Read(x), Written(y), n as u64, operation);
                    // SAFETY: reads x and writes y, all below n.
                    unsafe { launch(&map, vector_config::<I::Element>(n, packs), args) }
                })
            })
        })
    })
}

/// Applies `operation(x, scalar)` to each element `x`, or `operation(scalar, x)` if `swapped`.
pub(crate) fn map_scalar<I>(
    x: I,
    (operation, scalar, swapped): (Binary, I::Element, bool),
) -> impl DeviceOp<Output = Tensor<I::Element>>
where
    I: TensorInput<Element: Number>,
{
    contiguous(x).then(move |x| {
        let layout = Layout::contiguous(x.layout().shape());
        layout.map(|layout| {
            allocate(layout).then(move |y| {
                let cache = operation.kernels::<I::Element>();
                let packs = operation.packs::<I::Element>();
                kernel::<I::Element>(cache, "map_scalar").then(move |map| {
                    let (n, operation, swapped) = (y.len(), operation as u32, u32::from(swapped));
                    let scalar = ByValue(scalar.store());
                    let args = (Read(x), Written(y), n as u64, operation, swapped, scalar);
                    // SAFETY: reads x and writes y, all below n.
                    unsafe { launch(&map, vector_config::<I::Element>(n, packs), args) }
                })
            })
        })
    })
}

pub(crate) fn map2<A, B>(
    (a, b): (A, B),
    (operation, called): (Binary, &'static str),
) -> impl DeviceOp<Output = Tensor<A::Element>>
where
    A: TensorInput<Element: Number>,
    B: TensorInput<Element = A::Element>,
{
    let cache = operation.kernels::<A::Element>();
    let packs = operation.packs::<A::Element>();
    pairs(a, b, cache, ["map2", "map2_strided"], packs, operation as u32, called)
}

/// Applies the operation to each pair of elements, and writes the results into the first tensor.
pub(crate) fn map2_assign<O, I>(
    (into, other): (O, I),
    (operation, called): (Binary, &'static str),
) -> impl DeviceOp<Output = O>
where
    O: TensorOutput<Element: Number>,
    I: TensorInput<Element = O::Element>,
{
    defer(move || {
        let (y, x) = (into.layout(), other.layout());
        let shape = y.shape();
        let x = of_operation(called, x.broadcast(shape))?;
        if y.has_overlap() {
            return Err(broadcast_target(called));
        }
        let (n, is_dense) = (y.len(), y.is_contiguous());
        let plain = is_dense && other.layout().shape() == shape && x.is_contiguous();
        let name = if plain { "map2" } else { "map2_strided" };
        let walk = StridedIndex::new(shape, [y.strides(), x.strides()]);
        let results = Layout::contiguous(shape)?;
        let cache = operation.kernels::<O::Element>();
        Ok(kernel::<O::Element>(cache, name).then(move |kernel| {
            let packs = operation.packs::<O::Element>();
            let (config, operation) = (element_config(n), operation as u32);
            if plain {
                let config = vector_config::<O::Element>(n, packs);
                let args = (InPlace(into, other), n as u64, operation);
                // SAFETY: reads both tensors and writes the first one, all below n. Each thread writes the elements that it
                // has read.
                Either::Left(Either::Left(unsafe { launch(&kernel, config, args) }))
            } else if is_dense {
                let args = (InPlace(into, other), walk, operation);
                // SAFETY: reads both tensors at the offsets of their layouts, which are inside their memory. Each thread writes
                // the element that it has read.
                Either::Left(Either::Right(unsafe { launch(&kernel, config, args) }))
            } else {
                // The kernel writes its results without gaps.
                Either::Right(allocate(results).then(move |results| {
                    let args = (Kept(into), Read(other), Written(results), walk, operation);
                    // SAFETY: reads as above, and writes all elements of `results`.
                    unsafe { launch(&kernel, config, args) }
                        .then(|(into, results): (O, Tensor<O::Element>)| copy(results, into))
                }))
            }
        }))
    })
}

pub(crate) fn compare<A, B>(
    (a, b): (A, B),
    comparison: Comparison,
) -> impl DeviceOp<Output = Tensor<bool>>
where
    A: TensorInput,
    B: TensorInput<Element = A::Element>,
{
    let cache = <A::Element as Kernels>::map();
    pairs(a, b, cache, ["compare", "compare_strided"], 1, comparison as u32, "compare")
}

/// Runs a kernel on the pairs of elements of two tensors: the first kernel if both are contiguous and have one shape,
/// otherwise the strided one.
fn pairs<A, B, U>(
    a: A,
    b: B,
    cache: &'static ModuleCache,
    [of_dense, strided]: [&'static str; 2],
    packs: usize,
    operation: u32,
    called: &'static str,
) -> impl DeviceOp<Output = Tensor<U>>
where
    A: TensorInput,
    B: TensorInput<Element = A::Element>,
    U: DType,
{
    defer(move || {
        let (x, y) = (a.layout(), b.layout());
        let plain = x.shape() == y.shape() && x.is_contiguous() && y.is_contiguous();
        let shape = of_operation(called, broadcast_shape(x.shape(), y.shape()))?;
        let [x, y] = [x, y].map(|it| of_operation(called, it.broadcast(&shape)));
        let (x, y) = (x?, y?);
        let walk = StridedIndex::new(&shape, [x.strides(), y.strides()]);
        let name = if plain { of_dense } else { strided };
        let (layout, kernel) = (Layout::contiguous(&shape[..])?, kernel::<A::Element>(cache, name));
        Ok(allocate(layout).then(move |y: Tensor<U>| {
            kernel.then(move |kernel| {
                let (len, n) = (y.len(), y.len() as u64);
                // SAFETY: reads a and b at the offsets of their layouts, which are inside their memory, and writes y, all
                // below n.
                unsafe {
                    if plain {
                        let args = (Read(a), Read(b), Written(y), n, operation);
                        let config = vector_config::<A::Element>(len, packs);
                        Either::Left(launch(&kernel, config, args))
                    } else {
                        let args = (Read(a), Read(b), Written(y), walk, operation);
                        Either::Right(launch(&kernel, element_config(len), args))
                    }
                }
            })
        }))
    })
}

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
            .map(|it| of_operation("select", it.broadcast(&shape)));
        let walk = StridedIndex::new(&shape, [m?.strides(), x?.strides(), y?.strides()]);
        let layout = Layout::contiguous(&shape[..])?;
        Ok(allocate(layout).then(move |y: Tensor<A::Element>| {
            kernel::<A::Element>(<A::Element as Kernels>::map(), "choose").then(move |choose| {
                let config = element_config(y.len());
                let args = (Read(mask), Read(a), Read(b), Written(y), walk);
                // SAFETY: reads the operands at the offsets of their layouts, which are inside their memory, and writes y.
                unsafe { launch(&choose, config, args) }
            })
        }))
    })
}
