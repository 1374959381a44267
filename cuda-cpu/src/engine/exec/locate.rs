//! From the addresses of a warp's lanes to checked host pointers.
//!
//! A [`Located`] pointer is valid for the access it was made for until the warp is left: global
//! ranges are held by the context's view, the other spaces are the running block's own.

use crate::engine::address::{LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, WINDOW};
use crate::engine::ctx::{Ctx, FULL, LANES, Raw, lanes_of};
use crate::engine::fault::{FaultKind, FaultSpace};
use crate::engine::op::{Flow, Op, Slot};
use crate::memory::Range;

/// The state space an instruction names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum SpaceKind {
    Global,
    Shared,
    Local,
    Generic,
}

impl SpaceKind {
    pub(crate) fn from_code(code: u32) -> Self {
        match code {
            0 => Self::Global,
            1 => Self::Shared,
            2 => Self::Local,
            _ => Self::Generic,
        }
    }
}

/// In `Op::c`: the address register has 32 bits.
pub(crate) const NARROW_ADDRESS: Slot = Slot(1);

/// Host pointers of the executing lanes; those of the others mean nothing.
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

/// The width of an address register.
pub(crate) trait Address: Raw {
    fn plus(self, offset: u64) -> u64;
}

impl Address for u32 {
    #[inline(always)]
    fn plus(self, offset: u64) -> u64 {
        u64::from(self.wrapping_add(offset as u32))
    }
}

impl Address for u64 {
    #[inline(always)]
    fn plus(self, offset: u64) -> u64 {
        self.wrapping_add(offset)
    }
}

/// The lanes' addresses: the address register plus the offset.
#[inline(always)]
fn addresses<A: Address>(ctx: &Ctx<'_>, op: &Op) -> [u64; LANES] {
    let registers = ctx.read::<A>(op.a);
    let mut addresses = [0; LANES];
    for lane in 0..LANES {
        addresses[lane] = registers[lane].plus(op.imm);
    }
    addresses
}

/// How the accesses of a warp lie, when one range holds them all.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    /// The range: `base` 0 for spaces other than global.
    pub(crate) range: Range,
    /// Distance of the lanes' own copies of the range (local memory).
    pub(crate) stride: u64,
    /// All lanes execute, and in each half warp elements follow each other in order.
    pub(crate) contiguous: bool,
    /// All lanes execute, and in each half warp all want the same element.
    pub(crate) uniform: bool,
}

impl Shape {
    /// Host address of a lane's access.
    #[inline(always)]
    pub(crate) fn at(&self, address: u64, lane: usize) -> *mut u8 {
        let offset = address.wrapping_sub(self.range.base) + lane as u64 * self.stride;
        self.range.host.wrapping_add(offset as usize)
    }
}

/// The range that the instruction's accesses most likely lie in.
#[inline(always)]
fn likely_range(ctx: &Ctx<'_>, op: &Op, space: SpaceKind) -> (Range, u64) {
    match space {
        SpaceKind::Global | SpaceKind::Generic => (ctx.caches[op.cache as usize], 0),
        SpaceKind::Shared => {
            let s = ctx.spaces.shared;
            (Range { base: 0, size: s.size, host: s.start }, 0)
        }
        SpaceKind::Local => {
            let s = ctx.spaces.local;
            (Range { base: 0, size: s.size, host: s.start }, s.size)
        }
    }
}

/// Checks the whole warp at once: `None` when a lane is outside of the likely range or misaligned.
#[inline(always)]
pub(crate) fn shape<A: Address>(
    ctx: &Ctx<'_>,
    op: &Op,
    mask: u32,
    access: Access,
) -> Option<Shape> {
    let bytes = access.bytes;
    let (range, stride) = likely_range(ctx, op, access.space);
    let limit = range.size.checked_sub(bytes)?;
    let registers = ctx.lanes::<A>(op.a);
    // SAFETY: register file rules.
    let offset =
        |lane: usize| unsafe { registers.add(lane).read() }.plus(op.imm).wrapping_sub(range.base);
    if mask != FULL {
        let bad = lanes_of(mask).fold(0, |bad, lane| bad | is_bad(offset(lane), limit, bytes));
        return (bad == 0).then_some(Shape { range, stride, contiguous: false, uniform: false });
    }
    let (mut bad, mut apart, mut differ) = (0, 0, 0);
    for half in 0..2 {
        let first = offset(half * HALF);
        for i in 0..HALF {
            let offset = offset(half * HALF + i);
            bad |= is_bad(offset, limit, bytes);
            apart |= offset ^ first.wrapping_add(i as u64 * bytes);
            differ |= offset ^ first;
        }
    }
    let own = stride != 0;
    let shape =
        Shape { range, stride, contiguous: apart == 0 && !own, uniform: differ == 0 && !own };
    (bad == 0).then_some(shape)
}

/// Lanes of half a warp: blocks are often 16 threads wide.
pub(crate) const HALF: usize = LANES / 2;

/// Not zero for an offset beyond the limit (the top bit) or a misaligned one (the low bits; ranges
/// are aligned).
#[inline(always)]
fn is_bad(offset: u64, limit: u64, bytes: u64) -> u64 {
    ((offset | limit.wrapping_sub(offset)) & (1 << 63)) | (offset & (bytes - 1))
}

/// Checks the accesses one by one and gives their host pointers.
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

/// Checks the accesses of the lanes in `mask` and gives their host pointers.
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

#[inline(always)]
fn locate_by<A: Address>(
    ctx: &mut Ctx<'_>,
    op: &Op,
    mask: u32,
    access: Access,
) -> Result<Located, Flow> {
    let Some(shape) = shape::<A>(ctx, op, mask, access) else {
        return locate_each::<A>(ctx, op, mask, access);
    };
    let addresses = addresses::<A>(ctx, op);
    let mut at = [std::ptr::null_mut(); LANES];
    for lane in 0..LANES {
        at[lane] = shape.at(addresses[lane], lane);
    }
    Ok(Located { at })
}

/// Lane by lane: several allocations, another space behind a generic address, or a fault.
fn each_lane(
    ctx: &mut Ctx<'_>,
    op: &Op,
    mask: u32,
    access: Access,
    addresses: &[u64; LANES],
) -> Result<Located, Flow> {
    let mut at = [std::ptr::null_mut(); LANES];
    for lane in lanes_of(mask) {
        at[lane] = one(ctx, op, access, lane, addresses[lane])?;
    }
    Ok(Located { at })
}

fn one(
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
        FaultSpace::Shared => ctx.spaces.shared.locate(at, bytes),
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

/// The space a generic address lies in, and its address there.
pub(crate) fn generic(address: u64) -> (FaultSpace, u64) {
    let within = |window: u64| address.checked_sub(window).filter(|&at| at < WINDOW);
    if let Some(at) = within(SHARED_WINDOW) {
        (FaultSpace::Shared, at)
    } else if let Some(at) = within(LOCAL_WINDOW) {
        (FaultSpace::Local, at)
    } else if let Some(at) = within(PARAM_WINDOW) {
        (FaultSpace::Param, at)
    } else {
        (FaultSpace::Global, address)
    }
}

/// One byte at a generic address.
pub(crate) fn read_byte(ctx: &mut Ctx<'_>, op: &Op, lane: usize, address: u64) -> Result<u8, Flow> {
    let access = Access { space: SpaceKind::Generic, bytes: 1, write: false };
    let at = one(ctx, op, access, lane, address)?;
    // SAFETY: `one` has checked this byte.
    Ok(unsafe { crate::memory::access::Word::load(at) })
}
