//! Special registers that change while a kernel runs, and address-space conversions.

use super::locate::generic;
use crate::engine::ctx::{Ctx, LANES};
use crate::engine::fault::FaultSpace;
use crate::engine::op::{Flow, Op};

/// `%clock`, `%clock_hi` (by `imm`, the shift): see [`Clock`](crate::engine::ctx::Clock).
pub(crate) fn clock_32(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let now = (ctx.clock.now() >> op.imm) as u32;
    ctx.write(op.d, ctx.mask, &[now; LANES]);
    Flow::Next
}

/// `%clock64`.
pub(crate) fn clock_64(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let now = ctx.clock.now();
    super::atomics::burn(ctx);
    ctx.write(op.d, ctx.mask, &[now; LANES]);
    Flow::Next
}

/// `%globaltimer`.
pub(crate) fn global_timer(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let now = ctx.clock.global();
    super::atomics::burn(ctx);
    ctx.write(op.d, ctx.mask, &[now; LANES]);
    Flow::Next
}

/// `activemask`.
pub(crate) fn active_mask(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    ctx.write(op.d, ctx.mask, &[ctx.mask; LANES]);
    Flow::Next
}

/// `cvta`: adds `imm` (the window, or its negative for `cvta.to`).
pub(crate) fn add_window(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let values = ctx.read::<u64>(op.a).map(|a| a.wrapping_add(op.imm));
    ctx.write(op.d, ctx.mask, &values);
    Flow::Next
}

/// `isspacep`: whether a generic address lies in the space numbered `imm`.
pub(crate) fn is_in_space(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let mut result = 0;
    for (lane, address) in ctx.read::<u64>(op.a).into_iter().enumerate() {
        let space = match generic(address).0 {
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
