//! Handlers of instructions that work lane by lane, made from a small function per operation.
//!
//! Each handler exists twice: for the baseline processor and, on x86-64, with AVX2 and FMA; which
//! one is used is decided once, when a program is decoded. Results are the same: `mul_add` rounds
//! once in both, only slowly without the hardware.
//!
//! Inactive lanes are computed too (operations cannot fault) and then left as they were, unless the
//! operation says that it is too slow for that.
//!
//! The unsafe code here follows the register file's rules (`ctx`).

use std::sync::LazyLock;

use super::lane::{Kind, Lane};
use crate::engine::ctx::{Ctx, FULL, LANES, lanes_of};
use crate::engine::op::{Flow, Handler, Op};

/// An operation on one operand. `imm` is the instruction's mode, if it has one.
pub(crate) trait Unary: 'static {
    type A: Lane;
    type D: Lane;
    /// Too slow to compute for lanes that do not execute.
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

#[cfg(target_arch = "x86_64")]
static FAST: LazyLock<bool> = LazyLock::new(|| {
    std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma")
});
#[cfg(not(target_arch = "x86_64"))]
static FAST: LazyLock<bool> = LazyLock::new(|| false);

type RawOf<T> = <T as Lane>::Raw;

/// Lanes handled at once: their operands are all read before the first result is written.
const CHUNK: usize = 8;

/// Runs `f` for all lanes and writes those in the mask.
///
/// # Safety
/// `f(lane)` reads only registers of the current frame; `d` is one of the right class.
#[inline(always)]
unsafe fn for_lanes<D: Lane, const SLOW: bool>(
    d: *mut RawOf<D>,
    mask: u32,
    f: impl Fn(usize) -> RawOf<D>,
) {
    if SLOW && mask != FULL {
        for lane in lanes_of(mask) {
            // SAFETY: the caller's promise.
            unsafe { d.add(lane).write(f(lane)) };
        }
        return;
    }
    for chunk in (0..LANES).step_by(CHUNK) {
        let mut results = [RawOf::<D>::default(); CHUNK];
        for (i, result) in results.iter_mut().enumerate() {
            *result = f(chunk + i);
        }
        // SAFETY: the caller's promise: a chunk lies within the register's lanes.
        unsafe {
            let to = d.add(chunk).cast::<[RawOf<D>; CHUNK]>();
            if mask != FULL {
                let old = to.read();
                for i in 0..CHUNK {
                    let active = (mask >> (chunk + i)) & 1 != 0;
                    results[i] = if active { results[i] } else { old[i] };
                }
            }
            to.write(results);
        }
    }
}

#[inline(always)]
fn unary_body<O: Unary>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let (d, a) = (ctx.lanes::<RawOf<O::D>>(op.d), ctx.lanes::<RawOf<O::A>>(op.a));
    let imm = op.imm;
    // SAFETY: register file rules.
    unsafe {
        let f = |i| O::apply(O::A::from_raw(a.add(i).read()), imm).to_raw();
        if O::SLOW {
            for_lanes::<O::D, true>(d, ctx.mask, f)
        } else {
            for_lanes::<O::D, false>(d, ctx.mask, f)
        }
    }
    Flow::Next
}

#[inline(always)]
fn binary_body<O: Binary>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let (d, a) = (ctx.lanes::<RawOf<O::D>>(op.d), ctx.lanes::<RawOf<O::A>>(op.a));
    let b = ctx.lanes::<RawOf<O::B>>(op.b);
    let imm = op.imm;
    // SAFETY: register file rules.
    unsafe {
        let f = |i| {
            let (x, y) = (O::A::from_raw(a.add(i).read()), O::B::from_raw(b.add(i).read()));
            O::apply(x, y, imm).to_raw()
        };
        if O::SLOW {
            for_lanes::<O::D, true>(d, ctx.mask, f)
        } else {
            for_lanes::<O::D, false>(d, ctx.mask, f)
        }
    }
    Flow::Next
}

#[inline(always)]
fn ternary_body<O: Ternary>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let (d, a) = (ctx.lanes::<RawOf<O::D>>(op.d), ctx.lanes::<RawOf<O::A>>(op.a));
    let (b, c) = (ctx.lanes::<RawOf<O::B>>(op.b), ctx.lanes::<RawOf<O::C>>(op.c));
    let imm = op.imm;
    // SAFETY: register file rules.
    unsafe {
        let f = |i| {
            let (x, y) = (O::A::from_raw(a.add(i).read()), O::B::from_raw(b.add(i).read()));
            O::apply(x, y, O::C::from_raw(c.add(i).read()), imm).to_raw()
        };
        if O::SLOW {
            for_lanes::<O::D, true>(d, ctx.mask, f)
        } else {
            for_lanes::<O::D, false>(d, ctx.mask, f)
        }
    }
    Flow::Next
}

#[inline(always)]
fn compare_body<O: Compare>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let a = ctx.lanes::<RawOf<O::A>>(op.a);
    let b = ctx.lanes::<RawOf<O::B>>(op.b);
    let mut result = 0;
    for i in 0..LANES {
        // SAFETY: register file rules.
        let (x, y) = unsafe { (O::A::from_raw(a.add(i).read()), O::B::from_raw(b.add(i).read())) };
        result |= u32::from(O::apply(x, y, op.imm)) << i;
    }
    ctx.set_pred(op.d, ctx.mask, result);
    Flow::Next
}

macro_rules! twice {
    ($($trait:ident, $body:ident, $base:ident, $fast:ident;)*) => { $(
        fn $base<O: $trait>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
            $body::<O>(ctx, op)
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma")]
        fn $fast<O: $trait>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
            $body::<O>(ctx, op)
        }
    )* };
}

twice! {
    Unary, unary_body, unary_base, unary_fast;
    Binary, binary_body, binary_base, binary_fast;
    Ternary, ternary_body, ternary_base, ternary_fast;
    Compare, compare_body, compare_base, compare_fast;
}

macro_rules! choose {
    ($base:expr, $fast:expr) => {{
        #[cfg(target_arch = "x86_64")]
        let run: Handler = if *FAST { $fast } else { $base };
        #[cfg(not(target_arch = "x86_64"))]
        let run: Handler = $base;
        run
    }};
}

pub(crate) fn unary<O: Unary>() -> Pick {
    let run = choose!(unary_base::<O>, unary_fast::<O>);
    let sources = [Some(O::A::KIND), None, None];
    Pick { run, d: O::D::KIND, signed: O::D::SIGNED, sources, imm: 0 }
}

pub(crate) fn binary<O: Binary>() -> Pick {
    let run = choose!(binary_base::<O>, binary_fast::<O>);
    let sources = [Some(O::A::KIND), Some(O::B::KIND), None];
    Pick { run, d: O::D::KIND, signed: O::D::SIGNED, sources, imm: 0 }
}

pub(crate) fn ternary<O: Ternary>() -> Pick {
    let run = choose!(ternary_base::<O>, ternary_fast::<O>);
    let sources = [Some(O::A::KIND), Some(O::B::KIND), Some(O::C::KIND)];
    Pick { run, d: O::D::KIND, signed: O::D::SIGNED, sources, imm: 0 }
}

pub(crate) fn compare<O: Compare>() -> Pick {
    let run = choose!(compare_base::<O>, compare_fast::<O>);
    let sources = [Some(O::A::KIND), Some(O::B::KIND), None];
    Pick { run, d: Kind::Pred, signed: false, sources, imm: 0 }
}

/// The processor has what the fast variants need.
pub(crate) fn is_fast() -> bool {
    *FAST
}
