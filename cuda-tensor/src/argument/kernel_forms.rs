//! Tensors as arguments of a program's own kernels.

use cuda_async::{
    internals::{ArcBuffer, buffer_forms},
    kernel::{BufferTuple, KernelArg, KernelInput, KernelOutput},
    memory::BufferSource,
};
use cuda_core::{Access, Arguments};

use super::{argument::push as push_memory, partition::Partition};
use crate::{
    element::dtype::{DType, Number},
    forms::TensorInput,
    tensor::{SharedTensor, Tensor, TensorView, TensorViewMut},
};

/// Adds the address of the first element. A kernel receives no strides, so a tensor that is not contiguous is refused.
fn push<'a, I: TensorInput>(tensor: &'a I, access: Access, arguments: &mut Arguments<'a>) {
    if !tensor.layout().is_contiguous() {
        arguments.refuse(format!(
            "a tensor of shape {:?} has the strides {:?}, and a kernel needs the elements in row-major order without gaps; copy it first, with `dup()`",
            tensor.layout().shape(),
            tensor.layout().strides()
        ));
    }
    push_memory(tensor, access, arguments);
}

macro_rules! kernel_args {
    ($([$($generics:tt)*] $form:ty: $access:ident;)*) => {$(
        impl<$($generics)*> KernelArg for $form
        where
            Self: TensorInput,
        {
            type GivenBack<Rest: BufferTuple> = Rest::Prepend<Self>;

            fn push<'a>(&'a self, arguments: &mut Arguments<'a>) {
                push(self, Access::$access, arguments);
            }

            fn give_back<Rest: BufferTuple>(self, rest: Rest) -> Rest::Prepend<Self> {
                rest.prepend(self)
            }
        }
    )*};
}

kernel_args! {
    [T: DType] Tensor<T>: Write;
    [T: DType] &mut Tensor<T>: Write;
    [T: DType] TensorViewMut<'_, T>: Write;
    [T: DType] &Tensor<T>: Read;
    [T: DType] TensorView<'_, T>: Read;
    [T: DType] SharedTensor<T>: Read;
    [T: DType] &SharedTensor<T>: Read;
    [O: TensorInput] Partition<O>: Write;
}

buffer_forms! {
    [T: DType, B: BufferSource<Element = T::Stored>] Tensor<T, B>: |this| this.len(), shape this.shape();
    [T: DType, B: BufferSource<Element = T::Stored> + Sync] &Tensor<T, B>: |this| this.len(), shape this.shape();
    [T: DType, B: BufferSource<Element = T::Stored>] &mut Tensor<T, B>: |this| this.len(), shape this.shape();
    [O: TensorInput] Partition<O>: |this| this.layout().len(), shape this.layout().shape(),
        tiles Some((this.tile(), this.grid()));
}

// SAFETY: pushes the elements of the tensor, whose number it states.
unsafe impl<T: DType, B: BufferSource<Element = T::Stored> + Sync> ArcBuffer for Tensor<T, B> {
    type Stored = T::Stored;

    fn push_read<'a>(&'a self, arguments: &mut Arguments<'a>) {
        push(self, Access::Read, arguments);
    }

    fn elements(&self) -> usize {
        self.len()
    }

    fn size(&self, dimension: usize) -> Option<usize> {
        self.shape().get(dimension).copied()
    }
}

macro_rules! outputs {
    ($([$($generics:tt)*] $form:ty, $stored:ty;)*) => {$(
        // SAFETY: pushes the elements of the tensor, whose number it states. It is their only handle: `from_buffer`
        // takes no variable.
        unsafe impl<$($generics)*> KernelOutput<$stored> for $form {}
    )*};
}

/// A kernel receives numbers unchanged, and `bool`s as bytes. Each number type has one tensor type, so the compiler
/// infers the type of a lazy tensor from the declaration of the kernel.
macro_rules! inputs_and_outputs {
    ($([$($generics:tt)*] $ty:ty, $stored:ty;)*) => {$(
        // SAFETY: pushes the elements of the tensor, whose number it states.
        unsafe impl<$($generics)*> KernelInput<$stored> for Tensor<$ty> {
            fn push_read<'a>(&'a self, arguments: &mut Arguments<'a>) {
                push(self, Access::Read, arguments);
            }
        }
        // SAFETY: pushes the elements of the tensor, whose number it states.
        unsafe impl<$($generics)*> KernelInput<$stored> for TensorViewMut<'_, $ty> {
            fn push_read<'a>(&'a self, arguments: &mut Arguments<'a>) {
                push(self, Access::Read, arguments);
            }
        }
        // SAFETY: pushes the elements of the tensor, whose number it states.
        unsafe impl<$($generics)*> KernelInput<$stored> for &Tensor<$ty> {}
        // SAFETY: pushes the elements of the tensor, whose number it states.
        unsafe impl<$($generics)*> KernelInput<$stored> for TensorView<'_, $ty> {}
        // SAFETY: pushes the elements of the tensor, whose number it states.
        unsafe impl<$($generics)*> KernelInput<$stored> for SharedTensor<$ty> {}
        // SAFETY: pushes the elements of the tensor, whose number it states.
        unsafe impl<$($generics)*> KernelInput<$stored> for &SharedTensor<$ty> {}

        outputs! {
            [$($generics)*] Tensor<$ty>, $stored;
            [$($generics)*] &mut Tensor<$ty>, $stored;
            [$($generics)*] TensorViewMut<'_, $ty>, $stored;
            [$($generics)*] Partition<Tensor<$ty>>, $stored;
            [$($generics)*] Partition<&mut Tensor<$ty>>, $stored;
            [$($generics)*] Partition<TensorViewMut<'_, $ty>>, $stored;
        }
    )*};
}

inputs_and_outputs! {
    [T: Number] T, T;
    [] bool, u8;
}
