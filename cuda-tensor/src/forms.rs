//! `TensorInput`, `TensorOutput`, `IntoTensor`: the forms in which operations take tensors.

use std::sync::Arc;

use cuda_async::{
    memory::BufferSource,
    op::{LazyArg, Op, Submit},
};
use cuda_core::{Result, Slice};

use crate::{
    element::DType,
    shape::{Dims, Layout},
    tensor::{Tensor, TensorViewMut},
};

pub(super) use sealed::Sealed;

mod sealed {
    /// A sealed trait: with a foreign implementation, a launch could write the memory of another tensor.
    pub trait Sealed {}
}

/// A tensor that operations read: a [`Tensor`] of any kind, a borrow or an `Arc` of one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tensor",
    note = "pass a `Tensor<T>`, `&Tensor<T>`, `Arc<Tensor<T>>`, `TensorView<T>`, `SharedTensor<T>`, or an operation that gives one of them",
    note = "make a tensor from a buffer with `Tensor::from_buffer(buffer, shape)`"
)]
pub trait TensorInput: Send + sealed::Sealed {
    /// The element type.
    type Element: DType;

    /// Returns the offsets of the elements in their buffer.
    fn layout(&self) -> &Layout;

    /// Returns the whole buffer.
    fn whole(&self) -> Slice<'_, <Self::Element as DType>::Stored>;

    /// Returns the memory from the first to the last element.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](cuda_async::Error::OutOfRange) if the layout exceeds the buffer, which the constructors of
    /// tensors exclude.
    fn memory(&self) -> Result<Slice<'_, <Self::Element as DType>::Stored>> {
        self.whole().slice(self.layout().span())
    }
}

/// A tensor that operations write: an owned or exclusively borrowed one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tensor that can be written",
    note = "`Tensor<T>`, `&mut Tensor<T>` and `TensorViewMut<T>` can; a shared tensor cannot"
)]
pub trait TensorOutput: TensorInput {}

impl<T: DType, B> sealed::Sealed for Tensor<T, B> {}
impl<T: DType, B> sealed::Sealed for &Tensor<T, B> {}
impl<T: DType, B> sealed::Sealed for &mut Tensor<T, B> {}
impl<T: DType, B> sealed::Sealed for Arc<Tensor<T, B>> {}
impl<T: DType, B> sealed::Sealed for &Arc<Tensor<T, B>> {}

impl<T: DType, B: BufferSource<Element = T::Stored>> TensorInput for Tensor<T, B> {
    type Element = T;

    fn layout(&self) -> &Layout {
        Tensor::layout(self)
    }

    fn whole(&self) -> Slice<'_, T::Stored> {
        self.buffer().as_slice()
    }
}

// One implementation for each form, so that the compiler's message about another form names the tensor, not its buffer.
impl<T: DType> TensorOutput for Tensor<T> {}
impl<T: DType> TensorOutput for TensorViewMut<'_, T> {}
impl<T: DType> TensorOutput for &mut Tensor<T> {}
impl<T: DType> TensorOutput for &mut TensorViewMut<'_, T> {}

macro_rules! borrowed {
    ($($tensor:ty;)*) => {$(
        impl<T: DType, B: BufferSource<Element = T::Stored>> TensorInput for $tensor
        where
            Self: Send,
        {
            type Element = T;

            fn layout(&self) -> &Layout {
                Tensor::layout(self)
            }

            fn whole(&self) -> Slice<'_, T::Stored> {
                Tensor::buffer(self).as_slice()
            }
        }
    )*};
}

borrowed! {
    &Tensor<T, B>;
    &mut Tensor<T, B>;
    Arc<Tensor<T, B>>;
    &Arc<Tensor<T, B>>;
}

/// A tensor with another layout of the same memory.
pub(super) struct WithLayout<I> {
    tensor: I,
    layout: Layout,
}

impl<I: TensorInput> WithLayout<I> {
    /// Moves dimension `dim` to the end.
    pub(super) fn move_dim_to_end(tensor: I, dim: usize) -> Result<Self> {
        let rank = tensor.layout().shape().len();
        let order: Dims = (0..rank).filter(|other| *other != dim).chain([dim]).collect();
        let layout = tensor.layout().permute(&order)?;
        Ok(Self { tensor, layout })
    }

    /// Broadcasts the tensor to a larger shape.
    pub(super) fn broadcast(tensor: I, shape: &[usize]) -> Result<Self> {
        let layout = tensor.layout().broadcast(shape)?;
        Ok(Self { tensor, layout })
    }
}

impl<I> Sealed for WithLayout<I> {}

impl<I: TensorInput> TensorInput for WithLayout<I> {
    type Element = I::Element;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn whole(&self) -> Slice<'_, <I::Element as DType>::Stored> {
        self.tensor.whole()
    }
}

/// A tensor, or an operation that gives one. Operations on tensors take both, in any mixture.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither a tensor nor an operation that gives one",
    note = "pass a `Tensor<T>`, `&Tensor<T>`, `Arc<Tensor<T>>`, `TensorView<T>`, `SharedTensor<T>`, or an operation that gives one of them",
    note = "make a tensor from a buffer with `Tensor::from_buffer(buffer, shape)`, from a `Vec` with `Tensor::from_host(vec, shape)`",
    note = "for one number, call the method that ends in `_scalar`, such as `add_scalar`, or pass `Tensor::full(x, ())`"
)]
pub trait IntoTensor: Send {
    /// The element type.
    type Element: DType;
    /// The form of the tensor.
    type Form: TensorInput<Element = Self::Element>;
    /// The steps of the operation.
    type Steps: Submit<Output = Self::Form>;

    /// Converts into an operation that gives the tensor.
    fn into_tensor(self) -> Op<Self::Steps>;
}

#[diagnostic::do_not_recommend]
impl<A: LazyArg<Ready: TensorInput>> IntoTensor for A {
    type Element = <A::Ready as TensorInput>::Element;
    type Form = A::Ready;
    type Steps = <A as LazyArg>::Steps;

    fn into_tensor(self) -> Op<Self::Steps> {
        Op::new(self.into_arg_steps())
    }
}
