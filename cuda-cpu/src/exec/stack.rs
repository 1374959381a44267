//! `stackrestore`. The scheduler performs `alloca`.

use crate::fault::FaultKind;
use crate::lanes::lanes_of;
use crate::machine::code::{Flow, Op};
use crate::machine::ctx::{Ctx, Raw};

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
