//! Handlers of instructions that work lane by lane, made from a small function per operation.
//!
//! Each handler exists once for each [`simd::Level`] of processor, those of slow operations for the lowest alone. Which
//! one is used is decided once, when a program is decoded. Results are the same: `mul_add` rounds once in all, only
//! slowly without the hardware.
//!
//! Lanes that do not execute are computed too (operations cannot fault) and then left as they were, except where
//! handlers visit the lanes one by one.
//!
//! The unsafe code here follows the register file's rules (`ctx`).

use super::lane::{Kind, Lane};
use super::simd::{self, HALF, Simd};
use crate::engine::ctx::{Ctx, LANES, Raw};
use crate::engine::op::{Flow, Handler, Op};

/// An operation on one operand. `imm` is the instruction's mode, if it has one.
pub(crate) trait Unary: 'static {
    type A: Lane;
    type D: Lane;
    /// Compilers find no vector instructions for it: handlers visit the executing lanes one by one.
    const SLOW: bool = false;
    fn apply(a: Self::A, imm: u64) -> Self::D;
}

/// An operation on two operands.
pub(crate) trait Binary: 'static {
    type A: Lane;
    type B: Lane;
    type D: Lane;
    const SLOW: bool = false;
    fn apply(a: Self::A, b: Self::B, imm: u64) -> Self::D;
}

/// An operation on three operands.
pub(crate) trait Ternary: 'static {
    type A: Lane;
    type B: Lane;
    type C: Lane;
    type D: Lane;
    const SLOW: bool = false;
    fn apply(a: Self::A, b: Self::B, c: Self::C, imm: u64) -> Self::D;
}

/// A comparison: a predicate of two operands.
pub(crate) trait Compare: 'static {
    type A: Lane;
    type B: Lane;
    const SLOW: bool = false;
    fn apply(a: Self::A, b: Self::B, imm: u64) -> bool;
}

/// A chosen handler and the kinds of its operands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pick {
    pub(crate) run: Handler,
    pub(crate) d: Kind,
    /// The result is extended with its sign when its register is wider.
    pub(crate) signed: bool,
    pub(crate) sources: [Option<Kind>; 3],
    pub(crate) imm: u64,
}

impl Pick {
    pub(crate) fn with(self, imm: u64) -> Self {
        Self { imm, ..self }
    }
}

type RawOf<T> = <T as Lane>::Raw;

/// Runs `f` for all lanes and writes those in the mask.
///
/// This is compiled more than a thousand times. So one loop computes full and partial warps, and the loops do without
/// iterators, which are ten functions each.
///
/// # Safety
/// `f(lane)` reads only registers of the current frame; `d` is one of the right class.
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
            // SAFETY: the caller's promise.
            unsafe { d.add(lane).write(f(lane)) };
            left &= left - 1;
        }
        return;
    }
    // One question for both halves: where lanes leave a loop one by one, a question for each is often mispredicted.
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
        // SAFETY: the caller's promise: a half warp lies within the register's lanes.
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
    // SAFETY: register file rules.
    unsafe {
        for_lanes::<O::D, V>(d, ctx.mask, O::SLOW, |i| {
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
    // SAFETY: register file rules.
    unsafe {
        for_lanes::<O::D, V>(d, ctx.mask, O::SLOW, |i| {
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
    // SAFETY: register file rules.
    unsafe {
        for_lanes::<O::D, V>(d, ctx.mask, O::SLOW, |i| {
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
        // SAFETY: register file rules.
        let (x, y) = unsafe { (O::A::from_raw(a.add(i).read()), O::B::from_raw(b.add(i).read())) };
        O::apply(x, y, op.imm)
    };
    let mut bits = 0;
    if V::SCALAR || O::SLOW {
        let mut left = ctx.mask;
        while left != 0 {
            let lane = left.trailing_zeros();
            bits |= u32::from(holds(lane as usize)) << lane;
            left &= left - 1;
        }
    } else {
        // Bytes, because processors gather their top bits in one step.
        let mut results = [0u8; LANES];
        let mut i = 0;
        while i < LANES {
            results[i] = if holds(i) { 0xFF } else { 0 };
            i += 1;
        }
        // SAFETY: the level is the processor's.
        bits = unsafe { V::bits(&results) };
    }
    ctx.set_pred(op.d, ctx.mask, bits);
    Flow::Next
}

/// The handlers of a family for each level of processor, and the choice of one.
macro_rules! at_levels {
    ($($trait:ident, $body:ident: $choose:ident, $base:ident, $avx2:ident, $avx512:ident;)*) => { $(
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
        fn $choose<O: $trait>() -> Handler {
            if O::SLOW {
                return $base::<O>;
            }
            match simd::level() {
                #[cfg(all(target_arch = "x86_64", not(any(test, one_level))))]
                simd::Level::Avx512 => $avx512::<O>,
                #[cfg(all(target_arch = "x86_64", not(any(test, one_level))))]
                simd::Level::Avx2 => $avx2::<O>,
                _ => $base::<O>,
            }
        }
    )* };
}

at_levels! {
    Unary, unary_body: unary_handler, unary_base, unary_avx2, unary_avx512;
    Binary, binary_body: binary_handler, binary_base, binary_avx2, binary_avx512;
    Ternary, ternary_body: ternary_handler, ternary_base, ternary_avx2, ternary_avx512;
    Compare, compare_body: compare_handler, compare_base, compare_avx2, compare_avx512;
}

pub(crate) fn unary<O: Unary>() -> Pick {
    let run = unary_handler::<O>();
    let sources = [Some(O::A::KIND), None, None];
    Pick { run, d: O::D::KIND, signed: O::D::SIGNED, sources, imm: 0 }
}

pub(crate) fn binary<O: Binary>() -> Pick {
    let run = binary_handler::<O>();
    let sources = [Some(O::A::KIND), Some(O::B::KIND), None];
    Pick { run, d: O::D::KIND, signed: O::D::SIGNED, sources, imm: 0 }
}

pub(crate) fn ternary<O: Ternary>() -> Pick {
    let run = ternary_handler::<O>();
    let sources = [Some(O::A::KIND), Some(O::B::KIND), Some(O::C::KIND)];
    Pick { run, d: O::D::KIND, signed: O::D::SIGNED, sources, imm: 0 }
}

pub(crate) fn compare<O: Compare>() -> Pick {
    let run = compare_handler::<O>();
    let sources = [Some(O::A::KIND), Some(O::B::KIND), None];
    Pick { run, d: Kind::Pred, signed: false, sources, imm: 0 }
}
