//! Checked accesses of single lanes, for instructions that are not a uniform access of all lanes.
//!
//! Positions in shared memory are stored as offsets, and those in global memory as addresses. They are converted to
//! pointers when needed, and the pointers do not outlive the instruction.

use crate::{
    fault::{FaultKind, FaultSpace},
    isa::{address::generic, slot::Slot},
    machine::{
        code::{Flow, Op},
        ctx::Ctx,
    },
};

/// Size, alignment and kind of an access.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) bytes: u64,
    /// Required divisor of the address.
    pub(crate) align: u64,
    pub(crate) write: bool,
}

/// Returns the lane's address: the register `Op::a` plus the offset `imm`. `c` is
/// [`NARROW_ADDRESS`](super::locate::NARROW_ADDRESS) for a 32-bit register.
pub(crate) fn address(ctx: &Ctx<'_>, op: &Op, lane: usize) -> u64 {
    if op.c == Slot::NONE {
        ctx.lane::<u64>(op.a, lane).wrapping_add(op.imm)
    } else {
        u64::from(ctx.lane::<u32>(op.a, lane).wrapping_add(op.imm as u32))
    }
}

/// Checks an address and returns its offset in shared memory.
pub(crate) fn shared(
    ctx: &mut Ctx<'_>,
    lane: usize,
    address: u64,
    is_generic: bool,
    extent: Extent,
) -> Result<u64, Flow> {
    let (space, at) = if is_generic { generic(address) } else { (FaultSpace::Shared, address) };
    let Extent { bytes, align, write } = extent;
    if !at.is_multiple_of(align) {
        let kind = FaultKind::Misaligned { space, address: at, bytes: align as u32, write };
        return Err(ctx.fail(lane, kind));
    }
    if space != FaultSpace::Shared || ctx.spaces.shared(at, bytes).is_none() {
        let bytes = bytes as u32;
        let kind = FaultKind::OutOfBounds { space: FaultSpace::Shared, address: at, bytes, write };
        return Err(ctx.fail(lane, kind));
    }
    Ok(at)
}

/// Returns a checked pointer to bytes in shared memory.
pub(crate) fn shared_pointer(
    ctx: &mut Ctx<'_>,
    lane: usize,
    at: u64,
    bytes: u64,
    write: bool,
) -> Result<*mut u8, Flow> {
    let found = ctx.spaces.shared(at, bytes);
    found.ok_or_else(|| {
        let (space, bytes) = (FaultSpace::Shared, bytes as u32);
        ctx.fail(lane, FaultKind::OutOfBounds { space, address: at, bytes, write })
    })
}

/// Returns a checked pointer to bytes in global memory.
pub(crate) fn global_pointer(
    ctx: &mut Ctx<'_>,
    lane: usize,
    address: u64,
    extent: Extent,
) -> Result<*mut u8, Flow> {
    let Extent { bytes, align, write } = extent;
    if !address.is_multiple_of(align) {
        let space = FaultSpace::Global;
        let kind = FaultKind::Misaligned { space, address, bytes: align as u32, write };
        return Err(ctx.fail(lane, kind));
    }
    let found = ctx.view.find(address, bytes).ok();
    match found.and_then(|range| range.locate(address, bytes)) {
        Some(pointer) => Ok(pointer),
        None => Err(ctx.fail_global(lane, address, bytes, write)),
    }
}
