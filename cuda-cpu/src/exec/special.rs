//! Special registers that change while a kernel runs, conversions of address spaces, and `stackrestore`.

use crate::fault::{FaultKind, FaultSpace};
use crate::isa::address::generic;
use crate::lanes::{LANES, lanes_of};
use crate::machine::code::{Flow, Op};
use crate::machine::ctx::{Ctx, Raw};

/// `%clock` and `%clock_hi`. `imm` is the shift. See [`Clock`](crate::machine::place::Clock).
pub(crate) fn clock_32(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let now = (ctx.clock.now() >> op.imm) as u32;
    ctx.write(op.d, ctx.mask, &[now; LANES]);
    Flow::Next
}

/// `%clock64`.
pub(crate) fn clock_64(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let now = ctx.clock.now();
    ctx.charge_atomic();
    ctx.write(op.d, ctx.mask, &[now; LANES]);
    Flow::Next
}

/// `%globaltimer`.
pub(crate) fn global_timer(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let now = ctx.clock.global();
    ctx.charge_atomic();
    ctx.write(op.d, ctx.mask, &[now; LANES]);
    Flow::Next
}

/// `%globaltimer_lo` and `%globaltimer_hi`. `imm` is the shift.
pub(crate) fn global_timer_32(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let now = (ctx.clock.global() >> op.imm) as u32;
    ctx.charge_atomic();
    ctx.write(op.d, ctx.mask, &[now; LANES]);
    Flow::Next
}

/// `cvta`: adds `imm`, which is the window, or its negative for `cvta.to`.
pub(crate) fn add_window(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let values = ctx.read::<u64>(op.a).map(|a| a.wrapping_add(op.imm));
    ctx.write(op.d, ctx.mask, &values);
    Flow::Next
}

/// The code of constant space in the `imm` of [`is_in_space`]. Constants are in global memory.
pub(crate) const IN_CONSTANT: u64 = 4;

/// `isspacep`: tests whether a generic address is in the space with the code in `imm`.
pub(crate) fn is_in_space(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let is_constant = |address| ctx.code.constants.iter().any(|range| range.contains(&address));
    let mut result = 0;
    for (lane, address) in ctx.read::<u64>(op.a).into_iter().enumerate() {
        let space = match generic(address).0 {
            FaultSpace::Global if is_constant(address) => IN_CONSTANT,
            FaultSpace::Global => 0,
            FaultSpace::Shared => 1,
            FaultSpace::Local => 2,
            FaultSpace::Param => 3,
        };
        result |= u32::from(space == op.imm) << lane;
    }
    ctx.set_pred(op.d, ctx.mask, result);
    Flow::Next
}

/// `stackrestore`: resets the end of local memory, in `d`, to `a`. `b` is the lowest valid value.
pub(crate) fn restore<A: Raw + Into<u64>>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let saved = ctx.read::<A>(op.a);
    for lane in lanes_of(ctx.mask) {
        let address: u64 = saved[lane].into();
        let stack = ctx.lane::<u32>(op.b, lane)..=ctx.lane::<u32>(op.d, lane);
        match u32::try_from(address).ok().filter(|at| stack.contains(at)) {
            Some(at) => ctx.set_lane(op.d, lane, at),
            None => return ctx.fail(lane, FaultKind::BadStackPointer { address }),
        }
    }
    Flow::Next
}
