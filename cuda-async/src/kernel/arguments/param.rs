//! `KernelParam`: values that a kernel receives, and the derive for structs.

use cuda_core::{Arguments, Element};

/// A value that a kernel receives by value: a number, an array of numbers, or a struct.
///
/// Every [`Element`] is one, so a struct that derives `bytemuck::Pod` is one too. `Pod` checks at compile time that the
/// struct is `#[repr(C)]`, has no padding, and that each field is `Pod`. It refuses structs with padding, because
/// padding is uninitialized memory.
///
/// The derive of `KernelParam` also takes structs with padding, and passes zeros as the padding:
///
/// ```
/// use cuda_async::{kernel::KernelParam, prelude::*};
///
/// /// `struct Step { unsigned char axis; double width; unsigned short count; };`
/// #[derive(Clone, Copy, KernelParam)]
/// #[repr(C)]
/// struct Step {
///     axis: u8, // 7 bytes of padding follow
///     width: f64,
///     count: u16, // 6 bytes of padding follow
/// }
///
/// let step = Step { axis: 1, width: 0.5, count: 2 };
/// step.with_bytes(|bytes| {
///     assert_eq!(bytes.len(), 24);
///     assert_eq!(bytes[..8], [1, 0, 0, 0, 0, 0, 0, 0]);
/// });
/// ```
///
/// The struct is then an argument of [`launch`](crate::launch()) as it is, without [`ByValue`](crate::kernel::ByValue),
/// and an argument of a kernel in [`kernels!`](crate::kernels), which compares its size with the PTX.
///
/// The derive checks at compile time that the struct is `#[repr(C)]` or `#[repr(transparent)]`, has no type parameters,
/// and that each field is a `KernelParam`. A struct cannot derive both `Pod` and `KernelParam`: derive `Pod` if it is
/// also an element of buffers.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be passed to a kernel by value",
    label = "not a kernel parameter",
    note = "numbers and arrays of them can; a struct derives `cuda_async::kernel::KernelParam` or `bytemuck::Pod`; write `u8` for `bool` in a struct"
)]
pub trait KernelParam: Copy + Send + Sync {
    /// Calls `pass` with the bytes of the value. Padding is zero. A launch is refused if the number of bytes is not
    /// that of the kernel's parameter.
    fn with_bytes<R>(&self, pass: impl FnOnce(&[u8]) -> R) -> R;
}

impl<T: Element> KernelParam for T {
    #[inline(always)] // the size is then known where the bytes are copied
    fn with_bytes<R>(&self, pass: impl FnOnce(&[u8]) -> R) -> R {
        pass(bytemuck::bytes_of(self))
    }
}

#[cfg(feature = "macros")]
pub use cuda_async_macros::KernelParam;

/// Writes a field of a struct into its bytes from offset `at` on, for the derive of [`KernelParam`].
#[inline]
pub fn put_field(bytes: &mut [u8], at: usize, field: impl KernelParam) {
    field.with_bytes(|field| {
        bytes.iter_mut().skip(at).zip(field).for_each(|(to, from)| *to = *from);
    });
}

/// Adds a struct to the arguments of a launch, for the derive of [`KernelParam`].
#[inline]
pub fn push_param<T: KernelParam>(value: &T, arguments: &mut Arguments<'_>) {
    push_aligned(value, align_of::<T>(), arguments);
}

/// Adds a value to the arguments of a launch, for a parameter with an alignment of `align` bytes.
#[inline]
pub(super) fn push_aligned<T: KernelParam>(value: &T, align: usize, arguments: &mut Arguments<'_>) {
    value.with_bytes(|bytes| {
        arguments.raw(bytes, align);
    });
}
