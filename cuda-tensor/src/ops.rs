//! `TensorOps`: operations on tensors.
//!
//! The methods use [`both`], [`all_three`] and `bind`, and no closures: see [`bind`](cuda_async::ops::bind).

use cuda_async::{
    DeviceOp,
    ops::{Arg, bind, ready_args},
};

use crate::{
    element::{DType, FftFloat, Float, Number, Signed},
    forms::{IntoTensor, TensorOutput},
    operations::{
        arg_reduce::{self, Extremum},
        copy,
        elementwise::{self, Binary, Comparison, FloatUnary, Unary},
        fourier::{self, Direction},
        product::{self, Activation},
        reduce::{self, Reduction},
        softmax, transfer,
    },
    tensor::Tensor,
};

/// Operations on tensors. They take a tensor in any form, or an operation that gives one, and give a new tensor in
/// row-major order. An operation consumes an owned tensor, which is freed in stream order. To keep the tensor, pass
/// `&x`, [`x.view()`](Tensor::view), an `Arc` or a [`SharedTensor`](crate::SharedTensor).
///
/// ```
/// use cuda_async::prelude::*;
/// use cuda_tensor::{Tensor, TensorOps};
///
/// let weights = Tensor::<f32>::ones([3, 4]).sync()?;
/// let x = Tensor::from_host(vec![1.0f32, 2.0, 3.0], [3, 1]);
/// let y = (&weights).mul(x).add_scalar(1.0).sum_dim(0); // one operation, nothing has run yet
/// assert_eq!(y.to_host_vec().sync()?, [9.0; 4]);
/// assert_eq!(weights.shape(), [3, 4]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// Operations on two tensors broadcast them to one shape by the rules of NumPy, as [`Tensor::broadcast`] does.
///
/// The first operation of a family on an element type loads its kernels on a device. A graph and
/// [`async_on`](DeviceOp::async_on) need the kernels loaded before, by [`Tensor::warm_up`] or by a run of the
/// operation.
///
/// # Errors
/// All operations: [`Error::Shape`](cuda_async::Error::Shape) for shapes that cannot be broadcast together,
/// [`Error::OutOfRange`](cuda_async::Error::OutOfRange) for dimensions that do not exist,
/// [`Error::OutOfMemory`](cuda_async::Error::OutOfMemory), or an error of the device.
pub trait TensorOps: IntoTensor + Sized {
    /// Gives the elements in row-major order on the host. Waits, without blocking an executor thread, until they have
    /// arrived.
    fn to_host_vec(self) -> impl DeviceOp<Output = Vec<Self::Element>> {
        self.into_tensor().then(transfer::to_host_vec)
    }

    /// Gives the elements as [`to_host_vec`](TensorOps::to_host_vec) does, in an existing vector. The new elements
    /// replace the old ones. If the capacity of the vector is too small, it gets new memory. If the operation fails,
    /// the vector is dropped.
    fn to_host_vec_into(
        self,
        memory: Vec<Self::Element>,
    ) -> impl DeviceOp<Output = Vec<Self::Element>> {
        self.into_tensor().then(bind(transfer::to_host_vec_into, memory))
    }

    /// Gives the elements as an array of `ndarray` of the same shape. Needs the feature `ndarray`. Waits as
    /// [`to_host_vec`](TensorOps::to_host_vec) does.
    #[cfg(feature = "ndarray")]
    fn to_ndarray(self) -> impl DeviceOp<Output = ndarray::ArrayD<Self::Element>> {
        self.into_tensor().then(crate::exchange::ndarray::to_ndarray)
    }

    /// Gives the elements as a tensor of `candle` of the same shape, on candle's CPU device. Needs the feature
    /// `candle`.
    ///
    /// This copies the elements, and waits as [`to_host_vec`](TensorOps::to_host_vec) does. With the feature
    /// `candle-cuda`, `Tensor::into_candle_cuda` gives a tensor on a GPU without a copy. The operation fails with an
    /// error of candle if candle refuses the tensor.
    #[cfg(feature = "candle")]
    fn to_candle(self) -> impl DeviceOp<Output = candle_core::Tensor>
    where
        Self::Element: candle_core::WithDType,
    {
        self.into_tensor().then(crate::exchange::candle::to_candle)
    }

    /// Gives the only element on the host.
    ///
    /// # Errors
    /// [`Error::Shape`](cuda_async::Error::Shape) if the tensor does not have exactly one element.
    fn item(self) -> impl DeviceOp<Output = Self::Element> {
        self.into_tensor().then(transfer::item)
    }

    /// Copies the tensor into a new one in row-major order.
    fn dup(self) -> impl DeviceOp<Output = Tensor<Self::Element>> {
        self.into_tensor().then(copy::dup)
    }

    /// Copies the elements of `from`, of the same shape, into this tensor and gives this tensor back.
    ///
    /// ```
    /// use cuda_async::prelude::*;
    /// use cuda_tensor::{Tensor, TensorOps};
    /// let mut x = Tensor::<i32>::zeros([2, 3]).sync()?;
    /// // One column of x.
    /// x.view_mut().slice(1, 1..2)?.memcpy(Tensor::ones([2, 1])).sync()?;
    /// assert_eq!(x.to_host_vec().sync()?, [0, 1, 0, 0, 1, 0]);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// Also [`Error::Misuse`](cuda_async::Error::Misuse) if this tensor is broadcast.
    fn memcpy<I>(self, from: I) -> impl DeviceOp<Output = Self::Form>
    where
        Self::Form: TensorOutput,
        I: IntoTensor<Element = Self::Element>,
    {
        both(self, from).then(copy::memcpy)
    }

    /// Converts the elements as Rust's `as` does. Conversions to floats round to the nearest. Conversions of floats to
    /// integers truncate and saturate, and NaN gives 0. Conversions between integers wrap. As `bool`, all but 0 are
    /// `true`.
    fn cast<U: DType>(self) -> impl DeviceOp<Output = Tensor<U>> {
        self.into_tensor().then(copy::cast)
    }

    /// Applies a function of one number to each element.
    fn map1(self, operation: Unary) -> impl DeviceOp<Output = Tensor<Self::Element>>
    where
        Self::Element: Signed,
    {
        self.into_tensor().then(bind(elementwise::map, operation))
    }

    /// Applies a function of one floating-point number to each element.
    fn map_float(self, operation: FloatUnary) -> impl DeviceOp<Output = Tensor<Self::Element>>
    where
        Self::Element: Float,
    {
        self.into_tensor().then(bind(elementwise::map_float, operation))
    }

    /// Applies a function of two numbers to each pair of elements.
    fn map2<I>(self, other: I, operation: Binary) -> impl DeviceOp<Output = Tensor<Self::Element>>
    where
        Self::Element: Number,
        I: IntoTensor<Element = Self::Element>,
    {
        both(self, other).then(bind(elementwise::map2, (operation, "map2")))
    }

    /// Applies a function of two numbers to each pair of elements of this tensor and `other`. Writes the results into
    /// this tensor and gives this tensor back. `other` is broadcast to the shape of this tensor.
    ///
    /// This allocates no memory if this tensor is contiguous. [`memcpy`](TensorOps::memcpy) writes the results of any
    /// operation into an existing tensor.
    ///
    /// ```
    /// use cuda_async::prelude::*;
    /// use cuda_tensor::{Binary, Tensor, TensorOps};
    /// let mut x = Tensor::from_host(vec![1, 2, 3, 4], [2, 2]).sync()?;
    /// x.view_mut().map2_assign(Tensor::full(3, ()), Binary::Max).sync()?;
    /// (&mut x).add_assign(Tensor::from_host(vec![10, 20], 2)).sync()?; // to each row
    /// assert_eq!(x.to_host_vec().sync()?, [13, 23, 13, 24]);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// Also [`Error::Shape`](cuda_async::Error::Shape) if `other` cannot be broadcast to the shape of this tensor, and
    /// [`Error::Misuse`](cuda_async::Error::Misuse) if this tensor is broadcast.
    fn map2_assign<I>(self, other: I, operation: Binary) -> impl DeviceOp<Output = Self::Form>
    where
        Self::Form: TensorOutput,
        Self::Element: Number,
        I: IntoTensor<Element = Self::Element>,
    {
        both(self, other).then(bind(elementwise::map2_assign, (operation, "map2_assign")))
    }

    /// Applies `operation(element, scalar)` to each element.
    fn map_scalar(
        self,
        operation: Binary,
        scalar: Self::Element,
    ) -> impl DeviceOp<Output = Tensor<Self::Element>>
    where
        Self::Element: Number,
    {
        self.into_tensor().then(bind(elementwise::map_scalar, (operation, scalar, false)))
    }

    /// Applies `operation(element, scalar)` to each element, in place, as [`map2_assign`](TensorOps::map2_assign) does
    /// with a tensor: `momentum.view_mut().map_scalar_assign(Binary::Mul, 0.9)`.
    fn map_scalar_assign(
        self,
        operation: Binary,
        scalar: Self::Element,
    ) -> impl DeviceOp<Output = Self::Form>
    where
        Self::Form: TensorOutput,
        Self::Element: Number,
    {
        self.into_tensor().then(bind(elementwise::map_scalar_assign, (operation, scalar)))
    }

    /// Applies `operation(scalar, element)` to each element.
    fn map_scalar_left(
        self,
        operation: Binary,
        scalar: Self::Element,
    ) -> impl DeviceOp<Output = Tensor<Self::Element>>
    where
        Self::Element: Number,
    {
        self.into_tensor().then(bind(elementwise::map_scalar, (operation, scalar, true)))
    }

    binary! {
        fn add, fn add_scalar, fn add_assign: Add, "Adds the elements of another tensor.", "Adds a number to each element.", "Adds the elements of another tensor to those of this tensor, in place; see [`map2_assign`](TensorOps::map2_assign).";
        fn sub, fn sub_scalar, fn sub_assign: Sub, "Subtracts the elements of another tensor.", "Subtracts a number from each element.", "Subtracts the elements of another tensor from those of this tensor, in place; see [`map2_assign`](TensorOps::map2_assign).";
        fn mul, fn mul_scalar, fn mul_assign: Mul, "Multiplies by the elements of another tensor.", "Multiplies each element by a number.", "Multiplies the elements of this tensor by those of another one, in place; see [`map2_assign`](TensorOps::map2_assign).";
        fn div, fn div_scalar, fn div_assign: Div, "Divides by the elements of another tensor; see [`Binary::Div`].", "Divides each element by a number; see [`Binary::Div`].", "Divides the elements of this tensor by those of another one, in place; see [`map2_assign`](TensorOps::map2_assign).";
    }

    /// Gives `low` for each element below `low`, `high` for each element above `high`, and the other elements as they
    /// are. If `low` is greater than `high`, gives `high` for all but NaN. NaN stays NaN. If a limit is NaN, all
    /// results are NaN.
    ///
    /// ```
    /// use cuda_async::prelude::*;
    /// use cuda_tensor::{Tensor, TensorOps};
    /// let x = Tensor::from_host(vec![-7, 12, 300], 3);
    /// assert_eq!(x.clamp(0, 255).to_host_vec().sync()?, [0, 12, 255]);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    fn clamp(
        self,
        low: Self::Element,
        high: Self::Element,
    ) -> impl DeviceOp<Output = Tensor<Self::Element>>
    where
        Self::Element: Number,
    {
        self.into_tensor().then(bind(elementwise::clamp, (low, high)))
    }

    unary! {
        fn neg: Signed, map1, Unary::Neg, "Negates each element.";
        fn abs: Signed, map1, Unary::Abs, "Gives the absolute value of each element.";
        fn relu: Signed, map1, Unary::Relu, "Gives each element, or 0 if it is negative.";
        fn exp: Float, map_float, FloatUnary::Exp, "Gives `e` to the power of each element.";
        fn ln: Float, map_float, FloatUnary::Ln, "Gives the natural logarithm of each element.";
        fn sqrt: Float, map_float, FloatUnary::Sqrt, "Gives the square root of each element.";
        fn tanh: Float, map_float, FloatUnary::Tanh, "Gives the hyperbolic tangent of each element.";
        fn sigmoid: Float, map_float, FloatUnary::Sigmoid, "Gives `1 / (1 + exp(-x))` of each element.";
        fn gelu: Float, map_float, FloatUnary::Gelu, "Gives the GELU of each element; see [`FloatUnary::Gelu`].";
    }

    /// Compares pairs of elements. An element of the result is `true` where the comparison holds.
    ///
    /// ```
    /// use cuda_async::prelude::*;
    /// use cuda_tensor::{Comparison, Tensor, TensorOps};
    /// let x = Tensor::from_host(vec![1.0f32, -2.0, 3.0], 3).sync()?;
    /// let positive = (&x).compare(Tensor::zeros(1), Comparison::Gt);
    /// assert_eq!(positive.select(&x, Tensor::full(9.0, ())).to_host_vec().sync()?, [1.0, 9.0, 3.0]);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    fn compare<I>(self, other: I, comparison: Comparison) -> impl DeviceOp<Output = Tensor<bool>>
    where
        I: IntoTensor<Element = Self::Element>,
    {
        both(self, other).then(bind(elementwise::compare, comparison))
    }

    /// Compares each element with a number, as [`compare`](TensorOps::compare) does with a tensor.
    ///
    /// ```
    /// use cuda_async::prelude::*;
    /// use cuda_tensor::{Comparison, Tensor, TensorOps};
    /// let x = Tensor::from_host(vec![1.0f32, -2.0, 3.0], 3).sync()?;
    /// let positive = (&x).compare_scalar(0.0, Comparison::Gt);
    /// assert_eq!(positive.cast::<u32>().sum().item().sync()?, 2); // how many
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    fn compare_scalar(
        self,
        scalar: Self::Element,
        comparison: Comparison,
    ) -> impl DeviceOp<Output = Tensor<bool>> {
        self.into_tensor().then(bind(elementwise::compare_scalar, (scalar, comparison)))
    }

    /// Takes each element from `a` where this mask is `true`, and from `b` elsewhere.
    fn select<A, B>(self, a: A, b: B) -> impl DeviceOp<Output = Tensor<A::Element>>
    where
        Self: IntoTensor<Element = bool>,
        A: IntoTensor,
        B: IntoTensor<Element = A::Element>,
    {
        all_three(self, a, b).then(elementwise::select)
    }

    /// Gives the sum of all elements as a tensor of shape `()`. Integers wrap; [`cast`](TensorOps::cast) to a larger
    /// type first if the sum may not fit. Sums of f16 and bf16 are computed in f32. The order of the additions depends
    /// only on the shape, so the result is the same on every device.
    fn sum(self) -> impl DeviceOp<Output = Tensor<Self::Element>>
    where
        Self::Element: Number,
    {
        self.into_tensor().then(bind(reduce::reduce_all, Reduction::Sum))
    }

    /// Gives the sums along dimension `dim`, which is removed from the shape. Integers wrap. Sums of f16 and bf16 are
    /// computed in f32. The order of the additions depends only on the shape, as for [`sum`](TensorOps::sum).
    fn sum_dim(self, dim: usize) -> impl DeviceOp<Output = Tensor<Self::Element>>
    where
        Self::Element: Number,
    {
        self.into_tensor().then(bind(reduce::reduce_dim, (Reduction::Sum, dim, "sum_dim")))
    }

    /// Gives the mean of all elements as a tensor of shape `()`: their [`sum`](TensorOps::sum), divided by their
    /// number. Means of f16 and bf16 are computed in f32. The mean of no elements is NaN.
    fn mean(self) -> impl DeviceOp<Output = Tensor<Self::Element>>
    where
        Self::Element: Float,
    {
        self.into_tensor().then(bind(reduce::mean, None))
    }

    /// Gives the means along dimension `dim`, which is removed from the shape. Means of f16 and bf16 are computed in
    /// f32. The mean of no elements is NaN.
    fn mean_dim(self, dim: usize) -> impl DeviceOp<Output = Tensor<Self::Element>>
    where
        Self::Element: Float,
    {
        self.into_tensor().then(bind(reduce::mean, Some(dim)))
    }

    /// Gives the product of all elements as a tensor of shape `()`. Integers wrap. Products of f16 and bf16 are
    /// computed in f32.
    fn product(self) -> impl DeviceOp<Output = Tensor<Self::Element>>
    where
        Self::Element: Number,
    {
        self.into_tensor().then(bind(reduce::reduce_all, Reduction::Product))
    }

    /// Gives the products along dimension `dim`, which is removed from the shape. Integers wrap. Products of f16 and
    /// bf16 are computed in f32.
    fn product_dim(self, dim: usize) -> impl DeviceOp<Output = Tensor<Self::Element>>
    where
        Self::Element: Number,
    {
        self.into_tensor().then(bind(reduce::reduce_dim, (Reduction::Product, dim, "product_dim")))
    }

    /// Gives the largest element as a tensor of shape `()`. NaN counts as larger than all numbers. For `bool`, the
    /// result is whether any element is `true`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](cuda_async::Error::OutOfRange) if there are no elements.
    fn max(self) -> impl DeviceOp<Output = Tensor<Self::Element>> {
        self.into_tensor().then(bind(reduce::reduce_all, Reduction::Max))
    }

    /// Gives the largest elements along dimension `dim`, which is removed from the shape. NaN counts as larger than all
    /// numbers.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](cuda_async::Error::OutOfRange) if the dimension is empty.
    fn max_dim(self, dim: usize) -> impl DeviceOp<Output = Tensor<Self::Element>> {
        self.into_tensor().then(bind(reduce::reduce_dim, (Reduction::Max, dim, "max_dim")))
    }

    /// Gives the smallest element as a tensor of shape `()`. NaN counts as smaller than all numbers. For `bool`, the
    /// result is whether all elements are `true`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](cuda_async::Error::OutOfRange) if there are no elements.
    fn min(self) -> impl DeviceOp<Output = Tensor<Self::Element>> {
        self.into_tensor().then(bind(reduce::reduce_all, Reduction::Min))
    }

    /// Gives the smallest elements along dimension `dim`, which is removed from the shape. NaN counts as smaller than
    /// all numbers.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](cuda_async::Error::OutOfRange) if the dimension is empty.
    fn min_dim(self, dim: usize) -> impl DeviceOp<Output = Tensor<Self::Element>> {
        self.into_tensor().then(bind(reduce::reduce_dim, (Reduction::Min, dim, "min_dim")))
    }

    /// Gives the index of the largest element along dimension `dim`, which is removed from the shape. Of equal
    /// elements, the first one counts. NaN counts as larger than all numbers.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](cuda_async::Error::OutOfRange) if the dimension is empty.
    fn argmax(self, dim: usize) -> impl DeviceOp<Output = Tensor<u64>> {
        self.into_tensor().then(bind(arg_reduce::arg_reduce, (Extremum::Max, dim)))
    }

    /// Gives the index of the smallest element along dimension `dim`, which is removed from the shape. Of equal
    /// elements, the first one counts. NaN counts as smaller than all numbers.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](cuda_async::Error::OutOfRange) if the dimension is empty.
    fn argmin(self, dim: usize) -> impl DeviceOp<Output = Tensor<u64>> {
        self.into_tensor().then(bind(arg_reduce::arg_reduce, (Extremum::Min, dim)))
    }

    /// Gives the matrix product of this tensor, of shape `[.., m, k]`, and another one of shape `[.., k, n]`. The
    /// dimensions before the last two are broadcast. Products of f16 and bf16 are computed in f32.
    ///
    /// With the feature `cudarc`, a GPU of this process uses cuBLAS where it is installed. Otherwise kernels of this
    /// crate compute the product. They add in the order of `k`, with fused multiply-adds, and give the same bits on
    /// every device.
    ///
    /// ```
    /// use cuda_async::prelude::*;
    /// use cuda_tensor::{Tensor, TensorOps};
    /// let a = Tensor::from_host(vec![1.0f32, 2.0, 3.0, 4.0], [2, 2]).sync()?;
    /// let swap = Tensor::from_host(vec![0.0, 1.0, 1.0, 0.0], [2, 2]);
    /// assert_eq!((&a).matmul(swap).to_host_vec().sync()?, [2.0, 1.0, 4.0, 3.0]);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// Also [`Error::Shape`](cuda_async::Error::Shape) if a tensor has fewer than two dimensions or the two sizes `k`
    /// differ.
    fn matmul<I>(self, other: I) -> impl DeviceOp<Output = Tensor<Self::Element>>
    where
        Self::Element: Float,
        I: IntoTensor<Element = Self::Element>,
    {
        both(self, other).then(product::matmul)
    }

    /// Gives `activation(x w + bias)`, a layer of a neural network: the [`matmul`](TensorOps::matmul) of this tensor
    /// and `weights` of shape `[.., k, n]`, plus a bias of shape `[n]` in each row. The weights of PyTorch's `Linear`
    /// have the shape `[n, k]`: transpose them. With the feature `cudarc`, a GPU of this process computes it in one
    /// pass with cuBLASLt, where it is installed, except for GELU of f64.
    ///
    /// ```
    /// use cuda_async::prelude::*;
    /// use cuda_tensor::{Activation, Tensor, TensorOps};
    /// let x = Tensor::from_host(vec![1.0f32, 2.0], [1, 2]);
    /// let weights = Tensor::from_host(vec![1.0, -1.0, 1.0, -1.0], [2, 2]);
    /// let bias = Tensor::from_host(vec![0.5, 0.5], 2);
    /// let y = x.linear(weights, bias, Activation::Relu);
    /// assert_eq!(y.to_host_vec().sync()?, [3.5, 0.0]);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`matmul`](TensorOps::matmul), and [`Error::Shape`](cuda_async::Error::Shape) for another shape of
    /// the bias.
    fn linear<W, B>(
        self,
        weights: W,
        bias: B,
        activation: Activation,
    ) -> impl DeviceOp<Output = Tensor<Self::Element>>
    where
        Self::Element: Float,
        W: IntoTensor<Element = Self::Element>,
        B: IntoTensor<Element = Self::Element>,
    {
        all_three(self, weights, bias).then(bind(product::linear, activation))
    }

    /// Gives the discrete Fourier transforms of complex numbers. The tensor has the shape `[.., n, 2]`: the last
    /// dimension holds the real and the imaginary part of each number, and each row of `n` numbers is transformed.
    /// Element `k` of the result is the sum of `x[j] * exp(-2 pi i j k / n)` over `j`.
    ///
    /// With the feature `cudarc`, a GPU of this process uses cuFFT where it is installed. Otherwise a kernel of this
    /// crate runs once for each factor of `n`: 4, 2 and the odd primes. The time for each number is proportional to the
    /// sum of the factors.
    ///
    /// ```
    /// use cuda_async::prelude::*;
    /// use cuda_tensor::{Tensor, TensorOps};
    /// let x = Tensor::from_host(vec![1.0f32, 0.0, 2.0, 0.0], [2, 2]); // 1 and 2
    /// assert_eq!(x.fft().to_host_vec().sync()?, [3.0, 0.0, -1.0, 0.0]);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// Also [`Error::Shape`](cuda_async::Error::Shape) for another shape. cuFFT prepares each shape when it is first
    /// transformed. Inside a graph and in [`async_on`](DeviceOp::async_on) the operation cannot wait for that: run it
    /// once before, or it returns [`Error::NotLoaded`](cuda_async::Error::NotLoaded).
    fn fft(self) -> impl DeviceOp<Output = Tensor<Self::Element>>
    where
        Self::Element: FftFloat,
    {
        self.into_tensor().then(bind(fourier::fft, Direction::Forward))
    }

    /// Gives the inverse of [`fft`](TensorOps::fft): the sums with `exp(2 pi i j k / n)`, divided by `n`.
    fn ifft(self) -> impl DeviceOp<Output = Tensor<Self::Element>>
    where
        Self::Element: FftFloat,
    {
        self.into_tensor().then(bind(fourier::fft, Direction::Inverse))
    }

    /// Gives the softmax along dimension `dim`: `exp(x)`, divided by the sum of `exp(x)`. The largest element is
    /// subtracted first, so no exponential overflows.
    ///
    /// ```
    /// use cuda_async::prelude::*;
    /// use cuda_tensor::{Tensor, TensorOps};
    /// let x = Tensor::from_host(vec![0.0f32, 0.0], [1, 2]);
    /// assert_eq!(x.softmax(1).to_host_vec().sync()?, [0.5, 0.5]);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    fn softmax(self, dim: usize) -> impl DeviceOp<Output = Tensor<Self::Element>>
    where
        Self::Element: Float,
    {
        self.into_tensor().then(bind(softmax::softmax, dim))
    }
}

impl<X: IntoTensor> TensorOps for X {}

/// Operations on two numbers: on two tensors, in place, and on a tensor and a scalar.
macro_rules! binary {
    ($(fn $name:ident, fn $scalar:ident, fn $assign:ident: $operation:ident, $doc:literal, $of_scalar:literal, $in_place:literal;)*) => {$(
        #[doc = $doc]
        fn $name<I>(self, other: I) -> impl DeviceOp<Output = Tensor<Self::Element>>
        where
            Self::Element: Number,
            I: IntoTensor<Element = Self::Element>,
        {
            let parameters = (Binary::$operation, stringify!($name));
            both(self, other).then(bind(elementwise::map2, parameters))
        }

        #[doc = $in_place]
        fn $assign<I>(self, other: I) -> impl DeviceOp<Output = Self::Form>
        where
            Self::Form: TensorOutput,
            Self::Element: Number,
            I: IntoTensor<Element = Self::Element>,
        {
            let parameters = (Binary::$operation, stringify!($assign));
            both(self, other).then(bind(elementwise::map2_assign, parameters))
        }

        #[doc = $of_scalar]
        fn $scalar(self, scalar: Self::Element) -> impl DeviceOp<Output = Tensor<Self::Element>>
        where
            Self::Element: Number,
        {
            self.map_scalar(Binary::$operation, scalar)
        }
    )*};
}

/// Operations on one number.
macro_rules! unary {
    ($(fn $name:ident: $bound:ident, $map:ident, $function:ident::$operation:ident, $doc:literal;)*) => {$(
        #[doc = $doc]
        fn $name(self) -> impl DeviceOp<Output = Tensor<Self::Element>>
        where
            Self::Element: $bound,
        {
            self.$map($function::$operation)
        }
    )*};
}

use {binary, unary};

/// Returns an operation that gives two tensors. If they are operations, they run in this order, on one stream.
fn both<A: IntoTensor, B: IntoTensor>(a: A, b: B) -> impl DeviceOp<Output = (A::Form, B::Form)> {
    ready_args((Arg(a.into_tensor()), Arg(b.into_tensor())))
}

/// Returns an operation that gives three tensors, as [`both`].
fn all_three<A: IntoTensor, B: IntoTensor, C: IntoTensor>(
    a: A,
    b: B,
    c: C,
) -> impl DeviceOp<Output = (A::Form, (B::Form, C::Form))> {
    ready_args((Arg(a.into_tensor()), (Arg(b.into_tensor()), Arg(c.into_tensor()))))
}
