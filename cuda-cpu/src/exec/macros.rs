//! Macros that define operations.

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

pub(crate) use {binary, ternary, top, unary};
