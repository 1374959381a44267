//! Tensors in loops: as the state of a loop, and as the source of a scalar, such as the loop's condition, on the
//! device.

use cuda_async::{
    DeviceOp,
    graph::{LoopState, Position},
    kernel::launch,
    memory::DeviceScalar,
};

use crate::{
    argument::{Read, element_config},
    element::{DType, Number, kernel},
    forms::{IntoTensor, TensorInput},
    operations::transfer::check_one,
    shape::of_operation,
    tensor::Tensor,
};

/// The element types of tensors that set a [`DeviceScalar<T>`](DeviceScalar): `T` itself, and `bool`, which gives 0 or
/// 1.
#[diagnostic::on_unimplemented(
    message = "a tensor of `{Self}` cannot set a `DeviceScalar<{T}>`",
    note = "a tensor of `{T}` or of `bool` can: compare its elements, as in `x.compare_scalar(0.5, Comparison::Gt)`, or convert them with `cast`"
)]
pub trait ScalarValue<T: Number>: DType {}

impl<T: Number> ScalarValue<T> for T {}
impl<T: Number> ScalarValue<T> for bool {}

/// Methods of [`DeviceScalar`] that take tensors.
pub trait ScalarExt<T: Number> {
    /// Sets the value to the only element of a tensor, after all earlier uses and before all later ones. The value
    /// stays on the device, so this can be recorded. A tensor of `bool` sets 0 or 1: a comparison sets the condition of
    /// [`repeat_while`](cuda_async::graph::repeat_while).
    ///
    /// ```
    /// use cuda_async::{graph::DeviceScalar, prelude::*};
    /// use cuda_tensor::{Comparison, ScalarExt, Tensor, TensorOps};
    /// let go = DeviceScalar::new(0u32).sync()?;
    /// let x = Tensor::from_host(vec![0.5f32, -3.0], 2);
    /// go.set_from(x.abs().max().compare_scalar(1.0, Comparison::Gt)).sync()?;
    /// assert_eq!(go.read().sync()?, 1);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`](cuda_async::Error::Shape) if the tensor does not have exactly one element;
    /// [`Error::WrongDevice`](cuda_async::Error::WrongDevice) on another device; or an error of the device.
    fn set_from<I>(&self, value: I) -> impl DeviceOp<Output = ()> + use<Self, T, I>
    where
        I: IntoTensor<Element: ScalarValue<T>>;
}

impl<T: Number> ScalarExt<T> for DeviceScalar<T> {
    fn set_from<I>(&self, value: I) -> impl DeviceOp<Output = ()> + use<T, I>
    where
        I: IntoTensor<Element: ScalarValue<T>>,
    {
        let scalar = self.writable();
        value.into_tensor().then(move |value| {
            of_operation("set_from", check_one(value.layout()))?;
            let name = format!("cast_{}", <I::Element as DType>::NAME);
            Ok(kernel::<T>(T::cast(), name).then(move |cast| {
                // SAFETY: reads and writes one element. Launches that use the scalar are ordered.
                unsafe { launch(&cast, element_config(1), (Read(value), scalar, 1u64)) }.map(drop)
            }))
        })
    }
}

/// Returns the position of a tensor: of its first element, with its shape and strides.
fn position<I: TensorInput>(tensor: &I) -> Position {
    let layout = tensor.layout();
    // The constructors of tensors exclude a layout that exceeds its buffer.
    let slice = tensor.memory().unwrap_or(tensor.whole());
    Position::of_view(slice, layout.shape(), layout.strides())
}

macro_rules! tensors {
    ($($tensor:ty;)*) => {$(
        impl<T: DType, B> LoopState for $tensor
        where
            Self: TensorInput,
        {
            fn positions(&self, each: &mut dyn FnMut(Position)) {
                each(position(self));
            }
        }
    )*};
}

tensors! {
    Tensor<T, B>;
    &mut Tensor<T, B>;
}
