//! Tensors from and to the arrays of `ndarray`.

use std::sync::Arc;

use cuda_async::{DeviceOp, memory::HostSource};
use cuda_core::{Element, Error, Result};
use ndarray::{Array, ArrayD, ArrayView, ArrayViewD, Dimension, IxDyn};

use crate::{element::Number, forms::TensorInput, operations::transfer, tensor::Tensor};

/// An array that [`Tensor::from_ndarray`] takes: `Array`, `&Array` or `ArrayView`. Needs the feature `ndarray`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an array that a tensor can be made from",
    note = "`Array`, `&Array` and `ArrayView` of numbers are; other arrays have `array.view()`"
)]
pub trait HostArray: HostSource {
    /// Returns a view of the whole array.
    fn as_view(&self) -> ArrayViewD<'_, Self::Element>;
}

impl<T: Element, D: Dimension + 'static> HostArray for Array<T, D> {
    fn as_view(&self) -> ArrayViewD<'_, T> {
        self.view().into_dyn()
    }
}

impl<T: Element, D: Dimension> HostArray for &Array<T, D> {
    fn as_view(&self) -> ArrayViewD<'_, T> {
        self.view().into_dyn()
    }
}

impl<T: Element, D: Dimension> HostArray for ArrayView<'_, T, D> {
    fn as_view(&self) -> ArrayViewD<'_, T> {
        self.view().into_dyn()
    }
}

/// An array in row-major order.
enum Rows<A: HostArray> {
    Original(A),
    Copied(ArrayD<A::Element>),
}

impl<A: HostArray> Rows<A> {
    fn of(array: A) -> Self {
        let view = array.as_view();
        match view.is_standard_layout() {
            true => Self::Original(array),
            false => Self::Copied(view.as_standard_layout().into_owned()),
        }
    }
}

impl<A: HostArray> HostSource for Rows<A> {
    type Element = A::Element;

    fn elements(&self) -> Result<&[A::Element]> {
        match self {
            Self::Original(array) => array.elements(),
            Self::Copied(array) => array.elements(),
        }
    }

    fn into_shared(self) -> Result<Arc<dyn HostSource<Element = A::Element> + Sync>, Self> {
        match self {
            Self::Original(array) => array.into_shared().map_err(Self::Original),
            // `ArrayD` has an inherent method `into_shared`.
            Self::Copied(array) => HostSource::into_shared(array).map_err(Self::Copied),
        }
    }
}

impl<T: Number> Tensor<T> {
    /// Uploads an array of `ndarray`, or a view of one, in row-major order. Needs the feature `ndarray`. An array in
    /// another order is first copied to row-major order on the host.
    ///
    /// ```
    /// use cuda_async::prelude::*;
    /// use cuda_tensor::{Tensor, TensorOps};
    /// use ndarray::array;
    /// let matrix = array![[1.0f32, 2.0], [3.0, 4.0]];
    /// let doubled = Tensor::from_ndarray(&matrix).mul_scalar(2.0).to_ndarray().sync()?;
    /// assert_eq!(doubled, array![[2.0, 4.0], [6.0, 8.0]].into_dyn());
    /// let column = Tensor::from_ndarray(matrix.column(0));
    /// assert_eq!(column.to_ndarray().sync()?, array![1.0, 3.0].into_dyn());
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`from_host`](Tensor::from_host).
    pub fn from_ndarray<A: HostArray<Element = T>>(array: A) -> impl DeviceOp<Output = Self> {
        let shape = array.as_view().shape().to_vec();
        Self::from_host(Rows::of(array), shape)
    }
}

/// Downloads a tensor into an array of the same shape.
pub(crate) fn to_ndarray<I: TensorInput>(x: I) -> impl DeviceOp<Output = ArrayD<I::Element>> {
    let shape = IxDyn(x.layout().shape());
    transfer::to_host_vec(x).try_map(move |elements: Vec<I::Element>| {
        let array = ArrayD::from_shape_vec(shape, elements);
        array.map_err(|error| Error::other(error.to_string()))
    })
}

#[cfg(test)]
mod tests {
    use cuda_async::prelude::*;
    use ndarray::{Array2, arr0, array, s};

    use crate::{Tensor, TensorOps};

    #[test]
    fn arrays_of_every_order_and_rank() {
        let device = cuda_async::open_blocking("cpu").unwrap();
        let stream = device.new_stream().unwrap();
        let matrix = array![[1i32, 2, 3], [4, 5, 6]];
        let columns = matrix.clone().reversed_axes();
        let x = Tensor::from_ndarray(columns.clone()).sync_on(&stream).unwrap();
        assert_eq!(x.shape(), [3, 2]);
        let borrowed = Tensor::from_ndarray(&columns).to_ndarray().sync_on(&stream).unwrap();
        assert_eq!(borrowed, columns.clone().into_dyn());
        let view = matrix.slice(s![.., ..;-2]);
        let backwards = Tensor::from_ndarray(view).to_ndarray().sync_on(&stream).unwrap();
        assert_eq!(backwards, array![[3, 1], [6, 4]].into_dyn());
        let back = x.transpose(0, 1).unwrap().to_ndarray().sync_on(&stream).unwrap();
        assert_eq!(back, matrix.into_dyn());
        let one = Tensor::from_ndarray(arr0(7.5f64)).to_ndarray().sync_on(&stream).unwrap();
        assert_eq!(one, arr0(7.5).into_dyn());
        let empty = Tensor::from_ndarray(Array2::<u8>::zeros((0, 4)));
        assert_eq!(empty.to_ndarray().sync_on(&stream).unwrap().shape(), [0, 4]);
    }
}
