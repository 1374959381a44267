//! From the addresses of a warp's lanes to checked host pointers.
//!
//! A [`Located`] pointer is valid for the access it was made for until the warp is left: global
//! ranges are held by the context's view, the other spaces are the running block's own.

use crate::engine::address::{LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, WINDOW};
use crate::engine::ctx::{Ctx, FULL, LANES, lanes_of};
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

/// Host pointers of the executing lanes; null for the others.
pub(crate) struct Located {
    pub(crate) at: [*mut u8; LANES],
    /// All lanes execute and their elements follow each other, in order.
    pub(crate) contiguous: bool,
}

/// One access of every executing lane.
#[derive(Clone, Copy)]
pub(crate) struct Access {
    pub(crate) space: SpaceKind,
    pub(crate) bytes: u64,
    pub(crate) write: bool,
}

/// The lanes' addresses: the address register plus the offset.
#[inline(always)]
pub(crate) fn addresses(ctx: &Ctx<'_>, op: &Op) -> [u64; LANES] {
    if op.c == NARROW_ADDRESS {
        ctx.read::<u32>(op.a).map(|a| u64::from(a.wrapping_add(op.imm as u32)))
    } else {
        ctx.read::<u64>(op.a).map(|a| a.wrapping_add(op.imm))
    }
}

/// Checks the accesses of the lanes in `mask` and gives their host pointers.
#[inline(always)]
pub(crate) fn locate(
    ctx: &mut Ctx<'_>,
    op: &Op,
    mask: u32,
    access: Access,
) -> Result<Located, Flow> {
    let addresses = addresses(ctx, op);
    let (range, stride) = match access.space {
        SpaceKind::Global | SpaceKind::Generic => (ctx.caches[op.cache as usize], 0),
        SpaceKind::Shared => {
            let s = ctx.spaces.shared;
            (Range { base: 0, size: s.size, host: s.start }, 0)
        }
        SpaceKind::Local => {
            let s = ctx.spaces.local;
            (Range { base: 0, size: s.size, host: s.start }, s.size)
        }
    };
    match within(&range, stride, &addresses, mask, access.bytes) {
        Some(located) => Ok(located),
        None => each_lane(ctx, op, mask, access, &addresses),
    }
}

/// The whole warp at once, when one range holds all accesses.
#[inline(always)]
fn within(
    range: &Range,
    stride: u64,
    addresses: &[u64; LANES],
    mask: u32,
    bytes: u64,
) -> Option<Located> {
    let limit = range.size.checked_sub(bytes)?;
    let mut offsets = [0u64; LANES];
    // The top bit: an offset beyond the limit. The low bits: a misaligned one.
    let (mut bad, mut spread) = (0u64, 0u64);
    let first = addresses[0].wrapping_sub(range.base);
    for lane in 0..LANES {
        let offset = addresses[lane].wrapping_sub(range.base);
        let offset = if mask >> lane & 1 != 0 { offset } else { 0 };
        bad |= ((offset | limit.wrapping_sub(offset)) & (1 << 63)) | (offset & (bytes - 1));
        spread |= offset ^ first.wrapping_add(lane as u64 * bytes);
        offsets[lane] = offset;
    }
    if bad != 0 {
        return None;
    }
    let mut at = [std::ptr::null_mut(); LANES];
    for (lane, at) in at.iter_mut().enumerate() {
        *at = range.host.wrapping_add((offsets[lane] + lane as u64 * stride) as usize);
    }
    Some(Located { at, contiguous: spread == 0 && stride == 0 && mask == FULL })
}

/// Lane by lane: several allocations, another space behind a generic address, or a fault.
#[cold]
#[inline(never)]
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
    Ok(Located { at, contiguous: false })
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
