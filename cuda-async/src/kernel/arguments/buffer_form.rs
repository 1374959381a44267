//! `KernelBuffer`: the forms in which a launcher takes and gives back a buffer.

use std::sync::Arc;

use cuda_core::{DeviceBuffer, SharedSlice, Slice, SliceMut};

use crate::op::LazyArg;

pub(crate) mod sealed {
    /// A sealed trait, so that no foreign type passes the memory of one `KernelOutput` twice, or states a wrong number
    /// of elements.
    pub trait Buffer {}
}

/// A form of a buffer that is an argument of a launcher: the buffer itself, a borrow, an `Arc`, a slice or a scalar.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a device buffer",
    note = "a `Vec` or slice goes to the device first, with `h2d(..)`"
)]
pub trait KernelBuffer: sealed::Buffer + LazyArg<Ready = Self> {
    /// Returns the number of elements.
    fn elements(&self) -> usize;

    /// Returns the size of a dimension, or `None` if there is no such dimension. A buffer has one dimension.
    fn size(&self, dimension: usize) -> Option<usize> {
        (dimension == 0).then(|| self.elements())
    }

    /// Returns the shape of a tile, and the number of tiles along `x`, `y` and `z`, for a
    /// [`Partition`](crate::tensor::Partition). `None` for other forms.
    fn tiles(&self) -> Option<(&[usize], [u32; 3])> {
        None
    }
}

/// Implements [`KernelBuffer`] and its supertraits for types.
macro_rules! buffer_forms {
    ($([$($generics:tt)*] $form:ty: |$this:ident| $elements:expr
        $(, shape $shape:expr)? $(, tiles $tiles:expr)?;)*) => {$(
        impl<$($generics)*> $crate::kernel::arguments::buffer_form::sealed::Buffer for $form {}

        impl<$($generics)*> $crate::op::LazyArg for $form {
            type Ready = Self;
            type Steps = $crate::op::Given<Self>;

            #[inline(always)]
            fn into_arg_steps(self) -> $crate::op::Given<Self> {
                $crate::op::Given::new(self)
            }
        }

        impl<$($generics)*> $crate::kernel::arguments::buffer_form::KernelBuffer for $form {
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
    [T: Send + Sync] Arc<DeviceBuffer<T>>: |this| this.len();
    [T: Send + Sync] &DeviceBuffer<T>: |this| this.len();
    [T: Send + Sync] &mut DeviceBuffer<T>: |this| this.len();
    [T: Send + Sync] Slice<'_, T>: |this| this.len();
    [T: Send + Sync] SharedSlice<T>: |this| this.len();
    [T: Send + Sync] SliceMut<'_, T>: |this| this.len();
}
