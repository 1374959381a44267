//! Conversions between tensors and those of `candle`, by a copy through the host.

use cuda_async::{DeviceOp, defer};
use cuda_core::{Error, Result};

use crate::{
    element::Number, error::TensorError, forms::TensorInput, operations::transfer, tensor::Tensor,
};

impl<T: Number + candle_core::WithDType> Tensor<T> {
    /// Uploads a tensor of `candle`, in row-major order. Needs the feature `candle`.
    ///
    /// This copies the elements from candle's device into a vector on the host, and then to the device of the
    /// operation. With the feature `candle-cuda`, `SharedTensor::from_candle_cuda` takes a tensor on a GPU without a
    /// copy.
    ///
    /// ```
    /// use cuda_async::prelude::*;
    /// use cuda_tensor::{Tensor, TensorOps};
    /// let theirs = candle_core::Tensor::new(&[[1.0f32, 2.0], [3.0, 4.0]], &candle_core::Device::Cpu)?;
    /// let x = Tensor::<f32>::from_candle(theirs.t()?);
    /// let doubled = x.mul_scalar(2.0).to_candle().sync()?;
    /// assert_eq!(doubled.to_vec2::<f32>()?, [[2.0, 6.0], [4.0, 8.0]]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`TensorError::ElementType`], [`Error::OutOfRange`] if there are too many dimensions, the error of candle,
    /// or an error of [`from_host`](Tensor::from_host).
    pub fn from_candle(tensor: candle_core::Tensor) -> impl DeviceOp<Output = Self> {
        defer(move || {
            check_elements::<T>(&tensor)?;
            let shape = tensor.dims().to_vec();
            let flat = tensor.flatten_all().and_then(|flat| flat.to_vec1::<T>());
            flat.map(|elements| Self::from_host(elements, shape)).map_err(Error::other)
        })
    }
}

/// Checks that the elements are of type `T`.
///
/// # Errors
/// [`TensorError::ElementType`] if they are of another type.
pub(crate) fn check_elements<T: Number + candle_core::WithDType>(
    tensor: &candle_core::Tensor,
) -> Result<()> {
    if tensor.dtype() == T::DTYPE {
        return Ok(());
    }
    let (given, expected) = (tensor.dtype().as_str().to_owned(), T::NAME);
    Err(TensorError::ElementType { object: "a tensor of candle", given, expected }.into())
}

/// Downloads a tensor into a tensor of candle on its CPU device.
pub(crate) fn to_candle<I>(x: I) -> impl DeviceOp<Output = candle_core::Tensor>
where
    I: TensorInput<Element: candle_core::WithDType>,
{
    let shape = x.layout().shape().to_vec();
    transfer::to_host_vec(x).try_map(move |elements: Vec<I::Element>| {
        let device = candle_core::Device::Cpu;
        candle_core::Tensor::from_vec(elements, shape, &device).map_err(Error::other)
    })
}

#[cfg(test)]
mod tests {
    use candle_core::{Device, Tensor as Theirs, WithDType};
    use cuda_async::prelude::*;
    use proptest::prelude::*;

    use crate::{Number, Tensor, TensorOps, bf16, f16};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(50))]

        #[test]
        fn tensors_of_any_shape_and_order_convert_in_both_directions(
            shape in prop::collection::vec(0..4usize, 0..4),
            swap in (0..4usize, 0..4usize),
        ) {
            let stream = cuda_async::open_blocking("cpu").unwrap().new_stream().unwrap();
            let len = shape.iter().product::<usize>();
            let elements: Vec<i64> = (0..len as i64).collect();
            let theirs = Theirs::from_vec(elements.clone(), &shape[..], &Device::Cpu).unwrap();
            let ours = Tensor::from_host(elements, shape).sync_on(&stream).unwrap();
            let (theirs, ours) = match theirs.transpose(swap.0, swap.1) {
                Ok(transposed) => (transposed, ours.transpose(swap.0, swap.1).unwrap()),
                Err(_) => (theirs, ours),
            };
            let taken = Tensor::<i64>::from_candle(theirs.clone()).sync_on(&stream).unwrap();
            prop_assert_eq!(taken.shape(), theirs.dims());
            let given = ours.to_candle().sync_on(&stream).unwrap();
            prop_assert_eq!(given.dims(), theirs.dims());
            let expected = theirs.flatten_all().unwrap().to_vec1::<i64>().unwrap();
            prop_assert_eq!(given.flatten_all().unwrap().to_vec1::<i64>().unwrap(), &expected[..]);
            prop_assert_eq!(taken.to_host_vec().sync_on(&stream).unwrap(), expected);
        }
    }

    fn round_trip<T: Number + WithDType>(values: [T; 2]) -> cuda_async::Result<()> {
        let stream = cuda_async::open_blocking("cpu")?.new_stream()?;
        let theirs = Tensor::from_host(values, 2).to_candle().sync_on(&stream)?;
        assert_eq!(theirs.dtype(), T::DTYPE);
        let back = Tensor::<T>::from_candle(theirs).to_host_vec().sync_on(&stream)?;
        assert_eq!(back, values);
        Ok(())
    }

    #[test]
    fn element_types_of_both_libraries_convert() {
        round_trip([1u8, 2]).unwrap();
        round_trip([1i16, -2]).unwrap();
        round_trip([1i32, -2]).unwrap();
        round_trip([1u32, 2]).unwrap();
        round_trip([1i64, -2]).unwrap();
        round_trip([f16::ONE, f16::MAX]).unwrap();
        round_trip([bf16::ONE, bf16::MAX]).unwrap();
        round_trip([1.5f32, -2.5]).unwrap();
        round_trip([1.5f64, -2.5]).unwrap();
    }

    #[test]
    fn other_element_type_is_an_error() {
        let theirs = Theirs::new(&[1.0f32, 2.0], &Device::Cpu).unwrap();
        let error = Tensor::<f64>::from_candle(theirs).sync().unwrap_err();
        let message = "a tensor of candle: its elements are f32, not f64; convert it first, in its own framework, or import it with its own type and use `cast`";
        assert_eq!(error.to_string(), message);
    }
}
