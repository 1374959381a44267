//! New tensors: `zeros`, `ones`, `full`, `arange`, `from_host`.

use std::ops::Range;

use cuda_async::{
    DeviceOp, defer, in_order,
    internals::module_loaded_by,
    kernel::{ByValue, launch},
    memory::{HostSource, h2d, uninitialized, zeros},
};
use cuda_core::Error;

use crate::{
    argument::{Written, element_config},
    element::{DType, Number, kernel},
    error::TensorError,
    shape::{IntoShape, Layout},
    tensor::Tensor,
};

impl<T: DType> Tensor<T> {
    /// Loads the kernels of all operations on tensors of this type, and opens the installed libraries for its products.
    /// Otherwise an operation loads the kernels of its family when it first runs on a device. Inside a graph and in
    /// [`async_on`](DeviceOp::async_on) it cannot wait for them, and returns [`Error::NotLoaded`].
    ///
    /// ```
    /// use cuda_async::prelude::*;
    /// use cuda_tensor::{Tensor, TensorOps};
    /// let device = cuda_async::open_blocking("cpu")?;
    /// let stream = device.new_stream()?;
    /// Tensor::<f32>::warm_up().sync_on(&stream)?;
    /// let graph = Tensor::<f32>::ones([2, 3]).sum_dim(0).graph_on(&stream)?;
    /// assert_eq!(graph.launch().then(|x| x.to_host_vec()).sync_on(&stream)?, [2.0; 3]);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`Device::load_ptx_blocking`](cuda_async::Device::load_ptx_blocking).
    pub fn warm_up() -> impl DeviceOp<Output = ()> {
        defer(|| in_order(T::all().into_iter().map(|cache| module_loaded_by(cache, T::WARM_UP))))
            .then(|_| {
                #[cfg(feature = "cudarc")]
                return open_libraries::<T>();
                #[cfg(not(feature = "cudarc"))]
                cuda_async::value(())
            })
    }

    /// Creates a tensor of zeros, or of `false`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for too many dimensions, [`Error::Shape`] for too many elements, [`Error::OutOfMemory`],
    /// or an error of the device.
    pub fn zeros(shape: impl IntoShape) -> impl DeviceOp<Output = Self> {
        defer(move || {
            let layout = Layout::contiguous(shape)?;
            Ok(zeros(layout.len()).map(|buffer| Tensor::of(buffer, layout)))
        })
    }

    /// Creates a tensor with unspecified values, for a kernel that writes all of them.
    ///
    /// # Errors
    /// The errors of [`zeros`](Tensor::zeros).
    pub fn uninitialized(shape: impl IntoShape) -> impl DeviceOp<Output = Self> {
        defer(move || Ok(allocate(Layout::contiguous(shape)?)))
    }

    /// Creates a tensor with `value` in every element.
    ///
    /// ```
    /// use cuda_async::prelude::*;
    /// use cuda_tensor::{Tensor, TensorOps};
    /// assert_eq!(Tensor::full(2.5f64, [2, 2]).to_host_vec().sync()?, [2.5; 4]);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`zeros`](Tensor::zeros).
    pub fn full(value: T, shape: impl IntoShape) -> impl DeviceOp<Output = Self> {
        Self::uninitialized(shape).then(move |x| {
            kernel::<T>(T::map(), "fill").then(move |fill| {
                let n = x.len();
                let args = (Written(x), n as u64, ByValue(value.store()));
                // SAFETY: `fill(y, n, value)` writes y, all below n.
                unsafe { launch(&fill, element_config(n), args) }
            })
        })
    }
}

/// Opens the libraries for products of this type, where they are installed.
#[cfg(feature = "cudarc")]
fn open_libraries<T: DType>() -> impl DeviceOp<Output = ()> {
    use cuda_async::ops::Either;

    use crate::libraries::{
        cublas::{CUBLAS, Scalar},
        cublaslt::CUBLASLT,
        is_enabled,
    };
    defer(|| {
        let has_products = is_enabled() && Scalar::named(T::NAME).is_some();
        Ok(if has_products {
            let opened = CUBLAS.of(|gpu| gpu).then(|_| CUBLASLT.of(|gpu| gpu));
            Either::Left(opened.map(drop))
        } else {
            Either::Right(cuda_async::value(()))
        })
    })
}

impl Tensor<bool> {
    /// Uploads the elements of a tensor of `bool` in row-major order.
    ///
    /// # Errors
    /// The errors of [`from_host`](Tensor::from_host).
    pub fn from_bools(
        elements: impl AsRef<[bool]> + Send,
        shape: impl IntoShape,
    ) -> impl DeviceOp<Output = Self> {
        defer(move || {
            let bytes: Vec<u8> =
                elements.as_ref().iter().map(|element| u8::from(*element)).collect();
            let layout = Layout::contiguous(shape)?;
            layout.check_len(bytes.len())?;
            Ok(h2d(bytes).map(|buffer| Tensor::of(buffer, layout)))
        })
    }
}

impl<T: Number> Tensor<T> {
    /// Uploads the elements of a tensor in row-major order. [`from_bools`](Tensor::from_bools) takes `bool`s.
    ///
    /// ```
    /// use cuda_async::prelude::*;
    /// use cuda_tensor::{Tensor, TensorOps};
    /// let x = Tensor::from_host(vec![1, 2, 3, 4], [2, 2]);
    /// assert_eq!(x.sum().item().sync()?, 10);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if the shape has another number of elements, [`Error::OutOfMemory`], or an error of the
    /// device.
    pub fn from_host<S>(elements: S, shape: impl IntoShape) -> impl DeviceOp<Output = Self>
    where
        S: HostSource<Element = T>,
    {
        defer(move || {
            let layout = Layout::contiguous(shape)?;
            layout.check_len(elements.elements()?.len())?;
            // The source is foreign code. It may give another length when it is uploaded.
            Ok(h2d(elements).try_map(move |buffer| {
                layout.check_len(buffer.len())?;
                Ok(Tensor::of(buffer, layout))
            }))
        })
    }

    /// Creates a tensor of ones.
    ///
    /// # Errors
    /// The errors of [`zeros`](Tensor::zeros).
    pub fn ones(shape: impl IntoShape) -> impl DeviceOp<Output = Self> {
        Self::full(T::ONE, shape)
    }

    /// Creates a tensor of `len` elements: `start`, `start + step`, .. Element `i` is computed as `start + i * step`.
    /// Integers wrap.
    ///
    /// ```
    /// use cuda_async::prelude::*;
    /// use cuda_tensor::{Tensor, TensorOps};
    /// assert_eq!(Tensor::arange_by(0.0f32, 0.5, 4).to_host_vec().sync()?, [0.0, 0.5, 1.0, 1.5]);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`zeros`](Tensor::zeros).
    pub fn arange_by(start: T, step: T, len: usize) -> impl DeviceOp<Output = Self> {
        Self::uninitialized(len).then(move |x| {
            kernel::<T>(T::map(), "arange").then(move |arange| {
                let args = (Written(x), len as u64, ByValue(start), ByValue(step));
                // SAFETY: `arange(y, n, start, step)` writes y, all below n.
                unsafe { launch(&arange, element_config(len), args) }
            })
        })
    }
}

macro_rules! ranges {
    ($($ty:ident)*) => {$(
        impl Tensor<$ty> {
            /// Creates a tensor of the numbers in a range, from its start in steps of 1. The end is excluded.
            ///
            /// # Errors
            /// The errors of [`zeros`](Tensor::zeros), and [`TensorError::Unbounded`] for a range with NaN or without a
            /// bound.
            pub fn arange(range: Range<$ty>) -> impl DeviceOp<Output = Self> {
                let len = (range.end as f64 - range.start as f64).ceil();
                defer(move || {
                    if !len.is_finite() {
                        return Err(no_range(&range));
                    }
                    // The kernel rounds each element, so the last ones may have reached the end. The elements never
                    // decrease.
                    let is_inside = |at: usize| (range.start + at as $ty) < range.end;
                    let len = partition_point(len.max(0.0) as usize, is_inside);
                    Ok(Self::arange_by(range.start, 1 as $ty, len))
                })
            }
        }
    )*};
}

ranges!(f32 f64);

/// Returns the first number below `limit` for which `is_before` is false, or `limit`. `is_before` is true up to there.
fn partition_point(limit: usize, is_before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, limit);
    while low < high {
        let middle = low + (high - low) / 2;
        if is_before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

fn no_range(range: &impl std::fmt::Debug) -> Error {
    TensorError::Unbounded { range: format!("{range:?}") }.into()
}

macro_rules! integer_ranges {
    ($($ty:ident)*) => {$(
        impl Tensor<$ty> {
            /// Creates a tensor of the numbers in a range.
            ///
            /// # Errors
            /// The errors of [`zeros`](Tensor::zeros).
            pub fn arange(range: Range<$ty>) -> impl DeviceOp<Output = Self> {
                let len = (range.end as i128 - range.start as i128).max(0);
                // A length that does not fit `usize` is an error, as `usize::MAX` elements are.
                Self::arange_by(range.start, 1, usize::try_from(len).unwrap_or(usize::MAX))
            }
        }
    )*};
}

integer_ranges!(i8 u8 i16 u16 i32 u32 i64 u64);

/// Allocates a tensor with unspecified values.
pub(crate) fn allocate<T: DType>(layout: Layout) -> impl DeviceOp<Output = Tensor<T>> {
    uninitialized(layout.len()).map(|buffer| Tensor::of(buffer, layout))
}
