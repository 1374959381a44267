//! What looks at the addresses of a whole warp at once, for each level of processor.
//!
//! Compilers make poor code of these loops, and loads and stores are most of what kernels do: so they are written
//! with the processor's own instructions. [`Level`] is decided once; handlers are chosen by it when a program is
//! decoded.
//!
//! Three handlers of each operation take three times as long to compile: the crate's unit tests, which look at what is
//! around them, have the base level alone, and so do builds with `--cfg one_level` (those for sanitizers).
//!
//! The unsafe code here reads the lanes of a register (the register file's rules) and calls the instructions of
//! the level it is written for.
#![cfg_attr(any(not(target_arch = "x86_64"), test, one_level), allow(dead_code, unused_imports))]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod base;

use std::sync::LazyLock;

use crate::engine::ctx::LANES;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Avx512;
pub(crate) use base::Base;

/// Lanes of half a warp: blocks are often 16 threads wide.
pub(crate) const HALF: usize = LANES / 2;

/// The instructions that handlers may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// What every processor of the target has.
    Base,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 F, VL, BW and DQ.
    Avx512,
}

static LEVEL: LazyLock<Level> = LazyLock::new(detect);

#[cfg(target_arch = "x86_64")]
fn detect() -> Level {
    use std::arch::is_x86_feature_detected as has;
    if !(has!("avx2") && has!("fma")) {
        return Level::Base;
    }
    let wide = has!("avx512f") && has!("avx512vl") && has!("avx512bw") && has!("avx512dq");
    if wide { Level::Avx512 } else { Level::Avx2 }
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> Level {
    Level::Base
}

/// What this processor has, as far as there are handlers for it.
pub(crate) fn level() -> Level {
    if cfg!(any(test, one_level)) { Level::Base } else { *LEVEL }
}

/// How the addresses of a warp lie, each half warp by itself: blocks are often 16 threads wide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// One element after the other.
    Contiguous,
    /// All the same.
    Uniform,
    Mixed,
}

impl Pattern {
    #[inline(always)]
    fn new(contiguous: bool, uniform: bool) -> Self {
        match (contiguous, uniform) {
            (true, _) => Self::Contiguous,
            (_, true) => Self::Uniform,
            _ => Self::Mixed,
        }
    }
}

/// Where accesses may lie.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Added to the lanes' registers, it gives the offset in the range.
    pub(crate) add: u64,
    /// The highest offset; below 2^63, and below 2^31 for 32-bit addresses.
    pub(crate) limit: u64,
    /// The bits that must be zero in an offset.
    pub(crate) align: u64,
}

/// The functions of one level.
pub(crate) trait Simd: 'static {
    /// Handlers visit the executing lanes one by one, which compiles several times faster than a loop over all lanes.
    const SCALAR: bool = false;
    /// How the addresses in the lanes of a register lie: `STEP` bytes are an element.
    ///
    /// # Safety
    /// `lanes` are the lanes of a register, and the processor has the level.
    unsafe fn pattern_32<const STEP: u64>(lanes: *const u32) -> Pattern;
    /// # Safety
    /// As above.
    unsafe fn pattern_64<const STEP: u64>(lanes: *const u64) -> Pattern;
    /// The lanes whose offset is beyond the limit or misaligned.
    ///
    /// # Safety
    /// As above.
    unsafe fn outside_32(lanes: *const u32, bounds: Bounds) -> u32;
    /// # Safety
    /// As above.
    unsafe fn outside_64(lanes: *const u64, bounds: Bounds) -> u32;
    /// Copies 64 bytes, of which either side may race.
    ///
    /// # Safety
    /// Both ends are valid for 64 bytes, and the processor has the level.
    unsafe fn copy_64(dst: *mut u8, src: *const u8);
    /// The top bits of bytes.
    ///
    /// # Safety
    /// The processor has the level.
    unsafe fn bits(bytes: &[u8; LANES]) -> u32;
    /// Writes the values of `lanes`.
    ///
    /// # Safety
    /// `d` are the lanes of half a register, and the processor has the level.
    unsafe fn blend_32(d: *mut u32, values: &[u32; HALF], lanes: u16);
    /// # Safety
    /// As above.
    unsafe fn blend_64(d: *mut u64, values: &[u64; HALF], lanes: u16);
}
