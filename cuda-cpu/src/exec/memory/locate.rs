//! Translates addresses to checked host pointers: those of a warp's lanes, and those of single lanes.
//!
//! A fast check handles the common case: all accesses are in the range that the instruction used last ([`Shape`]). A
//! [`Located`] pointer is valid for its access until the warp is left. The context's view keeps global ranges alive,
//! and the other spaces belong to the running block.
//!
//! Instructions that are not a uniform access of all lanes check single lanes, with an [`Extent`]. Positions in shared
//! memory are stored as offsets, and those in global memory as addresses. They are converted to pointers when needed,
//! and the pointers do not outlive the instruction.

use crate::fault::{FaultKind, FaultSpace};
use crate::isa::address::{SpaceKind, generic};
use crate::isa::operand::Slot;
use crate::lanes::simd::{self, Bounds, Level, Pattern, Simd};
use crate::lanes::{LANES, lanes_of};
use crate::machine::code::{Flow, Op};
use crate::machine::ctx::{Ctx, Raw, Segment};
use crate::memory::Range;

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

/// An address register of 32 or 64 bits.
pub(crate) trait Address: Raw {
    fn plus(self, offset: u64) -> u64;
    /// # Safety
    /// As for [`Simd::pattern_64`].
    unsafe fn pattern<V: Simd, const STEP: u64>(lanes: *const Self) -> Pattern;
    /// # Safety
    /// As for [`Simd::outside_64`].
    unsafe fn outside<V: Simd>(lanes: *const Self, bounds: Bounds) -> u32;
}

macro_rules! address {
    ($ty:ty, $plus:expr, $pattern:ident, $outside:ident) => {
        impl Address for $ty {
            #[inline(always)]
            fn plus(self, offset: u64) -> u64 {
                $plus(self, offset)
            }
            #[inline(always)]
            unsafe fn pattern<V: Simd, const STEP: u64>(lanes: *const Self) -> Pattern {
                // SAFETY: `lanes` points to the lanes of a register, and the processor supports the level.
                unsafe { V::$pattern::<STEP>(lanes) }
            }
            #[inline(always)]
            unsafe fn outside<V: Simd>(lanes: *const Self, bounds: Bounds) -> u32 {
                // SAFETY: `lanes` points to the lanes of a register, and the processor supports the level.
                unsafe { V::$outside(lanes, bounds) }
            }
        }
    };
}

address!(u32, |at: u32, by| u64::from(at.wrapping_add(by as u32)), pattern_32, outside_32);
address!(u64, u64::wrapping_add, pattern_64, outside_64);

/// The memory of a warp's accesses, if a single range contains them all.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    /// The range. Its `base` is 0 in spaces other than global memory.
    pub(crate) range: Range,
    /// Distance between the lanes' separate copies of the range, for local memory.
    pub(crate) stride: u64,
}

impl Shape {
    /// Returns the host address of a lane's access.
    #[inline(always)]
    pub(crate) fn at(&self, address: u64, lane: usize) -> *mut u8 {
        // Wraps, because lanes that do not execute may have any address.
        let own = lane as u64 * self.stride;
        let offset = address.wrapping_sub(self.range.base).wrapping_add(own);
        self.range.host.wrapping_add(offset as usize)
    }

    /// Returns the host address of `bytes` bytes at `address`, if they are in the range and aligned to `align`.
    #[inline(always)]
    pub(crate) fn run(&self, address: u64, bytes: u64, align: u64) -> Option<*mut u8> {
        let offset = address.wrapping_sub(self.range.base);
        let limit = self.range.size.checked_sub(bytes)?;
        let inside = offset <= limit && offset & (align - 1) == 0;
        inside.then(|| self.range.host.wrapping_add(offset as usize))
    }
}

/// Returns the range that most likely contains the instruction's accesses.
#[inline(always)]
pub(crate) fn likely(ctx: &Ctx<'_>, op: &Op, space: SpaceKind) -> Shape {
    let own = |s: Segment, stride| Shape {
        range: Range { base: 0, size: s.size, host: s.start },
        stride,
    };
    match space {
        SpaceKind::Global | SpaceKind::Generic => {
            Shape { range: ctx.caches[op.cache as usize], stride: 0 }
        }
        SpaceKind::Shared => own(ctx.spaces.shared, 0),
        SpaceKind::Local => own(ctx.spaces.local, ctx.spaces.local.size),
    }
}

/// Returns whether the accesses of all executing lanes are in the range and aligned.
#[inline(always)]
pub(crate) fn all_inside<A: Address, V: Simd>(
    ctx: &Ctx<'_>,
    op: &Op,
    shape: &Shape,
    bytes: u64,
) -> bool {
    let Some(limit) = shape.range.size.checked_sub(bytes) else { return false };
    let bounds = Bounds { add: op.imm.wrapping_sub(shape.range.base), limit, align: bytes - 1 };
    // A narrow address is an offset in a small space.
    if size_of::<A>() == 4 && shape.range.base != 0 {
        return false;
    }
    // SAFETY: the registers of the current frame are valid for all lanes, and no other code accesses them
    // (`machine::ctx`). The processor supports the level.
    let outside = unsafe { A::outside::<V>(ctx.lanes(op.a), bounds) };
    outside & ctx.mask == 0
}

/// [`all_inside`] with the best instructions of the processor.
#[cfg(target_arch = "x86_64")]
fn all_inside_here<A: Address>(ctx: &Ctx<'_>, op: &Op, shape: &Shape, bytes: u64) -> bool {
    #[target_feature(enable = "avx2,fma")]
    fn fast<A: Address>(ctx: &Ctx<'_>, op: &Op, shape: &Shape, bytes: u64) -> bool {
        all_inside::<A, simd::Avx2>(ctx, op, shape, bytes)
    }
    if simd::level() == Level::Base {
        return all_inside::<A, simd::Base>(ctx, op, shape, bytes);
    }
    // SAFETY: the processor supports AVX2.
    unsafe { fast::<A>(ctx, op, shape, bytes) }
}

#[cfg(not(target_arch = "x86_64"))]
fn all_inside_here<A: Address>(ctx: &Ctx<'_>, op: &Op, shape: &Shape, bytes: u64) -> bool {
    all_inside::<A, simd::Base>(ctx, op, shape, bytes)
}

/// Size, alignment and kind of an access.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) bytes: u64,
    /// Required divisor of the address.
    pub(crate) align: u64,
    pub(crate) write: bool,
}

/// Returns the lane's address: the register `Op::a` plus the offset `imm`. `c` is
/// [`NARROW_ADDRESS`] for a 32-bit register.
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
