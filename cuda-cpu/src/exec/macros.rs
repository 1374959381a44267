//! Macros that define operations and select one by type.

/// Defines unary operations: `unary! { Neg<T: Int>: T => T, |a| a.neg(); }`.
macro_rules! unary {
    ($($(#[$($top:tt)*])? $name:ident<$t:ident: $bound:ident>: $a:ty => $d:ty, |$x:ident $(, $imm:ident)?| $body:expr;)*) => { $(
        pub(crate) struct $name<$t>(std::marker::PhantomData<$t>);
        impl<$t: $bound> $crate::exec::map::Unary for $name<$t> {
            type A = $a;
            type D = $d;
            $crate::exec::macros::top! { $($($top)*)? }
            #[inline(always)]
            fn apply($x: $a, _imm: u64) -> $d { $(let $imm = _imm;)? $body }
        }
    )* };
}

/// Defines binary operations. See [`unary`].
macro_rules! binary {
    ($($(#[$($top:tt)*])? $name:ident<$t:ident: $bound:ident>: $a:ty, $b:ty => $d:ty, |$x:ident, $y:ident $(, $imm:ident)?| $body:expr;)*) => { $(
        pub(crate) struct $name<$t>(std::marker::PhantomData<$t>);
        impl<$t: $bound> $crate::exec::map::Binary for $name<$t> {
            type A = $a;
            type B = $b;
            type D = $d;
            $crate::exec::macros::top! { $($($top)*)? }
            #[inline(always)]
            fn apply($x: $a, $y: $b, _imm: u64) -> $d { $(let $imm = _imm;)? $body }
        }
    )* };
}

/// Defines ternary operations. See [`unary`].
macro_rules! ternary {
    ($($(#[$($top:tt)*])? $name:ident<$t:ident: $bound:ident>: $a:ty, $b:ty, $c:ty => $d:ty, |$x:ident, $y:ident, $z:ident $(, $imm:ident)?| $body:expr;)*) => { $(
        pub(crate) struct $name<$t>(std::marker::PhantomData<$t>);
        impl<$t: $bound> $crate::exec::map::Ternary for $name<$t> {
            type A = $a;
            type B = $b;
            type C = $c;
            type D = $d;
            $crate::exec::macros::top! { $($($top)*)? }
            #[inline(always)]
            fn apply($x: $a, $y: $b, $z: $c, _imm: u64) -> $d { $(let $imm = _imm;)? $body }
        }
    )* };
}

/// Sets the highest level for which an operation is compiled. Compilers do not vectorise `slow` operations. Kernels do not
/// use `rare` operations in inner loops.
macro_rules! top {
    () => {};
    (slow) => {
        const TOP: $crate::lanes::simd::Level = $crate::lanes::simd::Level::Base;
    };
    (rare) => {
        const TOP: $crate::lanes::simd::Level = $crate::lanes::simd::Level::Base;
    };
    (top = $level:expr) => {
        const TOP: $crate::lanes::simd::Level = $level;
    };
}

/// Selects a handler by type, as in `by_type!(ty, binary, Add, [U32: u32, S32: i32])`. Returns `None` for other types.
macro_rules! by_type {
    ($ty:expr, $make:ident, $op:ident, [$($name:ident: $t:ty),* $(,)?]) => {
        match $ty {
            $(cuda_ptx::ScalarType::$name => Some($crate::exec::map::$make::<$op<$t>>()),)*
            _ => None,
        }
    };
    ($ty:expr, $make:ident, $op:ident, int) => {
        $crate::exec::macros::by_type!($ty, $make, $op,
            [U16: u16, S16: i16, U32: u32, S32: i32, U64: u64, S64: i64])
    };
    // The signed types of 32 and 64 bits share the handlers of the unsigned ones.
    ($ty:expr, $make:ident, $op:ident, wrapping) => {
        match $ty {
            cuda_ptx::ScalarType::S32 => Some($crate::exec::map::$make::<$op<u32>>().signed()),
            cuda_ptx::ScalarType::S64 => Some($crate::exec::map::$make::<$op<u64>>().signed()),
            ty => $crate::exec::macros::by_type!(ty, $make, $op,
                [U16: u16, S16: i16, U32: u32, U64: u64]),
        }
    };
    ($ty:expr, $make:ident, $op:ident, bits) => {
        $crate::exec::macros::by_type!($ty, $make, $op, [B16: u16, B32: u32, B64: u64])
    };
}

pub(crate) use {binary, by_type, ternary, top, unary};
