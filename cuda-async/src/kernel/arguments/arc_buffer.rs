//! `ArcBuffer`: shared buffers as arguments of kernels.

use std::sync::Arc;

use cuda_core::{Access, Arguments, DeviceBuffer, Element};

use super::{
    argument::{KernelArg, given_back},
    buffer_form::{Buffer, KernelBuffer},
    typed_args::KernelInput,
};
use crate::{
    kernel::arguments::argument::BufferTuple,
    op::{LazyArg, Ready},
};

/// A buffer of which an `Arc` is an argument of kernels. They read it.
///
/// # Safety
/// [`push_read`](Self::push_read) adds one argument: the address of [`elements`](Self::elements) elements of
/// [`Stored`](Self::Stored), for reading.
pub unsafe trait ArcBuffer: Send + Sync {
    /// The elements that a kernel reads.
    type Stored: Element;

    /// Adds the buffer to the arguments of a launch, for reading.
    fn push_read<'a>(&'a self, arguments: &mut Arguments<'a>);

    /// Returns the number of elements.
    fn elements(&self) -> usize;

    /// Returns the size of a dimension, or `None` if there is no such dimension.
    fn size(&self, dimension: usize) -> Option<usize>;
}

// SAFETY: pushes its own memory of `T`, of which it states the length.
unsafe impl<T: Element> ArcBuffer for DeviceBuffer<T> {
    type Stored = T;

    #[inline]
    fn push_read<'a>(&'a self, arguments: &mut Arguments<'a>) {
        arguments.buffer(self, Access::Read);
    }

    #[inline]
    fn elements(&self) -> usize {
        self.len()
    }

    #[inline]
    fn size(&self, dimension: usize) -> Option<usize> {
        (dimension == 0).then(|| self.len())
    }
}

#[diagnostic::do_not_recommend]
impl<B: ArcBuffer> KernelArg for Arc<B> {
    given_back!(buffer);

    #[inline]
    fn push<'a>(&'a self, arguments: &mut Arguments<'a>) {
        B::push_read(self, arguments);
    }
}

// SAFETY: states the elements of its buffer, and is no output.
unsafe impl<B: ArcBuffer> Buffer for Arc<B> {}

#[diagnostic::do_not_recommend]
impl<B: ArcBuffer> LazyArg for Arc<B> {
    type Ready = Self;
    type Steps = Ready<Self>;

    #[inline(always)]
    fn into_arg_steps(self) -> Ready<Self> {
        Ready::new(self)
    }
}

#[diagnostic::do_not_recommend]
impl<B: ArcBuffer> LazyArg for &Arc<B> {
    type Ready = Self;
    type Steps = Ready<Self>;

    #[inline(always)]
    fn into_arg_steps(self) -> Ready<Self> {
        Ready::new(self)
    }
}

#[diagnostic::do_not_recommend]
impl<B: ArcBuffer> KernelBuffer for Arc<B> {
    #[inline]
    fn elements(&self) -> usize {
        B::elements(self)
    }

    #[inline]
    fn size(&self, dimension: usize) -> Option<usize> {
        B::size(self, dimension)
    }
}

// SAFETY: `push_read` of an `ArcBuffer` adds one argument: the address of `elements` elements of `Stored`, for reading.
#[diagnostic::do_not_recommend]
unsafe impl<B: ArcBuffer> KernelInput<B::Stored> for Arc<B> {}
