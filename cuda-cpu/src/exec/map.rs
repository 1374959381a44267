//! Handlers of lane-wise instructions, generated from one small function per operation.
//!
//! A handler is compiled for each [`Level`] of processor up to the operation's `TOP`. Compiling handlers takes most of
//! the build time of this crate. So `TOP` is lower for operations that kernels rarely use, or that compilers do not
//! vectorise. The level is selected once, when a program is decoded. The results are the same at each level: `mul_add`
//! always rounds once, and is only slow without hardware support.
//!
//! Lanes that do not execute are also computed, because operations cannot fault. Their results are not written.
//! Handlers of operations whose `TOP` is the base level visit only the executing lanes.
//!
//! The unsafe code relies on the invariants of the register file (see `machine::ctx`).

use super::number::lane::{Kind, Lane};
use crate::lanes::LANES;
use crate::lanes::simd::{self, HALF, Level, Simd};
use crate::machine::code::{Flow, Handler, Op};
use crate::machine::ctx::{Ctx, Raw};

/// An operation on one operand. `imm` is the instruction's mode, if any.
pub(crate) trait Unary: 'static {
    type A: Lane;
    type D: Lane;
    /// The highest level for which a handler is compiled. At [`Level::Base`], handlers visit the executing lanes one by
    /// one.
    const TOP: Level = lower(Self::A::TOP, Self::D::TOP);
    fn apply(a: Self::A, imm: u64) -> Self::D;
}

/// An operation on two operands.
pub(crate) trait Binary: 'static {
    type A: Lane;
    type B: Lane;
    type D: Lane;
    const TOP: Level = lower(Self::A::TOP, Self::D::TOP);
    fn apply(a: Self::A, b: Self::B, imm: u64) -> Self::D;
}

/// An operation on three operands.
pub(crate) trait Ternary: 'static {
    type A: Lane;
    type B: Lane;
    type C: Lane;
    type D: Lane;
    const TOP: Level = lower(Self::A::TOP, Self::D::TOP);
    fn apply(a: Self::A, b: Self::B, c: Self::C, imm: u64) -> Self::D;
}

/// The bit of a comparison's `imm` that negates its results.
pub(crate) const NEGATED: u64 = 1 << 63;

/// A comparison: a predicate of two operands. The handler negates the result if `imm` contains [`NEGATED`].
pub(crate) trait Compare: 'static {
    type A: Lane;
    type B: Lane;
    const TOP: Level = Self::A::TOP;
    fn apply(a: Self::A, b: Self::B, imm: u64) -> bool;
}

/// Returns the lower of two levels.
pub(crate) const fn lower(a: Level, b: Level) -> Level {
    if (a as u8) < b as u8 { a } else { b }
}

const fn is_scalar(top: Level) -> bool {
    matches!(top, Level::Base)
}

/// A selected handler and the kinds of its operands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pick {
    pub(crate) run: Handler,
    pub(crate) d: Kind,
    /// Whether the result is sign-extended if its register is wider.
    pub(crate) signed: bool,
    pub(crate) sources: [Option<Kind>; 3],
    pub(crate) imm: u64,
}

impl Pick {
    pub(crate) fn with(self, imm: u64) -> Self {
        Self { imm, ..self }
    }

    pub(crate) fn signed(self) -> Self {
        Self { signed: true, ..self }
    }
}

/// An operation's handlers by level, and the kinds of its operands.
struct Operation {
    handlers: [Handler; 3],
    d: Kind,
    signed: bool,
    sources: [Option<Kind>; 3],
}

impl Operation {
    /// Selects the handler for this processor.
    fn pick(&self) -> Pick {
        let Self { handlers, d, signed, sources } = *self;
        Pick { run: handlers[simd::level() as usize], d, signed, sources, imm: 0 }
    }
}

type RawOf<T> = <T as Lane>::Raw;

/// Evaluates `f` for all lanes and writes the results of those in the mask.
///
/// This function is instantiated more than a thousand times, so its size matters. One loop handles full and partial
/// warps, and the loops avoid iterators, which would add ten functions each.
///
/// # Safety
/// `f(lane)` must read only registers of the current frame. `d` must be a register of the right class.
#[inline(always)]
unsafe fn for_lanes<D: Lane, V: Simd>(
    d: *mut RawOf<D>,
    mask: u32,
    slow: bool,
    f: impl Fn(usize) -> RawOf<D>,
) {
    if slow || V::SCALAR {
        let mut left = mask;
        while left != 0 {
            let lane = left.trailing_zeros() as usize;
            // SAFETY: `d` is a register of the right class, so it has this lane, and `f` reads only registers of the
            // current frame.
            unsafe { d.add(lane).write(f(lane)) };
            left &= left - 1;
        }
        return;
    }
    // The check is outside of the loop: if lanes leave a kernel's loop one by one, a check per half is often
    // mispredicted.
    let full = mask == u32::MAX;
    let mut first = 0;
    while first < LANES {
        // All operands of a half warp are read before its first result is written.
        let mut results = [RawOf::<D>::default(); HALF];
        let mut i = 0;
        while i < HALF {
            results[i] = f(first + i);
            i += 1;
        }
        // SAFETY: `d` is a register of the right class, and half a warp is within its lanes. `f` reads only registers
        // of the current frame.
        unsafe {
            let d = d.add(first);
            if full {
                d.cast::<[RawOf<D>; HALF]>().write(results);
            } else {
                RawOf::<D>::blend::<V>(d, &results, (mask >> first) as u16);
            }
        }
        first += HALF;
    }
}

#[inline(always)]
fn unary_body<O: Unary, V: Simd>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let (d, a) = (ctx.lanes::<RawOf<O::D>>(op.d), ctx.lanes::<RawOf<O::A>>(op.a));
    let imm = op.imm;
    // SAFETY: the registers of the current frame are valid for all lanes, and no other code accesses them
    // (`machine::ctx`).
    unsafe {
        for_lanes::<O::D, V>(d, ctx.mask, is_scalar(O::TOP), |i| {
            O::apply(O::A::from_raw(a.add(i).read()), imm).to_raw()
        });
    }
    Flow::Next
}

#[inline(always)]
fn binary_body<O: Binary, V: Simd>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let (d, a) = (ctx.lanes::<RawOf<O::D>>(op.d), ctx.lanes::<RawOf<O::A>>(op.a));
    let b = ctx.lanes::<RawOf<O::B>>(op.b);
    let imm = op.imm;
    // SAFETY: the registers of the current frame are valid for all lanes, and no other code accesses them
    // (`machine::ctx`).
    unsafe {
        for_lanes::<O::D, V>(d, ctx.mask, is_scalar(O::TOP), |i| {
            let (x, y) = (O::A::from_raw(a.add(i).read()), O::B::from_raw(b.add(i).read()));
            O::apply(x, y, imm).to_raw()
        });
    }
    Flow::Next
}

#[inline(always)]
fn ternary_body<O: Ternary, V: Simd>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let (d, a) = (ctx.lanes::<RawOf<O::D>>(op.d), ctx.lanes::<RawOf<O::A>>(op.a));
    let (b, c) = (ctx.lanes::<RawOf<O::B>>(op.b), ctx.lanes::<RawOf<O::C>>(op.c));
    let imm = op.imm;
    // SAFETY: the registers of the current frame are valid for all lanes, and no other code accesses them
    // (`machine::ctx`).
    unsafe {
        for_lanes::<O::D, V>(d, ctx.mask, is_scalar(O::TOP), |i| {
            let (x, y) = (O::A::from_raw(a.add(i).read()), O::B::from_raw(b.add(i).read()));
            O::apply(x, y, O::C::from_raw(c.add(i).read()), imm).to_raw()
        });
    }
    Flow::Next
}

#[inline(always)]
fn compare_body<O: Compare, V: Simd>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let a = ctx.lanes::<RawOf<O::A>>(op.a);
    let b = ctx.lanes::<RawOf<O::B>>(op.b);
    let holds = |i: usize| {
        // SAFETY: the registers of the current frame are valid for all lanes, and no other code accesses them
        // (`machine::ctx`).
        let (x, y) = unsafe { (O::A::from_raw(a.add(i).read()), O::B::from_raw(b.add(i).read())) };
        O::apply(x, y, op.imm)
    };
    let mut bits = 0;
    if V::SCALAR || is_scalar(O::TOP) {
        let mut left = ctx.mask;
        while left != 0 {
            let lane = left.trailing_zeros();
            bits |= u32::from(holds(lane as usize)) << lane;
            left &= left - 1;
        }
    } else {
        // Bytes, because processors collect their top bits with one instruction.
        let mut results = [0u8; LANES];
        let mut i = 0;
        while i < LANES {
            results[i] = if holds(i) { 0xFF } else { 0 };
            i += 1;
        }
        // SAFETY: the processor supports the level.
        bits = unsafe { V::bits(&results) };
    }
    // All of its bits are `NEGATED`, the sign bit of `imm`.
    let negated = (op.imm as i64 >> 63) as u32;
    ctx.set_pred(op.d, ctx.mask, bits ^ negated);
    Flow::Next
}

/// Defines the handlers of a family for each level of processor, and the function that returns them by level.
macro_rules! at_levels {
    ($($trait:ident, $body:ident: $handlers:ident, $base:ident, $avx2:ident, $avx512:ident;)*) => { $(
        fn $base<O: $trait>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
            $body::<O, simd::Base>(ctx, op)
        }
        #[cfg(all(target_arch = "x86_64", not(any(test, one_level))))]
        #[target_feature(enable = "avx2,fma")]
        fn $avx2<O: $trait>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
            $body::<O, simd::Avx2>(ctx, op)
        }
        #[cfg(all(target_arch = "x86_64", not(any(test, one_level))))]
        #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
        fn $avx512<O: $trait>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
            $body::<O, simd::Avx512>(ctx, op)
        }
        const fn $handlers<O: $trait>() -> [Handler; 3] {
            match O::TOP {
                #[cfg(all(target_arch = "x86_64", not(any(test, one_level))))]
                Level::Avx512 => [$base::<O>, $avx2::<O>, $avx512::<O>],
                #[cfg(all(target_arch = "x86_64", not(any(test, one_level))))]
                Level::Avx2 => [$base::<O>, $avx2::<O>, $avx2::<O>],
                _ => [$base::<O>; 3],
            }
        }
    )* };
}

at_levels! {
    Unary, unary_body: unary_handlers, unary_base, unary_avx2, unary_avx512;
    Binary, binary_body: binary_handlers, binary_base, binary_avx2, binary_avx512;
    Ternary, ternary_body: ternary_handlers, ternary_base, ternary_avx2, ternary_avx512;
    Compare, compare_body: compare_handlers, compare_base, compare_avx2, compare_avx512;
}

// Each `Operation` is a constant, so no code that builds it is compiled. It names only handlers up to `TOP`.

pub(crate) fn unary<O: Unary>() -> Pick {
    const {
        &Operation {
            handlers: unary_handlers::<O>(),
            d: O::D::KIND,
            signed: O::D::SIGNED,
            sources: [Some(O::A::KIND), None, None],
        }
    }
    .pick()
}

pub(crate) fn binary<O: Binary>() -> Pick {
    const {
        &Operation {
            handlers: binary_handlers::<O>(),
            d: O::D::KIND,
            signed: O::D::SIGNED,
            sources: [Some(O::A::KIND), Some(O::B::KIND), None],
        }
    }
    .pick()
}

pub(crate) fn ternary<O: Ternary>() -> Pick {
    const {
        &Operation {
            handlers: ternary_handlers::<O>(),
            d: O::D::KIND,
            signed: O::D::SIGNED,
            sources: [Some(O::A::KIND), Some(O::B::KIND), Some(O::C::KIND)],
        }
    }
    .pick()
}

pub(crate) fn compare<O: Compare>() -> Pick {
    const {
        &Operation {
            handlers: compare_handlers::<O>(),
            d: Kind::Pred,
            signed: false,
            sources: [Some(O::A::KIND), Some(O::B::KIND), None],
        }
    }
    .pick()
}

/// Defines unary operations: `unary_ops! { Neg<T: Int>: T => T, |a| a.neg(); }`.
macro_rules! unary_ops {
    ($($(#[$($top:tt)*])? $name:ident<$t:ident: $bound:ident>: $a:ty => $d:ty, |$x:ident $(, $imm:ident)?| $body:expr;)*) => { $(
        pub(crate) struct $name<$t>(std::marker::PhantomData<$t>);
        impl<$t: $bound> $crate::exec::map::Unary for $name<$t> {
            type A = $a;
            type D = $d;
            $crate::exec::map::top! { $($($top)*)? }
            #[inline(always)]
            fn apply($x: $a, _imm: u64) -> $d { $(let $imm = _imm;)? $body }
        }
    )* };
}

/// Defines binary operations. See [`unary_ops`].
macro_rules! binary_ops {
    ($($(#[$($top:tt)*])? $name:ident<$t:ident: $bound:ident>: $a:ty, $b:ty => $d:ty, |$x:ident, $y:ident $(, $imm:ident)?| $body:expr;)*) => { $(
        pub(crate) struct $name<$t>(std::marker::PhantomData<$t>);
        impl<$t: $bound> $crate::exec::map::Binary for $name<$t> {
            type A = $a;
            type B = $b;
            type D = $d;
            $crate::exec::map::top! { $($($top)*)? }
            #[inline(always)]
            fn apply($x: $a, $y: $b, _imm: u64) -> $d { $(let $imm = _imm;)? $body }
        }
    )* };
}

/// Defines ternary operations. See [`unary_ops`].
macro_rules! ternary_ops {
    ($($(#[$($top:tt)*])? $name:ident<$t:ident: $bound:ident>: $a:ty, $b:ty, $c:ty => $d:ty, |$x:ident, $y:ident, $z:ident $(, $imm:ident)?| $body:expr;)*) => { $(
        pub(crate) struct $name<$t>(std::marker::PhantomData<$t>);
        impl<$t: $bound> $crate::exec::map::Ternary for $name<$t> {
            type A = $a;
            type B = $b;
            type C = $c;
            type D = $d;
            $crate::exec::map::top! { $($($top)*)? }
            #[inline(always)]
            fn apply($x: $a, $y: $b, $z: $c, _imm: u64) -> $d { $(let $imm = _imm;)? $body }
        }
    )* };
}

/// Sets the highest level for which an operation is compiled. Compilers do not vectorise `slow` operations. Kernels do
/// not use `rare` operations in inner loops.
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

pub(crate) use {binary_ops, ternary_ops, top, unary_ops};
