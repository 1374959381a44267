//! Elementwise operations: of one tensor (`Unary`, `FloatUnary`, `clamp`), of two tensors or of a tensor and a number
//! (`Binary`, `Comparison`), and `select`.

use std::marker::PhantomData;

use bytemuck::Zeroable;
use cuda_async::{
    DeviceOp, IntoDeviceOp, defer,
    kernel::{ByValue, ModuleCache, launch},
    ops::Either,
};
use cuda_core::{Function, LaunchConfig, Result};

use crate::{
    argument::{
        InPlace, InPlaceAlone, NO_ADDRESS, Read, Returned, StridedIndex, Written, vector_config,
    },
    element::{DType, Float, FloatKernels, Kernels, Number, STRIDED_PACKS, Signed, kernel},
    forms::{TensorInput, TensorOutput},
    operations::{
        copy::{Contiguous, contiguous, copy},
        create::allocate,
    },
    shape::{Layout, broadcast_shape, broadcast_target, of_operation},
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
fn map_with<I, U, L, O>(
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
    /// `a / b`. An integer quotient is truncated toward 0, and an integer divided by 0 gives 0.
    Div,
    /// The remainder of the truncated division, with the sign of `a`. The remainder of an integer divided by 0 is 0.
    Rem,
    /// The larger one; NaN if one is NaN.
    Max,
    /// The smaller one; NaN if one is NaN.
    Min,
    /// `a` to the power of `b`. Integers wrap. For a negative `b`, an integer gives `1 / a^-b`, truncated toward 0, and
    /// 0 gives 0.
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
    /// Returns the module with the kernels of this function for contiguous tensors.
    fn kernels<T: Kernels>(self) -> &'static ModuleCache {
        match self {
            Self::Rem | Self::Pow => T::powers(),
            _ => T::map(),
        }
    }

    /// Returns the module with the kernel of this function for tensors in any layout.
    fn strided_kernels<T: Kernels>(self) -> &'static ModuleCache {
        match self {
            Self::Rem | Self::Pow => T::strided_powers(),
            _ => T::strided(),
        }
    }

    /// Returns the number of packs that each thread of the kernel for any layout loads before it computes.
    const fn strided_packs<T: Kernels>(self) -> usize {
        match self {
            Self::Rem | Self::Pow => T::STRIDED_POWERS_PACKS,
            _ => STRIDED_PACKS,
        }
    }

    /// Returns the number of packs of 16 bytes that a thread loads before it computes: `PACKS` in
    /// `kernels/operations.cuh`.
    const fn packs<T: DType>(self) -> usize {
        match self {
            Self::Rem | Self::Pow => 1,
            _ if T::HALF => 2,
            _ => 1,
        }
    }
}

/// The kernels of a function of two elements of `T`, whose results are elements of `U`.
#[derive(Clone, Copy)]
struct PairKernels<T, U> {
    /// The module of `dense` and `scalar`.
    of_contiguous: &'static ModuleCache,
    /// The kernel of two contiguous tensors.
    dense: &'static str,
    /// The kernel of a contiguous tensor and one number, which is an argument or in device memory.
    scalar: &'static str,
    /// The number of packs that each thread of `dense` and `scalar` loads before it computes.
    packs: usize,
    /// The module of `strided`.
    of_strided: &'static ModuleCache,
    /// The kernel of tensors in any layout.
    strided: &'static str,
    /// The number of packs that each thread of `strided` loads before it computes.
    strided_packs: usize,
    /// The number of the function in the kernels.
    function: u32,
    types: PhantomData<fn(T, T) -> U>,
}

impl<T: DType> PairKernels<T, T> {
    fn of_binary(operation: Binary) -> Self {
        Self {
            of_contiguous: operation.kernels::<T>(),
            dense: "map2",
            scalar: "map_scalar",
            packs: operation.packs::<T>(),
            of_strided: operation.strided_kernels::<T>(),
            strided: "map2_strided",
            strided_packs: operation.strided_packs::<T>(),
            function: operation as u32,
            types: PhantomData,
        }
    }
}

impl<T: DType> PairKernels<T, bool> {
    fn of_comparison(comparison: Comparison) -> Self {
        Self {
            of_contiguous: T::map(),
            dense: "compare",
            scalar: "compare_scalar",
            packs: 2,
            of_strided: T::strided(),
            strided: "compare_strided",
            strided_packs: STRIDED_PACKS,
            function: comparison as u32,
            types: PhantomData,
        }
    }
}

impl<T: DType, U> PairKernels<T, U> {
    fn load(self, pair: Pair) -> impl DeviceOp<Output = Function> {
        let (cache, name) = match pair {
            Pair::Dense => (self.of_contiguous, self.dense),
            Pair::NumberLast | Pair::NumberFirst => (self.of_contiguous, self.scalar),
            Pair::Strided => (self.of_strided, self.strided),
        };
        kernel::<T>(cache, name)
    }

    /// Returns the configuration of the kernels of contiguous tensors, for `n` elements.
    fn config(self, n: usize) -> LaunchConfig {
        vector_config::<T>(n, self.packs)
    }
}

/// The layouts of two operands that are broadcast to one shape.
#[derive(Clone, Copy, PartialEq)]
enum Pair {
    /// Both are contiguous.
    Dense,
    /// The first is contiguous, and the second has one element.
    NumberLast,
    /// The second is contiguous, and the first has one element.
    NumberFirst,
    /// All other layouts.
    Strided,
}

impl Pair {
    /// `n` is the number of elements of the shape.
    fn of(x: &Layout, y: &Layout, n: usize) -> Self {
        // Unless there are no elements, a broadcast to as many adds only dimensions of size 1.
        let is_dense = |layout: &Layout| layout.len() == n && layout.is_contiguous();
        match (is_dense(x), is_dense(y)) {
            (true, true) => Self::Dense,
            (true, false) if y.len() == 1 => Self::NumberLast,
            (false, true) if x.len() == 1 => Self::NumberFirst,
            _ => Self::Strided,
        }
    }
}

/// The last two arguments of `map_scalar` and `compare_scalar`: whether the number is the first operand, and the
/// number. The number is not used if it is in device memory.
type Scalar<T> = (u32, ByValue<<T as DType>::Stored>);

fn in_memory<T: DType>(swapped: bool) -> Scalar<T> {
    (u32::from(swapped), ByValue(T::Stored::zeroed()))
}

/// Applies `operation(x, scalar)` to each element `x`, or `operation(scalar, x)` if `swapped`.
pub(crate) fn map_scalar<I>(
    x: I,
    (operation, scalar, swapped): (Binary, I::Element, bool),
) -> impl DeviceOp<Output = Tensor<I::Element>>
where
    I: TensorInput<Element: Number>,
{
    with_scalar(x, PairKernels::of_binary(operation), scalar, swapped)
}

/// Applies `operation(x, scalar)` to each element `x`, in place.
pub(crate) fn map_scalar_assign<O>(
    into: O,
    (operation, scalar): (Binary, O::Element),
) -> impl DeviceOp<Output = O>
where
    O: TensorOutput<Element: Number>,
{
    const CALLED: &str = "map_scalar_assign";
    defer(move || {
        if !into.layout().is_contiguous() {
            let number = Tensor::full(scalar, ());
            let assigned =
                number.then(move |number| map2_assign((into, number), (operation, CALLED)));
            return Ok(Either::Left(assigned));
        }
        let kernels = PairKernels::<O::Element, _>::of_binary(operation);
        let (n, function, scalar) = (into.layout().len(), kernels.function, scalar.store());
        Ok(Either::Right(kernels.load(Pair::NumberLast).then(move |kernel| {
            let args = (InPlaceAlone(into), n as u64, function, 0u32, ByValue(scalar));
            // SAFETY: reads and writes the tensor, all below n, each thread the elements that it has read.
            unsafe { launch(&kernel, kernels.config(n), args) }
        })))
    })
}

/// Compares each element with the scalar.
pub(crate) fn compare_scalar<I: TensorInput>(
    x: I,
    (scalar, comparison): (I::Element, Comparison),
) -> impl DeviceOp<Output = Tensor<bool>> {
    with_scalar(x, PairKernels::of_comparison(comparison), scalar, false)
}

fn with_scalar<I: TensorInput, U: DType>(
    x: I,
    kernels: PairKernels<I::Element, U>,
    scalar: I::Element,
    swapped: bool,
) -> impl DeviceOp<Output = Tensor<U>> {
    map_with(x, kernels.of_contiguous, kernels.scalar, move |kernel, x, y: Tensor<U>| {
        let (n, function) = (y.len(), kernels.function);
        let (swapped, scalar) = (u32::from(swapped), ByValue(scalar.store()));
        let args = (Read(x), NO_ADDRESS, Written(y), n as u64, function, swapped, scalar);
        // SAFETY: reads x and writes y, all below n, of the types of `kernels`. The kernel does not read the null
        // address.
        unsafe { launch(&kernel, kernels.config(n), args) }
    })
}

/// Applies the operation to each pair of elements. `called` is the operation of the program.
pub(crate) fn map2<A, B>(
    (a, b): (A, B),
    (operation, called): (Binary, &'static str),
) -> impl DeviceOp<Output = Tensor<A::Element>>
where
    A: TensorInput<Element: Number>,
    B: TensorInput<Element = A::Element>,
{
    pairs(a, b, PairKernels::of_binary(operation), called)
}

pub(crate) fn compare<A, B>(
    (a, b): (A, B),
    comparison: Comparison,
) -> impl DeviceOp<Output = Tensor<bool>>
where
    A: TensorInput,
    B: TensorInput<Element = A::Element>,
{
    pairs(a, b, PairKernels::of_comparison(comparison), "compare")
}

/// The kernel for the layouts of two tensors, and the layout of the results.
struct Plan {
    pair: Pair,
    walk: ByValue<StridedIndex<2>>,
    results: Layout,
}

impl Plan {
    fn of(a: &Layout, b: &Layout, called: &'static str) -> Result<Self> {
        let shape = of_operation(called, broadcast_shape(a.shape(), b.shape()))?;
        let results = of_operation(called, Layout::contiguous(&shape[..]))?;
        let pair = Pair::of(a, b, results.len());
        let [a, b] = [a, b].map(|layout| of_operation(called, layout.broadcast(&shape)));
        let walk = StridedIndex::new(&shape, [a?.strides(), b?.strides()]);
        Ok(Self { pair, walk, results })
    }
}

/// Runs the kernel for the layouts of two tensors on their pairs of elements.
fn pairs<A, B, U>(
    a: A,
    b: B,
    kernels: PairKernels<A::Element, U>,
    called: &'static str,
) -> impl DeviceOp<Output = Tensor<U>>
where
    A: TensorInput,
    B: TensorInput<Element = A::Element>,
    U: DType,
{
    defer(move || {
        let Plan { pair, walk, results } = Plan::of(a.layout(), b.layout(), called)?;
        let kernel = kernels.load(pair);
        Ok(allocate(results).then(move |y: Tensor<U>| {
            kernel.then(move |kernel| {
                // SAFETY: the plan is that of the layouts of a and b, and y has the layout of the results.
                unsafe { launch_pairs((a, b), y, &kernel, kernels, (pair, walk)) }
            })
        }))
    })
}

/// Writes the results for all pairs of elements of a and b to y.
///
/// # Safety
/// `kernel` is that of `kernels` for `pair`. `pair` and `walk` are those of a [`Plan`] of the layouts of a and b, and y
/// is contiguous, with the number of elements of that plan's results.
unsafe fn launch_pairs<A, B, U>(
    (a, b): (A, B),
    y: Tensor<U>,
    kernel: &Function,
    kernels: PairKernels<A::Element, U>,
    (pair, walk): (Pair, ByValue<StridedIndex<2>>),
) -> impl IntoDeviceOp<Output = Tensor<U>> + Send + use<A, B, U>
where
    A: TensorInput,
    B: TensorInput<Element = A::Element>,
    U: DType,
{
    let (n, config) = (y.len() as u64, kernels.config(y.len()));
    let (a, b, y, function) = (Read(a), Read(b), Written(y), kernels.function);
    // SAFETY: reads a and b at the offsets of their layouts, or the only element of one, which are inside their memory,
    // and writes y below n. `kernels` states their types.
    unsafe {
        match pair {
            Pair::Dense => {
                let args = (a, b, y, n, function);
                Either::Left(Either::Left(launch(kernel, config, args)))
            }
            Pair::Strided => {
                let config = walk.0.config::<A::Element>(kernels.strided_packs);
                let args = (a, b, y, walk, function);
                Either::Left(Either::Right(launch(kernel, config, args)))
            }
            Pair::NumberLast => {
                let (swapped, scalar) = in_memory::<A::Element>(false);
                let args = (a, b, y, n, function, swapped, scalar);
                Either::Right(Either::Left(launch(kernel, config, args)))
            }
            Pair::NumberFirst => {
                let (swapped, scalar) = in_memory::<A::Element>(true);
                let args = (b, a, y, n, function, swapped, scalar);
                Either::Right(Either::Right(launch(kernel, config, args)))
            }
        }
    }
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
        let (target, shape) = (into.layout(), into.layout().shape());
        let (len, is_dense) = (target.len(), target.is_contiguous());
        // Never `NumberFirst`: a target of one element is contiguous.
        let pair = Pair::of(target, other.layout(), len);
        let operand = of_operation(called, other.layout().broadcast(shape))?;
        if target.has_overlap() {
            return Err(broadcast_target(called));
        }
        let walk = StridedIndex::new(shape, [target.strides(), operand.strides()]);
        let results = Layout::contiguous(shape)?;
        let kernels = PairKernels::<O::Element, _>::of_binary(operation);
        Ok(kernels.load(pair).then(move |kernel| {
            let (n, function) = (len as u64, kernels.function);
            let config = kernels.config(len);
            let strided = walk.0.config::<O::Element>(kernels.strided_packs);
            // SAFETY: a kernel reads both tensors at the offsets of their layouts, which are inside their memory. It
            // writes the first one, each thread the elements that it has read, or all elements of `results`.
            unsafe {
                match pair {
                    Pair::Dense => {
                        let args = (InPlace(into, other), n, function);
                        Either::Left(Either::Left(launch(&kernel, config, args)))
                    }
                    Pair::NumberLast | Pair::NumberFirst => {
                        let (swapped, scalar) = in_memory::<O::Element>(false);
                        let args = (InPlace(into, other), n, function, swapped, scalar);
                        Either::Left(Either::Right(launch(&kernel, config, args)))
                    }
                    Pair::Strided if is_dense => {
                        let args = (InPlace(into, other), walk, function);
                        Either::Right(Either::Left(launch(&kernel, strided, args)))
                    }
                    // The kernel writes its results without gaps.
                    Pair::Strided => Either::Right(Either::Right(allocate(results).then(
                        move |results: Tensor<O::Element>| {
                            let args =
                                (Returned(into), Read(other), Written(results), walk, function);
                            launch(&kernel, strided, args)
                                .then(|(into, results): (O, Tensor<_>)| copy(results, into))
                        },
                    ))),
                }
            }
        }))
    })
}
