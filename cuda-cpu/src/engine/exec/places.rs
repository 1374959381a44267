//! Single accesses of single lanes, checked: for what is not one access of every lane.
//!
//! Places in shared memory are kept as offsets, those in global memory as addresses, and made pointers when they
//! are needed: nothing here outlives the instruction.

use super::locate::generic;
use crate::engine::ctx::Ctx;
use crate::engine::fault::{FaultKind, FaultSpace};
use crate::engine::op::{Flow, Op, Slot};

/// An access.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) bytes: u64,
    /// What the address must be a multiple of.
    pub(crate) align: u64,
    pub(crate) write: bool,
}

/// The lane's address in `Op::a`, with the offset in `imm`; [`NARROW_ADDRESS`](super::locate::NARROW_ADDRESS) in `c`.
pub(crate) fn address(ctx: &Ctx<'_>, op: &Op, lane: usize) -> u64 {
    if op.c == Slot::NONE {
        ctx.lane::<u64>(op.a, lane).wrapping_add(op.imm)
    } else {
        u64::from(ctx.lane::<u32>(op.a, lane).wrapping_add(op.imm as u32))
    }
}

/// The offset in shared memory that an address means, checked.
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
    if space != FaultSpace::Shared || ctx.spaces.shared.locate(at, bytes).is_none() {
        let bytes = bytes as u32;
        let kind = FaultKind::OutOfBounds { space: FaultSpace::Shared, address: at, bytes, write };
        return Err(ctx.fail(lane, kind));
    }
    Ok(at)
}

/// A pointer to bytes in shared memory.
pub(crate) fn shared_pointer(
    ctx: &mut Ctx<'_>,
    lane: usize,
    at: u64,
    bytes: u64,
    write: bool,
) -> Result<*mut u8, Flow> {
    let found = ctx.spaces.shared.locate(at, bytes);
    found.ok_or_else(|| {
        let (space, bytes) = (FaultSpace::Shared, bytes as u32);
        ctx.fail(lane, FaultKind::OutOfBounds { space, address: at, bytes, write })
    })
}

/// A pointer to bytes in global memory.
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
