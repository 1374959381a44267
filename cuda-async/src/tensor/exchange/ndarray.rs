//! Tensors from and to the arrays of `ndarray`.

use cuda_core::Error;
use ndarray::{Array, ArrayD, Dimension, IxDyn};

use crate::{
    DeviceOp,
    tensor::{
        element::dtype::{DType, Number},
        forms::TensorInput,
        operations::host,
        tensor::Tensor,
    },
};

impl<T: Number> Tensor<T> {
    /// Uploads an array of `ndarray`, in row-major order. Needs the feature `ndarray`. An array in another order is first
    /// copied to row-major order on the host.
    ///
    /// ```
    /// use cuda_async::{prelude::*, tensor::{Tensor, TensorOps}};
    /// use ndarray::array;
    /// let x = Tensor::from_ndarray(array![[1.0f32, 2.0], [3.0, 4.0]]);
    /// let doubled = x.mul_scalar(2.0).to_ndarray().sync()?;
    /// assert_eq!(doubled, array![[2.0, 4.0], [6.0, 8.0]].into_dyn());
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`from_host`](Tensor::from_host).
    pub fn from_ndarray<D: Dimension + 'static>(
        array: Array<T, D>,
    ) -> impl DeviceOp<Output = Self> {
        let shape = array.shape().to_vec();
        let array = match array.is_standard_layout() {
            true => array,
            false => array.as_standard_layout().into_owned(),
        };
        Self::from_host(array, shape)
    }
}

/// Downloads a tensor into an array of the same shape.
pub(crate) fn to_ndarray<I: TensorInput>(x: I) -> impl DeviceOp<Output = ArrayD<I::Element>> {
    let shape = IxDyn(x.layout().shape());
    host::to_host_vec(x).try_map(move |elements: Vec<I::Element>| {
        ArrayD::from_shape_vec(shape, elements).map_err(|error| {
            let what = format!("an array of {}", <I::Element as DType>::NAME);
            Error::OutOfRange { what: what.into(), detail: error.to_string() }
        })
    })
}

#[cfg(all(test, feature = "cpu"))]
mod tests {
    use ndarray::{Array2, arr0, array};

    use crate::{
        prelude::*,
        tensor::{Tensor, TensorOps},
    };

    #[test]
    fn arrays_of_every_order_and_rank() {
        let device = crate::open("cpu").unwrap();
        let stream = device.new_stream().unwrap();
        let matrix = array![[1i32, 2, 3], [4, 5, 6]];
        let columns = matrix.clone().reversed_axes();
        let x = Tensor::from_ndarray(columns.clone()).sync_on(&stream).unwrap();
        assert_eq!(x.shape(), [3, 2]);
        let back = x.transpose(0, 1).unwrap().to_ndarray().sync_on(&stream).unwrap();
        assert_eq!(back, matrix.into_dyn());
        let one = Tensor::from_ndarray(arr0(7.5f64)).to_ndarray().sync_on(&stream).unwrap();
        assert_eq!(one, arr0(7.5).into_dyn());
        let empty = Tensor::from_ndarray(Array2::<u8>::zeros((0, 4)));
        assert_eq!(empty.to_ndarray().sync_on(&stream).unwrap().shape(), [0, 4]);
    }
}
