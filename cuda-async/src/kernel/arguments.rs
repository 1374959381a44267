//! The buffers and values that a kernel takes as arguments ([`KernelArg`], [`KernelArgs`]), and the buffers that come
//! back ([`BufferTuple`]).
//!
//! [`KernelBuffer`] has the forms in which launchers of [`kernels!`](crate::kernels) take a buffer, and [`KernelParam`]
//! the values that a kernel receives.
//!
//! A launch takes a tuple of buffers and values and gives back the buffers alone. The type of its output is built from
//! the last argument to the first: each buffer puts itself in front of a [`BufferTuple`], and each value leaves it as
//! it is.

use std::sync::Arc;

use cuda_core::{
    Access, ArgumentKind, Arguments, DeviceBuffer, Element, SharedSlice, Slice, SliceMut,
};
use half::{bf16, f16};

use crate::{
    kernel::typed_args::KernelInput,
    memory::{DeviceScalar, ScalarMut},
    op::{LazyArg, Ready},
};

#[cfg(feature = "macros")]
pub use cuda_async_macros::KernelParam;

/// A value that can be passed to a kernel as an argument. The form of a buffer argument decides the kernel's access to
/// it:
///
/// | argument | access by the kernel |
/// |---|---|
/// | `DeviceBuffer<T>`, `&mut DeviceBuffer<T>`, [`SliceMut<T>`](cuda_core::SliceMut), [`ScalarMut<T>`](crate::memory::ScalarMut) | reads and writes |
/// | `Arc<DeviceBuffer<T>>`, `&Arc<DeviceBuffer<T>>`, `&DeviceBuffer<T>`, [`Slice<T>`](cuda_core::Slice), [`SharedSlice<T>`](cuda_core::SharedSlice), [`DeviceScalar<T>`](crate::memory::DeviceScalar), `&DeviceScalar<T>` | reads |
/// | integers, floats, `f16`, `bf16`, `bool`, structs that derive [`KernelParam`](crate::kernel::KernelParam), [`ByValue`] | receives the value |
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an argument that a kernel can have",
    note = "a `Vec` or slice goes to the device first, with `h2d(..)`; an op runs first: `zip!(..).then(..)`; a struct derives `cuda_async::kernel::KernelParam`, or derives `bytemuck::Pod` and goes in `ByValue(..)`"
)]
pub trait KernelArg: Send + Sized {
    /// The buffers that a launch gives back: this argument, if it is a buffer, followed by `Rest`. The type is
    /// `Rest::Prepend<Self>` for a buffer, and `Rest` for a value.
    type GivenBack<Rest: BufferTuple>: BufferTuple;

    /// Adds this argument to the arguments of a launch.
    fn push<'a>(&'a self, arguments: &mut Arguments<'a>);

    /// Prepends this argument to `rest` if it is a buffer.
    fn give_back<Rest: BufferTuple>(self, rest: Rest) -> Self::GivenBack<Rest>;
}

/// Generates the items of [`KernelArg`] that decide whether the launch gives the argument back.
macro_rules! given_back {
    (buffer) => {
        type GivenBack<Rest: BufferTuple> = Rest::Prepend<Self>;

        #[inline]
        fn give_back<Rest: BufferTuple>(self, rest: Rest) -> Rest::Prepend<Self> {
            rest.prepend(self)
        }
    };
    (value) => {
        type GivenBack<Rest: BufferTuple> = Rest;

        #[inline]
        fn give_back<Rest: BufferTuple>(self, rest: Rest) -> Rest {
            rest
        }
    };
}
pub(super) use given_back;

/// A struct that derives `bytemuck::Pod` and is passed by value. Its layout (`#[repr(C)]`) is that of the kernel's
/// parameter.
#[derive(Debug, Clone, Copy)]
pub struct ByValue<T>(pub T);

impl<T: KernelParam> KernelArg for ByValue<T> {
    given_back!(value);

    #[inline]
    fn push<'a>(&'a self, arguments: &mut Arguments<'a>) {
        push_param(&self.0, arguments);
    }
}

/// An argument of [`launch`](crate::launch) that the launch gives back. Code that is generic over the form of a buffer
/// wraps the buffer in it, so that the compiler knows the type of the output. Launchers of [`kernels!`](crate::kernels)
/// need no wrapper: bound the type by [`KernelInput`](crate::kernel::KernelInput) or
/// [`KernelOutput`](crate::kernel::KernelOutput).
///
/// ```standalone_crate
/// use cuda_async::{DeviceBuffer, Function, LaunchConfig, kernel::{KernelArg, Returned}, launch, prelude::*};
///
/// /// Multiplies `x`, of `n` elements.
/// ///
/// /// # Safety
/// /// `scale(x, factor, n)` writes x, all below n.
/// unsafe fn scale<B: KernelArg>(scale: &Function, x: B, n: u32) -> impl DeviceOp<Output = B> + use<B> {
///     // SAFETY: `scale` writes x, all below n.
///     unsafe { launch(scale, LaunchConfig::for_num_elems(n), (Returned(x), 2.0f32, n)) }
/// }
/// # let device = cuda_async::open_blocking("cpu")?;
/// # let kernel = device.load_ptx_blocking(include_str!("../../../kernels/basic.ptx"))?.function("scale")?;
/// # // SAFETY: x has three elements.
/// # let op = h2d(vec![1.0f32, 2.0, 3.0]).then(move |x| unsafe { scale(&kernel, x, 3) });
/// # assert_eq!(op.then(to_host).sync_on(&device.new_stream()?)?, [2.0, 4.0, 6.0]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Returned<B>(pub B);

impl<B: KernelArg> KernelArg for Returned<B> {
    type GivenBack<Rest: BufferTuple> = Rest::Prepend<B>;

    #[inline]
    fn push<'a>(&'a self, arguments: &mut Arguments<'a>) {
        self.0.push(arguments);
    }

    #[inline]
    fn give_back<Rest: BufferTuple>(self, rest: Rest) -> Rest::Prepend<B> {
        rest.prepend(self.0)
    }
}

macro_rules! numbers {
    ($($kind:ident: $($ty:ty)*;)*) => {$($(
        impl KernelArg for $ty {
            given_back!(value);

            #[inline]
            fn push<'a>(&'a self, arguments: &mut Arguments<'a>) {
                arguments.number(self, ArgumentKind::$kind);
            }
        }
    )*)*};
}

numbers! {
    Integer: i8 u8 i16 u16 i32 u32 i64 u64 isize usize;
    Float: f32 f64 f16 bf16;
}

impl KernelArg for bool {
    given_back!(value);

    #[inline]
    fn push<'a>(&'a self, arguments: &mut Arguments<'a>) {
        arguments.number(&u8::from(*self), ArgumentKind::Integer);
    }
}

macro_rules! buffers {
    ($($buffer:ty: $access:ident;)*) => {$(
        impl<T: Element> KernelArg for $buffer {
            given_back!(buffer);

            #[inline]
            fn push<'a>(&'a self, arguments: &mut Arguments<'a>) {
                arguments.buffer(self, Access::$access);
            }
        }
    )*};
}

buffers! {
    DeviceBuffer<T>: Write;
    &mut DeviceBuffer<T>: Write;
    &Arc<DeviceBuffer<T>>: Read;
    &DeviceBuffer<T>: Read;
}

impl<T: Element> KernelArg for Slice<'_, T> {
    given_back!(buffer);

    #[inline]
    fn push<'a>(&'a self, arguments: &mut Arguments<'a>) {
        arguments.slice(*self);
    }
}

impl<T: Element> KernelArg for SharedSlice<T> {
    given_back!(buffer);

    #[inline]
    fn push<'a>(&'a self, arguments: &mut Arguments<'a>) {
        arguments.slice(self.as_slice());
    }
}

impl<T: Element> KernelArg for SliceMut<'_, T> {
    given_back!(buffer);

    #[inline]
    fn push<'a>(&'a self, arguments: &mut Arguments<'a>) {
        arguments.slice_mut(self);
    }
}

macro_rules! scalars {
    ($($scalar:ty: $access:ident;)*) => {$(
        impl<T: Element> KernelArg for $scalar {
            given_back!(buffer);

            #[inline]
            fn push<'a>(&'a self, arguments: &mut Arguments<'a>) {
                arguments.buffer(self.buffer(), Access::$access);
            }
        }
    )*};
}

scalars! {
    DeviceScalar<T>: Read;
    &DeviceScalar<T>: Read;
    ScalarMut<T>: Write;
}

/// The arguments of a kernel: a tuple of up to sixteen [`KernelArg`]s in the order of its parameters.
pub trait KernelArgs: Send + Sized {
    /// The buffers that a launch gives back: those among these arguments, followed by `Rest`.
    type GivenBack<Rest: BufferTuple>: BufferTuple;

    /// Adds these arguments to the arguments of a launch.
    fn push_all<'a>(&'a self, arguments: &mut Arguments<'a>);

    /// Prepends the buffers among these arguments to `rest`.
    fn give_back<Rest: BufferTuple>(self, rest: Rest) -> Self::GivenBack<Rest>;
}

/// The buffers among the arguments `A`, without the values. A launch gives them back in the form in which they were
/// given: as a tuple, as the buffer itself if there is one, or as `()`.
pub type Buffers<A> = <<A as KernelArgs>::GivenBack<()> as BufferTuple>::Bare;

/// Folds the arguments from the last to the first.
macro_rules! fold {
    (type $rest:ty;) => { $rest };
    (type $rest:ty; $first:ident $($more:ident)*) => { $first::GivenBack<fold!(type $rest; $($more)*)> };
    (value $rest:expr;) => { $rest };
    (value $rest:expr; $first:expr $(, $more:expr)*) => { $first.give_back(fold!(value $rest; $($more),*)) };
}

macro_rules! tuples {
    ($($($name:ident $index:tt),*;)*) => {$(
        impl<$($name: KernelArg),*> KernelArgs for ($($name,)*) {
            type GivenBack<Rest: BufferTuple> = fold!(type Rest; $($name)*);

            #[allow(unused_variables)]
            #[inline]
            fn push_all<'a>(&'a self, arguments: &mut Arguments<'a>) {
                $(self.$index.push(arguments);)*
            }

            #[inline]
            fn give_back<Rest: BufferTuple>(self, rest: Rest) -> Self::GivenBack<Rest> {
                fold!(value rest; $(self.$index),*)
            }
        }
    )*};
}

tuples! {
    ;
    A 0;
    A 0, B 1;
    A 0, B 1, C 2;
    A 0, B 1, C 2, D 3;
    A 0, B 1, C 2, D 3, E 4;
    A 0, B 1, C 2, D 3, E 4, F 5;
    A 0, B 1, C 2, D 3, E 4, F 5, G 6;
    A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7;
    A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8;
    A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9;
    A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10;
    A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11;
    A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11, M 12;
    A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11, M 12, N 13;
    A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11, M 12, N 13, O 14;
    A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11, M 12, N 13, O 14, P 15;
}

mod sealed {
    pub trait Sealed {}
}

/// A tuple of buffers that a launch gives back.
pub trait BufferTuple: Send + Sized + sealed::Sealed {
    /// This tuple with `T` in front. If this tuple has 32 elements, the result is a pair of `T` and this tuple.
    type Prepend<T: Send>: BufferTuple;

    /// The form of the buffers in the output of the launch: the buffer itself if there is exactly one, otherwise the
    /// tuple.
    type Bare: Send;

    /// Puts `first` in front of this tuple.
    fn prepend<T: Send>(self, first: T) -> Self::Prepend<T>;

    /// Returns the buffer itself if there is exactly one, otherwise the tuple.
    fn bare(self) -> Self::Bare;
}

macro_rules! bare {
    ($this:ident:) => { () };
    ($this:ident: $one:ident) => { $one };
    ($this:ident: $($many:ident)+) => { ($($many,)+) };
    (value $this:ident:) => { $this };
    (value $this:ident: $one:ident) => { $this.0 };
    (value $this:ident: $($many:ident)+) => { $this };
}

macro_rules! tuples {
    ([$($name:ident)*]) => {
        impl<$($name: Send),*> sealed::Sealed for ($($name,)*) {}

        impl<$($name: Send),*> BufferTuple for ($($name,)*) {
            type Prepend<First: Send> = (First, Self);
            type Bare = Self;

            #[inline]
            fn prepend<First: Send>(self, first: First) -> (First, Self) {
                (first, self)
            }

            #[inline]
            fn bare(self) -> Self {
                self
            }
        }
    };
    ([$($name:ident)*] $next:ident $($more:ident)*) => {
        impl<$($name: Send),*> sealed::Sealed for ($($name,)*) {}

        impl<$($name: Send),*> BufferTuple for ($($name,)*) {
            type Prepend<First: Send> = (First, $($name,)*);
            type Bare = bare!(self: $($name)*);

            #[inline]
            #[allow(non_snake_case)]
            fn prepend<First: Send>(self, first: First) -> (First, $($name,)*) {
                let ($($name,)*) = self;
                (first, $($name,)*)
            }

            #[inline]
            fn bare(self) -> Self::Bare {
                let this = self;
                bare!(value this: $($name)*)
            }
        }

        tuples!([$($name)* $next] $($more)*);
    };
}

tuples!([] A B C D E F G H I J K L M N O P Q R S T U V W X Y Z A1 B1 C1 D1 E1 F1);

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

#[cfg(test)]
mod given_back_tests {
    use super::*;
    use crate::kernel::{Buffers, ByValue, Group, Returned};

    #[test]
    fn values_are_left_out_and_one_buffer_is_bare() {
        fn has_type<T>(_: Option<T>) {}
        type Values = (u32, bool, ByValue<f32>);
        has_type::<()>(None::<Buffers<Values>>);
        type One = (u32, Returned<u8>, f32);
        has_type::<u8>(None::<Buffers<One>>);
        type Grouped = (Group<(u32, Returned<u8>)>, Group<(Returned<i8>, f32)>);
        has_type::<(u8, i8)>(None::<Buffers<Grouped>>);
    }

    #[test]
    fn tuples_keep_their_order_and_nest_beyond_32() {
        let three = ().prepend('c').prepend('b').prepend('a');
        assert_eq!((three.bare(), ('x',).bare(), ().bare()), (('a', 'b', 'c'), 'x', ()));
        macro_rules! all {
            ($tuple:expr;) => { $tuple };
            ($tuple:expr; $one:literal $($more:literal)*) => { all!($tuple.prepend($one); $($more)*) };
        }
        let many = all!((); 33 32 31 30 29 28 27 26 25 24 23 22 21 20 19 18 17 16 15 14 13 12 11 10 9 8 7 6 5 4 3 2 1);
        let (first, rest) = many.bare();
        assert_eq!((first, rest.0, rest.31), (1, 2, 33));
    }
}
