//! Atomic accesses of 128 bits.
//!
//! A 128-bit register consists of two adjacent 64-bit registers, the low half first. The unsafe code dereferences
//! pointers that `locate` has checked for the same access.

use super::locate::{Access, locate};
use crate::isa::address::SpaceKind;
use crate::isa::slot::Slot;
use crate::lanes::{LANES, lanes_of};
use crate::machine::code::{Flow, Op};
use crate::machine::ctx::Ctx;
use crate::memory::access_16;

/// Returns the slot of a register's upper half.
pub(crate) fn upper(low: Slot) -> Slot {
    Slot(low.0.saturating_add((size_of::<u64>() * LANES) as u32))
}

/// An operation that replaces the old value.
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

/// Runs an atomic. As in `atomics`, the extra operands are the third operand and the space.
pub(crate) fn atomic<R: Replace>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let mask = ctx.mask;
    let third = ctx.extra(op, 0);
    let space = SpaceKind::from_code(ctx.extra(op, 1).0);
    let found = match locate(ctx, op, mask, Access { space, bytes: 16, write: R::WRITES }) {
        Ok(found) => found,
        Err(flow) => return flow,
    };
    for lane in lanes_of(mask) {
        let (b, c) = (read(ctx, op.b, lane), read(ctx, third, lane));
        // SAFETY: located, and aligned for 16 bytes, as are all allocations that threads share. A program with this
        // instruction is loaded only if the processor supports the access.
        let old = unsafe { access_16::update(found.at[lane], |old| R::replaced(old, b, c)) };
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
