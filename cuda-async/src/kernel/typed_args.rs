//! Typed kernel arguments, for the code that [`kernels!`](crate::kernels) generates.

use std::marker::PhantomData;

use cuda_core::{Access, Arguments, DeviceBuffer, Element, SharedSlice, Slice, SliceMut};

use crate::{
    kernel::arguments::{
        BufferTuple, KernelArg, KernelArgs, KernelBuffer, KernelParam, Returned, buffer_forms,
        given_back, push_aligned,
    },
    memory::{DeviceScalar, ScalarMut},
};

/// An argument for a kernel's `&[T]`: `DeviceBuffer<T>`, `Arc<DeviceBuffer<T>>`, `&DeviceBuffer<T>`, a slice, a
/// [`DeviceScalar<T>`](crate::memory::DeviceScalar), or a contiguous `Tensor<T>` of `cuda-tensor` in one of these
/// forms.
///
/// The kernel reads it. Kernels on several streams may read it at the same time.
///
/// # Safety
/// [`push_read`](Self::push_read) adds one argument: the address of [`elements`](KernelBuffer::elements) elements of
/// `T`, for reading. A kernel whose declaration is safe reads up to that many.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a buffer that a kernel can read as `&[{T}]`",
    label = "not a buffer of `{T}`",
    note = "a `&[T]` is given as `DeviceBuffer<T>`, `Arc<DeviceBuffer<T>>`, `&DeviceBuffer<T>`, a slice, or a tensor in one of these forms"
)]
pub unsafe trait KernelInput<T: Element>: KernelArg + KernelBuffer {
    /// Adds the buffer to the arguments of a launch, for reading.
    #[inline]
    fn push_read<'a>(&'a self, arguments: &mut Arguments<'a>) {
        self.push(arguments);
    }
}

/// An argument for a kernel's `&mut [T]`: `DeviceBuffer<T>`, `&mut DeviceBuffer<T>`, `SliceMut<T>`,
/// [`scalar.writable()`](crate::memory::DeviceScalar::writable), a contiguous `Tensor<T>` of `cuda-tensor` in one of
/// these forms, or a `Partition` of one.
///
/// # Safety
/// [`push`](KernelArg::push) adds one argument: the address of [`elements`](KernelBuffer::elements) elements of `T`,
/// for writing. No other argument has the same memory, unless it is a variable or a scalar, which the launch checks.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a buffer that a kernel can write as `&mut [{T}]`",
    label = "not an exclusive buffer of `{T}`",
    note = "a `&mut [T]` is given as `DeviceBuffer<T>`, `&mut DeviceBuffer<T>`, `SliceMut<T>`, `scalar.writable()`, or a tensor in one of these forms"
)]
pub unsafe trait KernelOutput<T: Element>: KernelArg + KernelBuffer {}

// SAFETY: pushes its own memory of `T`, of which it states the length.
unsafe impl<T: Element> KernelInput<T> for &DeviceBuffer<T> {}
// SAFETY: pushes its own memory of `T`, of which it states the length.
unsafe impl<T: Element> KernelInput<T> for DeviceBuffer<T> {
    #[inline]
    fn push_read<'a>(&'a self, arguments: &mut Arguments<'a>) {
        arguments.buffer(self, Access::Read);
    }
}

// SAFETY: pushes its own memory of `T`, of which it states the length. Only variables and scalars have other handles.
unsafe impl<T: Element> KernelOutput<T> for DeviceBuffer<T> {}
// SAFETY: pushes its own memory of `T`, of which it states the length. Only variables and scalars have other handles.
unsafe impl<T: Element> KernelOutput<T> for &mut DeviceBuffer<T> {}

// SAFETY: pushes the memory of its slice of `T`, of which it states the length.
unsafe impl<T: Element> KernelInput<T> for Slice<'_, T> {}
// SAFETY: pushes the memory of its slice of `T`, of which it states the length.
unsafe impl<T: Element> KernelInput<T> for SharedSlice<T> {}
// SAFETY: pushes the memory of its slice of `T`, of which it states the length.
unsafe impl<T: Element> KernelInput<T> for SliceMut<'_, T> {
    #[inline]
    fn push_read<'a>(&'a self, arguments: &mut Arguments<'a>) {
        arguments.slice(self.as_slice());
    }
}

// SAFETY: pushes its own memory of `T`, of which it states the length. Only variables and scalars have other handles.
unsafe impl<T: Element> KernelOutput<T> for SliceMut<'_, T> {}

// All handles of a scalar are the same memory. The launch refuses to write it if it gets it twice.
buffer_forms! {
    [T: Send + Sync] DeviceScalar<T>: |_this| 1;
    [T: Send + Sync] &DeviceScalar<T>: |_this| 1;
    [T: Send + Sync] ScalarMut<T>: |_this| 1;
}
// SAFETY: pushes its own memory of `T`, of one element.
unsafe impl<T: Element> KernelInput<T> for DeviceScalar<T> {}
// SAFETY: pushes its own memory of `T`, of one element.
unsafe impl<T: Element> KernelInput<T> for &DeviceScalar<T> {}

// SAFETY: pushes its own memory of `T`, of one element. It is a scalar.
unsafe impl<T: Element> KernelOutput<T> for ScalarMut<T> {}

/// A buffer that the kernel only reads, even if the launch owns it. The launch gives back the buffer itself.
#[derive(Debug)]
pub struct Reads<T, B> {
    buffer: B,
    element: PhantomData<fn() -> T>,
}

impl<T: Element, B: KernelInput<T>> Reads<T, B> {
    /// Wraps a buffer that the kernel only reads.
    pub const fn new(buffer: B) -> Self {
        Self { buffer, element: PhantomData }
    }
}

impl<T: Element, B: KernelInput<T>> KernelArg for Reads<T, B> {
    type GivenBack<Rest: BufferTuple> = Rest::Prepend<B>;

    #[inline]
    fn push<'a>(&'a self, arguments: &mut Arguments<'a>) {
        self.buffer.push_read(arguments);
    }

    #[inline]
    fn give_back<Rest: BufferTuple>(self, rest: Rest) -> Rest::Prepend<B> {
        rest.prepend(self.buffer)
    }
}

/// Wraps a buffer that the kernel writes. The launch gives it back.
pub const fn writes<T: Element, B: KernelOutput<T>>(buffer: B) -> Returned<B> {
    Returned(buffer)
}

/// A value for a kernel parameter with an alignment of `ALIGN` bytes. The alignment of `T` may differ.
#[derive(Debug, Clone, Copy)]
pub struct Aligned<const ALIGN: usize, T>(pub T);

/// Wraps a value for a parameter with an alignment of `ALIGN` bytes.
#[inline]
pub const fn aligned<const ALIGN: usize, T: KernelParam>(value: T) -> Aligned<ALIGN, T> {
    Aligned(value)
}

impl<const ALIGN: usize, T: KernelParam> KernelArg for Aligned<ALIGN, T> {
    given_back!(value);

    #[inline]
    fn push<'a>(&'a self, arguments: &mut Arguments<'a>) {
        push_aligned(&self.0, ALIGN, arguments);
    }
}

/// A value for a kernel parameter whose alignment depends on the kernel that a type selects.
#[derive(Debug, Clone, Copy)]
pub struct AlignedAt<T> {
    value: T,
    align: usize,
}

/// Wraps a value for a parameter with an alignment of `align` bytes.
#[inline]
pub const fn aligned_at<T: KernelParam>(value: T, align: usize) -> AlignedAt<T> {
    AlignedAt { value, align }
}

impl<T: KernelParam> KernelArg for AlignedAt<T> {
    given_back!(value);

    #[inline]
    fn push<'a>(&'a self, arguments: &mut Arguments<'a>) {
        push_aligned(&self.value, self.align, arguments);
    }
}

/// A tuple of arguments that counts as one argument. A tuple of groups holds more than sixteen arguments.
#[derive(Debug, Clone, Copy)]
pub struct Group<A>(pub A);

impl<A: KernelArgs> KernelArg for Group<A> {
    type GivenBack<Rest: BufferTuple> = A::GivenBack<Rest>;

    #[inline]
    fn push<'a>(&'a self, arguments: &mut Arguments<'a>) {
        self.0.push_all(arguments);
    }

    #[inline]
    fn give_back<Rest: BufferTuple>(self, rest: Rest) -> A::GivenBack<Rest> {
        self.0.give_back(rest)
    }
}
