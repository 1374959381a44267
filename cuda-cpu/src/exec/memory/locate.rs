//! Translates the addresses of a warp's lanes to checked host pointers.
//!
//! A [`Located`] pointer is valid for its access until the warp is left. The context's view keeps global ranges alive,
//! and the other spaces belong to the running block.

use super::shape::{Address, all_inside_here, likely};
use crate::fault::{FaultKind, FaultSpace};
use crate::isa::address::{SpaceKind, generic};
use crate::isa::slot::Slot;
use crate::lanes::{LANES, lanes_of};
use crate::machine::code::{Flow, Op};
use crate::machine::ctx::Ctx;

/// The value of `Op::c` for a 32-bit address register.
pub(crate) const NARROW_ADDRESS: Slot = Slot(1);

/// Host pointers of the executing lanes. The pointers of other lanes are not valid.
pub(crate) struct Located {
    pub(crate) at: [*mut u8; LANES],
}

/// One access of every executing lane.
#[derive(Clone, Copy)]
pub(crate) struct Access {
    pub(crate) space: SpaceKind,
    pub(crate) bytes: u64,
    pub(crate) write: bool,
}

/// Returns the lanes' addresses: the address register plus the offset.
#[inline(always)]
fn addresses<A: Address>(ctx: &Ctx<'_>, op: &Op) -> [u64; LANES] {
    let registers = ctx.read::<A>(op.a);
    let mut addresses = [0; LANES];
    for lane in 0..LANES {
        addresses[lane] = registers[lane].plus(op.imm);
    }
    addresses
}

/// Checks the lanes one by one and returns their host pointers.
#[cold]
#[inline(never)]
pub(crate) fn locate_each<A: Address>(
    ctx: &mut Ctx<'_>,
    op: &Op,
    mask: u32,
    access: Access,
) -> Result<Located, Flow> {
    let addresses = addresses::<A>(ctx, op);
    each_lane(ctx, op, mask, access, &addresses)
}

/// Stores the allocation of the first executing lane's access in the cache. Returns false if it was already there or
/// does not exist. The lanes must then be checked one by one.
#[cold]
#[inline(never)]
pub(crate) fn prime<A: Address>(ctx: &mut Ctx<'_>, op: &Op, access: Access) -> bool {
    let lane = ctx.mask.trailing_zeros() as usize & 31;
    let address = ctx.lane::<A>(op.a, lane).plus(op.imm);
    let known = &ctx.caches[op.cache as usize];
    let global = matches!(access.space, SpaceKind::Global | SpaceKind::Generic)
        && generic(address).0 == FaultSpace::Global;
    if !global || known.locate(address, access.bytes).is_some() {
        return false;
    }
    let Ok(range) = ctx.view.find(address, access.bytes) else { return false };
    ctx.caches[op.cache as usize] = range;
    true
}

/// Checks the accesses of the lanes in `mask` and returns their host pointers.
pub(crate) fn locate(
    ctx: &mut Ctx<'_>,
    op: &Op,
    mask: u32,
    access: Access,
) -> Result<Located, Flow> {
    if op.c == NARROW_ADDRESS {
        locate_by::<u32>(ctx, op, mask, access)
    } else {
        locate_by::<u64>(ctx, op, mask, access)
    }
}

fn locate_by<A: Address>(
    ctx: &mut Ctx<'_>,
    op: &Op,
    mask: u32,
    access: Access,
) -> Result<Located, Flow> {
    let shape = likely(ctx, op, access.space);
    let all = std::mem::replace(&mut ctx.mask, mask);
    let inside = all_inside_here::<A>(ctx, op, &shape, access.bytes);
    let primed = !inside && prime::<A>(ctx, op, access);
    ctx.mask = all;
    if primed {
        return locate_by::<A>(ctx, op, mask, access);
    }
    if !inside {
        return locate_each::<A>(ctx, op, mask, access);
    }
    let addresses = addresses::<A>(ctx, op);
    let mut at = [std::ptr::null_mut(); LANES];
    for lane in 0..LANES {
        at[lane] = shape.at(addresses[lane], lane);
    }
    Ok(Located { at })
}

/// Checks each lane, for accesses to several allocations, to other spaces through generic addresses, and for faults.
fn each_lane(
    ctx: &mut Ctx<'_>,
    op: &Op,
    mask: u32,
    access: Access,
    addresses: &[u64; LANES],
) -> Result<Located, Flow> {
    let mut at = [std::ptr::null_mut(); LANES];
    for lane in lanes_of(mask) {
        at[lane] = locate_lane(ctx, op, access, lane, addresses[lane])?;
    }
    Ok(Located { at })
}

fn locate_lane(
    ctx: &mut Ctx<'_>,
    op: &Op,
    access: Access,
    lane: usize,
    address: u64,
) -> Result<*mut u8, Flow> {
    let Access { space, bytes, write } = access;
    let (space, at) = match space {
        SpaceKind::Global => (FaultSpace::Global, address),
        SpaceKind::Shared => (FaultSpace::Shared, address),
        SpaceKind::Local => (FaultSpace::Local, address),
        SpaceKind::Generic => generic(address),
    };
    if !address.is_multiple_of(bytes) {
        return Err(ctx
            .fail(lane, FaultKind::Misaligned { space, address: at, bytes: bytes as u32, write }));
    }
    let found = match space {
        FaultSpace::Global => {
            let cached = ctx.caches[op.cache as usize].locate(address, bytes);
            if let Some(host) = cached {
                return Ok(host);
            }
            match ctx.view.find(address, bytes) {
                Ok(range) => {
                    ctx.caches[op.cache as usize] = range;
                    range.locate(address, bytes)
                }
                Err(_) => return Err(ctx.fail_global(lane, address, bytes, write)),
            }
        }
        FaultSpace::Shared => ctx.spaces.shared(at, bytes),
        FaultSpace::Local => ctx.spaces.local(lane, at, bytes),
        FaultSpace::Param if write => None,
        FaultSpace::Param => {
            let params = ctx.spaces.params;
            let inside = at.saturating_add(bytes) <= params.len() as u64;
            inside.then(|| params.as_ptr().wrapping_add(at as usize).cast_mut())
        }
    };
    found.ok_or_else(|| {
        let kind = FaultKind::OutOfBounds { space, address: at, bytes: bytes as u32, write };
        ctx.fail(lane, kind)
    })
}

/// Reads one byte at a generic address.
pub(crate) fn read_byte(ctx: &mut Ctx<'_>, op: &Op, lane: usize, address: u64) -> Result<u8, Flow> {
    let access = Access { space: SpaceKind::Generic, bytes: 1, write: false };
    let at = locate_lane(ctx, op, access, lane, address)?;
    // SAFETY: `locate_lane` has checked this byte.
    Ok(unsafe { crate::memory::access::Word::load(at) })
}
