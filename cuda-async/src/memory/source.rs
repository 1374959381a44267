//! `HostSource` and `BufferTarget`: host data that can be uploaded, and device memory that operations write to.

use std::sync::Arc;

use cuda_core::{DeviceBuffer, Element, PinnedBuffer, Result, SliceMut};

/// Host data that can be uploaded: vectors, slices, arrays, `Arc`s of them, and pinned buffers. A pinned buffer is not
/// copied on the host. With the feature `bytes` also `Bytes`, and with the feature `ndarray` also the arrays and views
/// of `ndarray`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be uploaded",
    note = "vectors, slices, arrays and `Arc`s of numbers can, and of structs that derive `bytemuck::Pod`; turn `bool` into `u8`",
    note = "`bytes::Bytes` needs the feature `bytes` of `cuda-async`, and arrays of `ndarray` the feature `ndarray`"
)]
pub trait HostSource: Send {
    /// The element type.
    type Element: Element;

    /// Returns all elements, in the order in which they are uploaded.
    ///
    /// # Errors
    /// [`Misuse::NotRowMajor`](cuda_core::Misuse::NotRowMajor) if they do not lie in one piece of memory.
    fn elements(&self) -> Result<&[Self::Element]>;

    /// Moves the data into an `Arc` that another thread can read during the upload. Large uploads in async code are
    /// then copied by a helper thread.
    ///
    /// # Errors
    /// Returns the data itself if it is only borrowed.
    fn into_shared(self) -> Result<Arc<dyn HostSource<Element = Self::Element> + Sync>, Self>
    where
        Self: Sized,
    {
        Err(self)
    }

    /// Returns the data as a pinned buffer, if it is one. The buffer has as many elements as
    /// [`elements`](Self::elements).
    ///
    /// # Errors
    /// Returns the data itself if it is not pinned.
    fn into_pinned(self) -> Result<PinnedBuffer<Self::Element>, Self>
    where
        Self: Sized,
    {
        Err(self)
    }
}

macro_rules! slices {
    ($([$($generics:tt)*] $source:ty $(, $owned:ident)?;)*) => {$(
        impl<$($generics)*> HostSource for $source {
            type Element = T;

            fn elements(&self) -> Result<&[T]> {
                Ok(&self[..])
            }

            $(slices! { @$owned })?
        }
    )*};
    (@owned) => {
        fn into_shared(self) -> Result<Arc<dyn HostSource<Element = T> + Sync>, Self> {
            Ok(Arc::new(self))
        }
    };
}

slices! {
    [T: Element] Vec<T>, owned;
    [T: Element] Box<[T]>, owned;
    [T: Element] Arc<[T]>, owned;
    [T: Element] Arc<Vec<T>>, owned;
    [T: Element] &[T];
    [T: Element] &Vec<T>;
    [T: Element, const N: usize] [T; N], owned;
    [T: Element, const N: usize] &[T; N];
}

impl<T: Element> HostSource for PinnedBuffer<T> {
    type Element = T;

    fn elements(&self) -> Result<&[T]> {
        Ok(self)
    }

    fn into_pinned(self) -> Result<PinnedBuffer<T>, Self> {
        Ok(self)
    }
}

#[cfg(feature = "bytes")]
impl HostSource for bytes::Bytes {
    type Element = u8;

    fn elements(&self) -> Result<&[u8]> {
        Ok(self)
    }

    fn into_shared(self) -> Result<Arc<dyn HostSource<Element = u8> + Sync>, Self> {
        Ok(Arc::new(self))
    }
}

#[cfg(feature = "ndarray")]
mod arrays {
    use ndarray::{Array, ArrayBase, ArrayView, Data, Dimension};

    use super::*;

    /// The elements of an array in row-major order.
    fn rows<T, S, D>(array: &ArrayBase<S, D>) -> Result<&[T]>
    where
        S: Data<Elem = T>,
        D: Dimension,
    {
        let unordered = || cuda_core::Misuse::NotRowMajor { object: "an array".into() };
        array.as_slice().ok_or_else(|| unordered().into())
    }

    impl<T: Element, D: Dimension + 'static> HostSource for Array<T, D> {
        type Element = T;

        fn elements(&self) -> Result<&[T]> {
            rows(self)
        }

        fn into_shared(self) -> Result<Arc<dyn HostSource<Element = T> + Sync>, Self> {
            Ok(Arc::new(self))
        }
    }

    impl<T: Element, D: Dimension> HostSource for &Array<T, D> {
        type Element = T;

        fn elements(&self) -> Result<&[T]> {
            rows(self)
        }
    }

    impl<T: Element, D: Dimension> HostSource for ArrayView<'_, T, D> {
        type Element = T;

        fn elements(&self) -> Result<&[T]> {
            rows(self)
        }
    }

    #[cfg(test)]
    mod tests {
        use ndarray::array;

        use crate::prelude::*;

        #[test]
        fn arrays_are_uploaded_by_rows() {
            let matrix = array![[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]];
            assert_eq!(h2d(&matrix).then(to_host).sync().unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
            let row = matrix.row(1);
            assert_eq!(h2d(row).then(to_host).sync().unwrap(), [4.0, 5.0, 6.0]);
            let error = h2d(matrix.t()).then(to_host).sync().unwrap_err();
            assert!(error.to_string().contains("as_standard_layout"), "{error}");
            let columns = matrix.t().as_standard_layout().to_owned();
            assert_eq!(h2d(columns).then(to_host).sync().unwrap(), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
        }
    }
}

/// Device memory that can be written: a buffer, an exclusive borrow of one, a mutable slice, or
/// [`scalar.writable()`](crate::memory::DeviceScalar::writable).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not device memory to write",
    note = "`DeviceBuffer<T>`, `&mut DeviceBuffer<T>`, `SliceMut<T>` and `scalar.writable()` are"
)]
pub trait BufferTarget: Send {
    /// The element type.
    type Element: Element;

    /// Returns a mutable slice of all elements.
    fn as_slice_mut(&mut self) -> SliceMut<'_, Self::Element>;
}

impl<T: Element> BufferTarget for DeviceBuffer<T> {
    type Element = T;

    fn as_slice_mut(&mut self) -> SliceMut<'_, T> {
        DeviceBuffer::as_slice_mut(self)
    }
}

impl<T: Element> BufferTarget for &mut DeviceBuffer<T> {
    type Element = T;

    fn as_slice_mut(&mut self) -> SliceMut<'_, T> {
        (**self).as_slice_mut()
    }
}

impl<T: Element> BufferTarget for SliceMut<'_, T> {
    type Element = T;

    fn as_slice_mut(&mut self) -> SliceMut<'_, T> {
        self.reborrow()
    }
}

#[cfg(all(test, feature = "bytes"))]
mod tests {
    use crate::prelude::*;

    #[test]
    fn bytes_are_uploaded() {
        let bytes = bytes::Bytes::from_static(b"frame");
        assert_eq!(h2d(bytes.slice(1..)).then(to_host).sync().unwrap(), b"rame");
    }
}
