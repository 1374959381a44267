//! `launch`: kernels.

use std::{
    sync::Arc,
    task::{Context, Poll, ready},
};

use cuda_core::{
    Access, ArgumentKind, Arguments, DeviceBuffer, Element, Error, Function, LaunchConfig, Result,
};
use half::{bf16, f16};

use crate::{ExecutionContext, Op, Room, Submit};

/// An argument of a kernel. How a buffer is held says what the kernel may do with it:
///
/// | argument | the kernel |
/// |---|---|
/// | `DeviceBuffer<T>`, `&mut DeviceBuffer<T>` | reads and writes it |
/// | `Arc<DeviceBuffer<T>>`, `&DeviceBuffer<T>` | reads it |
/// | integers, floats, `f16`, `bf16`, `bool`, [`ByValue`] | gets the value |
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an argument that a kernel can have",
    note = "a `Vec` or slice goes to the device first, with `h2d(..)`; an op runs first: `zip!(..).then(..)`; a struct goes by value in `ByValue(..)` and derives `bytemuck::Pod`"
)]
pub trait KernelArg: Send {
    /// Adds it to the arguments of a launch.
    fn push<'a>(&'a self, arguments: &mut Arguments<'a>);
}

/// A struct passed by value, laid out as the kernel's own (`#[repr(C)]`).
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
    &DeviceBuffer<T>: Read;
}

/// The arguments of a kernel: a tuple of up to sixteen [`KernelArg`]s in the order of its parameters.
pub trait KernelArgs: Send {
    /// Adds them all.
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

/// Steps of [`launch`].
#[derive(Clone)]
pub struct LaunchOp<A> {
    function: Function,
    config: LaunchConfig,
    args: Option<A>,
    room: Room,
}

/// Runs a kernel; gives the arguments back in the form in which they came.
///
/// Number, sizes and kinds of the arguments are checked against the kernel's parameters when it is submitted.
///
/// ```
/// use cuda_async::{launch, open, prelude::*};
/// # const PTX: &str = include_str!("../../../kernels/vecadd.ptx");
/// let device = open("cpu")?;
/// let vecadd = device.load_ptx(PTX)?.function("vecadd")?;
/// let op = zip!(h2d(vec![1.0f32; 100]), h2d(vec![2.0f32; 100]), zeros::<f32>(100)).then(move |(a, b, c)| {
///     // SAFETY: `vecadd(a, b, c, n)` reads a and b and writes c, all below n.
///     unsafe { launch(&vecadd, LaunchConfig::for_num_elems(100), (a, b, c, 100u32)) }
/// });
/// let sum = op.then(|(_, _, c, _)| to_host(c)).sync_on(&device.new_stream()?)?;
/// assert_eq!(sum, vec![3.0; 100]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// # Safety
/// When it is run, the kernel accesses no device memory but that of its buffer arguments, stays inside their
/// bounds, and only reads those that are given as `Arc` or by shared reference.
pub unsafe fn launch<A: KernelArgs>(
    function: &Function,
    config: LaunchConfig,
    args: A,
) -> Op<LaunchOp<A>> {
    Op::new(LaunchOp { function: function.clone(), config, args: Some(args), room: Room::new() })
}

impl<A: KernelArgs> Submit for LaunchOp<A> {
    type Output = A;

    #[inline]
    fn poll_submit(&mut self, task: &mut Context<'_>, cx: &ExecutionContext) -> Poll<Result<A>> {
        ready!(cx.poll_room(&mut self.room, task))?;
        let args = self.args.as_ref().ok_or(Error::AlreadyEnded)?;
        let launched = cx.enqueue(|stream| {
            let mut arguments = Arguments::new();
            args.push_all(&mut arguments);
            // SAFETY: what `launch`'s caller promised. The buffers are held by `args` until the launch is
            // enqueued, and by their tickets from then on.
            unsafe { self.function.launch(stream, self.config, &arguments) }
        });
        let args = self.args.take().ok_or(Error::AlreadyEnded);
        Poll::Ready(launched.and(args))
    }
}
