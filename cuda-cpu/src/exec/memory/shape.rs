//! A fast check for the common case: all accesses of a warp are in the range that the instruction used last.

use crate::isa::address::SpaceKind;
use crate::lanes::simd;
use crate::lanes::simd::{Bounds, Level, Pattern, Simd};
use crate::machine::code::Op;
use crate::machine::ctx::{Ctx, Raw};
use crate::machine::spaces::Segment;
use crate::memory::Range;

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
pub(crate) fn all_inside_here<A: Address>(
    ctx: &Ctx<'_>,
    op: &Op,
    shape: &Shape,
    bytes: u64,
) -> bool {
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
pub(crate) fn all_inside_here<A: Address>(
    ctx: &Ctx<'_>,
    op: &Op,
    shape: &Shape,
    bytes: u64,
) -> bool {
    all_inside::<A, simd::Base>(ctx, op, shape, bytes)
}
