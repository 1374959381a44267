//! Macros that define operations and select one by type.

/// Defines unary operations: `unary! { Neg<T: Int>: T => T, |a| a.neg(); }`.
macro_rules! unary {
    ($($(#[$($slow:tt)*])? $name:ident<$t:ident: $bound:ident>: $a:ty => $d:ty, |$x:ident $(, $imm:ident)?| $body:expr;)*) => { $(
        pub(crate) struct $name<$t>(std::marker::PhantomData<$t>);
        impl<$t: $bound> $crate::engine::exec::map::Unary for $name<$t> {
            type A = $a;
            type D = $d;
            $crate::engine::exec::macros::slow! { $($($slow)*)? }
            #[inline(always)]
            fn apply($x: $a, _imm: u64) -> $d { $(let $imm = _imm;)? $body }
        }
    )* };
}

/// Defines binary operations. See [`unary`].
macro_rules! binary {
    ($($(#[$($slow:tt)*])? $name:ident<$t:ident: $bound:ident>: $a:ty, $b:ty => $d:ty, |$x:ident, $y:ident $(, $imm:ident)?| $body:expr;)*) => { $(
        pub(crate) struct $name<$t>(std::marker::PhantomData<$t>);
        impl<$t: $bound> $crate::engine::exec::map::Binary for $name<$t> {
            type A = $a;
            type B = $b;
            type D = $d;
            $crate::engine::exec::macros::slow! { $($($slow)*)? }
            #[inline(always)]
            fn apply($x: $a, $y: $b, _imm: u64) -> $d { $(let $imm = _imm;)? $body }
        }
    )* };
}

/// Defines ternary operations. See [`unary`].
macro_rules! ternary {
    ($($(#[$($slow:tt)*])? $name:ident<$t:ident: $bound:ident>: $a:ty, $b:ty, $c:ty => $d:ty, |$x:ident, $y:ident, $z:ident $(, $imm:ident)?| $body:expr;)*) => { $(
        pub(crate) struct $name<$t>(std::marker::PhantomData<$t>);
        impl<$t: $bound> $crate::engine::exec::map::Ternary for $name<$t> {
            type A = $a;
            type B = $b;
            type C = $c;
            type D = $d;
            $crate::engine::exec::macros::slow! { $($($slow)*)? }
            #[inline(always)]
            fn apply($x: $a, $y: $b, $z: $c, _imm: u64) -> $d { $(let $imm = _imm;)? $body }
        }
    )* };
}

macro_rules! slow {
    () => {};
    (slow) => {
        const SLOW: bool = true;
    };
}

/// Selects a handler by type, as in `by_type!(ty, binary, Add, [U32: u32, S32: i32])`. Returns `None` for other types.
macro_rules! by_type {
    ($ty:expr, $make:ident, $op:ident, [$($name:ident: $t:ty),* $(,)?]) => {
        match $ty {
            $(cuda_ptx::ScalarType::$name => Some($crate::engine::exec::map::$make::<$op<$t>>()),)*
            _ => None,
        }
    };
    ($ty:expr, $make:ident, $op:ident, int) => {
        $crate::engine::exec::macros::by_type!($ty, $make, $op,
            [U16: u16, S16: i16, U32: u32, S32: i32, U64: u64, S64: i64])
    };
    ($ty:expr, $make:ident, $op:ident, bits) => {
        $crate::engine::exec::macros::by_type!($ty, $make, $op, [B16: u16, B32: u32, B64: u64])
    };
}

pub(crate) use {binary, by_type, slow, ternary, unary};
