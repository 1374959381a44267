//! `atom` and `red` in all spaces, as real atomics, of up to 128 bits.
//!
//! [`run`] runs the atomics of up to 64 bits, and [`atomic`] those of 128 bits, whose registers are pairs of 64-bit
//! registers ([`upper`]).
//!
//! The unsafe code dereferences pointers that `locate` has checked for the same access.

use super::locate::{Access, locate};
use crate::exec::number::float::Float;
use crate::exec::number::int::Int;
use crate::exec::number::lane::Lane;
use crate::isa::address::SpaceKind;
use crate::isa::operand::Slot;
use crate::lanes::{LANES, lanes_of};
use crate::machine::code::{Flow, Op};
use crate::machine::ctx::Ctx;
use crate::memory::access::{self, Word};

/// Raw lanes of a width for which atomics exist.
pub(crate) trait AtomicRaw: crate::machine::ctx::Raw + Word {}
impl AtomicRaw for u32 {}
impl AtomicRaw for u64 {}

/// A read-modify-write operation: computes the new value from the old value and the operands.
pub(crate) trait Modify: 'static {
    type L: Lane<Raw: AtomicRaw>;
    fn new(old: Self::L, b: Self::L, c: Self::L) -> Self::L;
    /// Performs the operation in memory and returns the old value.
    ///
    /// # Safety
    /// `at` must be valid and aligned for the type.
    #[inline(always)]
    unsafe fn update(at: *mut u8, b: Self::L, c: Self::L) -> RawOf<Self> {
        // SAFETY: `at` is valid and aligned for the type.
        unsafe { RawOf::<Self>::update(at, |old| Self::new(Self::L::from_raw(old), b, c).to_raw()) }
    }
}

type RawOf<M> = <<M as Modify>::L as Lane>::Raw;

/// Checks a vector of atomics as a single access. The extra operands are the space and the size in bytes.
pub(crate) fn check_vector(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let (space, bytes) = (SpaceKind::from_code(ctx.extra(op, 0).0), ctx.extra(op, 1).0.into());
    let found = locate(ctx, op, ctx.mask, Access { space, bytes, write: true });
    found.map_or_else(|flow| flow, |_| Flow::Next)
}

/// Runs an atomic. The extra operands are the third operand, the space, and whether the result is used.
pub(crate) fn run<M: Modify>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let mask = ctx.mask;
    let third = ctx.extra(op, 0);
    let space = SpaceKind::from_code(ctx.extra(op, 1).0);
    let bytes = size_of::<RawOf<M>>() as u64;
    let found = match locate(ctx, op, mask, Access { space, bytes, write: true }) {
        Ok(found) => found,
        Err(flow) => return flow,
    };
    for lane in lanes_of(mask) {
        let b = M::L::from_raw(ctx.lane(op.b, lane));
        let c = if third == Slot::NONE { b } else { M::L::from_raw(ctx.lane(third, lane)) };
        // SAFETY: located and aligned for this width. Only this thread accesses the block's shared memory.
        let old = unsafe {
            let at = found.at[lane];
            if space == SpaceKind::Shared {
                let old = RawOf::<M>::load(at);
                RawOf::<M>::store(at, M::new(M::L::from_raw(old), b, c).to_raw());
                old
            } else {
                M::update(at, b, c)
            }
        };
        ctx.set_lane(op.d, lane, old);
    }
    ctx.charge_atomic();
    Flow::Next
}

/// `atom.cas.b16`.
pub(crate) fn run_cas_16(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let mask = ctx.mask;
    let third = ctx.extra(op, 0);
    let space = SpaceKind::from_code(ctx.extra(op, 1).0);
    let found = match locate(ctx, op, mask, Access { space, bytes: 2, write: true }) {
        Ok(found) => found,
        Err(flow) => return flow,
    };
    for lane in lanes_of(mask) {
        let (b, c) = (ctx.lane::<u32>(op.b, lane) as u16, ctx.lane::<u32>(third, lane) as u16);
        // SAFETY: located and aligned for this width.
        let old = unsafe { u16::update(found.at[lane], |old| if old == b { c } else { old }) };
        ctx.set_lane(op.d, lane, u32::from(old));
    }
    ctx.charge_atomic();
    Flow::Next
}

/// Runs an atomic of a half.
pub(crate) fn run_half<M: Modify<L: Float<Raw = u32>>>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let mask = ctx.mask;
    let space = SpaceKind::from_code(ctx.extra(op, 1).0);
    let found = match locate(ctx, op, mask, Access { space, bytes: 2, write: true }) {
        Ok(found) => found,
        Err(flow) => return flow,
    };
    for lane in lanes_of(mask) {
        let b = M::L::from_raw(ctx.lane(op.b, lane));
        let new = |old: u16| M::new(M::L::from_raw(u32::from(old)), b, b).to_raw() as u16;
        // SAFETY: located and aligned for this width.
        let old = unsafe { u16::update(found.at[lane], new) };
        ctx.set_lane(op.d, lane, u32::from(old));
    }
    ctx.charge_atomic();
    Flow::Next
}

macro_rules! modify {
    ($($name:ident<$l:ident: $bound:path>, |$old:ident, $b:ident, $c:ident| $new:expr;)*) => { $(
        pub(crate) struct $name<$l>(std::marker::PhantomData<$l>);
        impl<$l: $bound + Lane<Raw: AtomicRaw>> Modify for $name<$l> {
            type L = $l;
            #[inline(always)]
            fn new($old: $l, $b: $l, $c: $l) -> $l { let _ = $c; $new }
        }
    )* };
}

modify! {
    And<L: Int>, |old, b, c| old.and(b);
    Or<L: Int>, |old, b, c| old.or(b);
    Xor<L: Int>, |old, b, c| old.xor(b);
    Min<L: Int>, |old, b, c| old.min(b);
    Max<L: Int>, |old, b, c| old.max(b);
    Inc<L: Int>, |old, b, c| if old >= b { L::default() } else { old.add(L::from_bits(1)) };
    Dec<L: Int>, |old, b, c| if old == L::default() || old > b { b } else { old.sub(L::from_bits(1)) };
    AddFloat<L: Float>, |old, b, c| old.add(b).canonical();
    MinFloat<L: Float>, |old, b, c| old.min(b);
    MaxFloat<L: Float>, |old, b, c| old.max(b);
}

/// `atom.add` of integers, by the processor's instruction.
pub(crate) struct Add<L>(std::marker::PhantomData<L>);
/// `atom.cas`, by the processor's instruction.
pub(crate) struct Cas<L>(std::marker::PhantomData<L>);

impl<L: Int + Lane<Raw: AtomicRaw>> Modify for Add<L> {
    type L = L;
    #[inline(always)]
    fn new(old: L, b: L, _: L) -> L {
        old.add(b)
    }
    #[inline(always)]
    unsafe fn update(at: *mut u8, b: L, _: L) -> L::Raw {
        // SAFETY: `at` is valid and aligned for the type.
        unsafe { L::Raw::add(at, b.to_raw()) }
    }
}

impl<L: Int + Lane<Raw: AtomicRaw>> Modify for Cas<L> {
    type L = L;
    #[inline(always)]
    fn new(old: L, b: L, c: L) -> L {
        if old == b { c } else { old }
    }
    #[inline(always)]
    unsafe fn update(at: *mut u8, b: L, c: L) -> L::Raw {
        // SAFETY: `at` is valid and aligned for the type.
        unsafe { L::Raw::exchange_if(at, b.to_raw(), c.to_raw()) }
    }
}

/// `atom.exch`.
pub(crate) struct Exch<L>(std::marker::PhantomData<L>);

impl<L: Int + Lane<Raw: AtomicRaw>> Modify for Exch<L> {
    type L = L;
    #[inline(always)]
    fn new(_: L, b: L, _: L) -> L {
        b
    }
}

/// Returns the slot of the upper half of a 128-bit register, which consists of two adjacent 64-bit registers, the low
/// half first.
pub(crate) fn upper(low: Slot) -> Slot {
    Slot(low.0.saturating_add((size_of::<u64>() * LANES) as u32))
}

/// An operation on 128 bits that replaces the old value.
pub(crate) trait Replace: 'static {
    const WRITES: bool;
    fn replaced(old: u128, b: u128, c: u128) -> u128;
}

macro_rules! replace {
    ($($name:ident, $writes:literal, |$old:ident, $b:ident, $c:ident| $new:expr;)*) => { $(
        pub(crate) struct $name;
        impl Replace for $name {
            const WRITES: bool = $writes;
            fn replaced($old: u128, $b: u128, $c: u128) -> u128 { $new }
        }
    )* };
}

replace! {
    Read, false, |old, _b, _c| old;
    Exchange, true, |_old, b, _c| b;
    CompareExchange, true, |old, b, c| if old == b { c } else { old };
}

/// Runs an atomic of 128 bits. The extra operands are the third operand and the space.
pub(crate) fn atomic<R: Replace>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let mask = ctx.mask;
    let third = ctx.extra(op, 0);
    let space = SpaceKind::from_code(ctx.extra(op, 1).0);
    let found = match locate(ctx, op, mask, Access { space, bytes: 16, write: R::WRITES }) {
        Ok(found) => found,
        Err(flow) => return flow,
    };
    let params = ctx.spaces.params.as_ptr_range();
    for lane in lanes_of(mask) {
        let (b, c, at) = (read(ctx, op.b, lane), read(ctx, third, lane), found.at[lane]);
        // SAFETY: located, and aligned for 16 bytes, as are all allocations that threads share. A program with this
        // instruction is loaded only if the processor supports the access.
        let old = unsafe {
            if params.contains(&at.cast_const()) {
                // The atomic access is an exchange, also if it only reads. Parameters may be in read-only memory, and
                // no thread writes them.
                at.cast::<u128>().read_unaligned()
            } else {
                access::update(at, |old| R::replaced(old, b, c))
            }
        };
        ctx.set_lane(op.d, lane, old as u64);
        ctx.set_lane(upper(op.d), lane, (old >> 64) as u64);
    }
    ctx.charge_atomic();
    Flow::Next
}

fn read(ctx: &Ctx<'_>, slot: Slot, lane: usize) -> u128 {
    if slot == Slot::NONE {
        return 0;
    }
    let (low, high) = (ctx.lane::<u64>(slot, lane), ctx.lane::<u64>(upper(slot), lane));
    u128::from(low) | u128::from(high) << 64
}
