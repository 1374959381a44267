//! `KernelArg`, `KernelArgs`: values that a kernel takes as arguments.

use std::sync::Arc;

use cuda_core::{
    Access, ArgumentKind, Arguments, DeviceBuffer, Element, SharedSlice, Slice, SliceMut,
};
use half::{bf16, f16};

/// An argument of a kernel. The form of a buffer argument decides the kernel's access to it:
///
/// | argument | access by the kernel |
/// |---|---|
/// | `DeviceBuffer<T>`, `&mut DeviceBuffer<T>`, [`SliceMut<T>`](cuda_core::SliceMut) | reads and writes |
/// | `Arc<DeviceBuffer<T>>`, `&Arc<DeviceBuffer<T>>`, `&DeviceBuffer<T>`, [`Slice<T>`](cuda_core::Slice), [`SharedSlice<T>`](cuda_core::SharedSlice) | reads |
/// | integers, floats, `f16`, `bf16`, `bool`, [`ByValue`] | receives the value |
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an argument that a kernel can have",
    note = "a `Vec` or slice goes to the device first, with `h2d(..)`; an op runs first: `zip!(..).then(..)`; a struct goes by value in `ByValue(..)` and derives `bytemuck::Pod`"
)]
pub trait KernelArg: Send {
    /// Adds this argument to the arguments of a launch.
    fn push<'a>(&'a self, arguments: &mut Arguments<'a>);
}

/// A struct that is passed by value. Its layout (`#[repr(C)]`) is that of the kernel's parameter.
#[derive(Debug, Clone, Copy)]
pub struct ByValue<T>(pub T);

impl<T: Element> KernelArg for ByValue<T> {
    #[inline]
    fn push<'a>(&'a self, arguments: &mut Arguments<'a>) {
        arguments.value(&self.0);
    }
}

macro_rules! numbers {
    ($($kind:ident: $($ty:ty)*;)*) => {$($(
        impl KernelArg for $ty {
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
    #[inline]
    fn push<'a>(&'a self, arguments: &mut Arguments<'a>) {
        arguments.number(&u8::from(*self), ArgumentKind::Integer);
    }
}

macro_rules! buffers {
    ($($buffer:ty: $access:ident;)*) => {$(
        impl<T: Element> KernelArg for $buffer {
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
    Arc<DeviceBuffer<T>>: Read;
    &Arc<DeviceBuffer<T>>: Read;
    &DeviceBuffer<T>: Read;
}

impl<T: Element> KernelArg for Slice<'_, T> {
    #[inline]
    fn push<'a>(&'a self, arguments: &mut Arguments<'a>) {
        arguments.slice(*self);
    }
}

impl<T: Element> KernelArg for SharedSlice<T> {
    #[inline]
    fn push<'a>(&'a self, arguments: &mut Arguments<'a>) {
        arguments.slice(self.as_slice());
    }
}

impl<T: Element> KernelArg for SliceMut<'_, T> {
    #[inline]
    fn push<'a>(&'a self, arguments: &mut Arguments<'a>) {
        arguments.slice_mut(self);
    }
}

/// The arguments of a kernel: a tuple of up to sixteen [`KernelArg`]s in the order of its parameters.
pub trait KernelArgs: Send {
    /// Adds all arguments.
    fn push_all<'a>(&'a self, arguments: &mut Arguments<'a>);
}

macro_rules! tuples {
    ($($($name:ident $index:tt),*;)*) => {$(
        impl<$($name: KernelArg),*> KernelArgs for ($($name,)*) {
            #[allow(unused_variables)]
            #[inline]
            fn push_all<'a>(&'a self, arguments: &mut Arguments<'a>) {
                $(self.$index.push(arguments);)*
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
