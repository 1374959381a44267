//! Device memory that operations write to.

use cuda_core::{DeviceBuffer, Element, SliceMut};

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
