//! `KernelBuffer`: the forms in which a launcher takes and gives back a buffer.

use cuda_core::{DeviceBuffer, SharedSlice, Slice, SliceMut};

use crate::op::LazyArg;

/// A type that is a form of a buffer.
///
/// # Safety
/// The type states the correct number of its elements, and a value that is a `KernelOutput` is the only handle of its
/// memory. So a safe launch does not get the same memory twice.
pub unsafe trait Buffer {}

/// A form of a buffer that is an argument of a launcher: the buffer itself, a borrow, an `Arc`, a slice or a scalar.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a device buffer",
    note = "a `Vec` or slice goes to the device first, with `h2d(..)`"
)]
pub trait KernelBuffer: Buffer + LazyArg<Ready = Self> {
    /// Returns the number of elements.
    fn elements(&self) -> usize;

    /// Returns the size of a dimension, or `None` if there is no such dimension. A buffer has one dimension.
    fn size(&self, dimension: usize) -> Option<usize> {
        (dimension == 0).then(|| self.elements())
    }

    /// Returns the shape of a tile, and the number of tiles along `x`, `y` and `z`, for a
    /// `Partition` of `cuda-tensor`. `None` for other forms.
    fn tiles(&self) -> Option<(&[usize], [u32; 3])> {
        None
    }
}

/// Implements [`KernelBuffer`] and its supertraits for types.
#[doc(hidden)]
#[macro_export]
macro_rules! buffer_forms {
    ($([$($generics:tt)*] $form:ty: |$this:ident| $elements:expr
        $(, shape $shape:expr)? $(, tiles $tiles:expr)?;)*) => {$(
        // SAFETY: the form has the elements of its buffer, and only exclusive forms are outputs.
        unsafe impl<$($generics)*> $crate::internals::Buffer for $form {}

        impl<$($generics)*> $crate::op::LazyArg for $form {
            type Ready = Self;
            type Steps = $crate::op::Ready<Self>;

            #[inline(always)]
            fn into_arg_steps(self) -> $crate::op::Ready<Self> {
                $crate::op::Ready::new(self)
            }
        }

        impl<$($generics)*> $crate::kernel::KernelBuffer for $form {
            #[inline]
            fn elements(&self) -> usize {
                let $this = self;
                $elements
            }
            $(
                #[inline]
                fn size(&self, dimension: usize) -> Option<usize> {
                    let $this = self;
                    $shape.get(dimension).copied()
                }
            )?
            $(
                fn tiles(&self) -> Option<(&[usize], [u32; 3])> {
                    let $this = self;
                    $tiles
                }
            )?
        }
    )*};
}
pub(crate) use buffer_forms;

buffer_forms! {
    [T: Send + Sync] DeviceBuffer<T>: |this| this.len();
    [T: Send + Sync] &DeviceBuffer<T>: |this| this.len();
    [T: Send + Sync] &mut DeviceBuffer<T>: |this| this.len();
    [T: Send + Sync] Slice<'_, T>: |this| this.len();
    [T: Send + Sync] SharedSlice<T>: |this| this.len();
    [T: Send + Sync] SliceMut<'_, T>: |this| this.len();
}
