//! Comparisons of packed halves.

use super::compare::by_code;
use crate::exec::map::{Binary, Compare};
use crate::exec::number::float::Scalar;
use crate::exec::number::lane::Two;
use crate::exec::number::rounding::Round;
use crate::lanes::simd::Level;

/// `imm` bits of [`SetTwo`], above the operator in the low byte.
pub(crate) const SET_FTZ: u64 = 0x100;
/// The result is all ones or zero, not 1.0 or 0.
pub(crate) const SET_ONES: u64 = 0x200;
/// The comparison is negated.
pub(crate) const SET_NOT: u64 = 0x400;

/// `set` of packed halves.
pub(crate) struct SetTwo<H>(std::marker::PhantomData<H>);

impl<H: Scalar<Raw = u32>> Binary for SetTwo<H> {
    type A = Two<H>;
    type B = Two<H>;
    type D = u32;
    const TOP: Level = Level::Base;
    #[inline(always)]
    fn apply(a: Two<H>, b: Two<H>, imm: u64) -> u32 {
        let part = |a: H, b: H| {
            let (a, b) = if imm & SET_FTZ != 0 { (a.flush(), b.flush()) } else { (a, b) };
            let one = if imm & SET_ONES != 0 {
                0xFFFF
            } else {
                H::round_from(1.0, Round::Nearest).to_raw()
            };
            if by_code(imm as u8, a, b) != (imm & SET_NOT != 0) { one } else { 0 }
        };
        part(a.0, b.0) | part(a.1, b.1) << 16
    }
}

/// `setp` of one of two packed halves. [`PART_HIGH`] in `imm` selects it.
pub(crate) struct CmpPart<H>(std::marker::PhantomData<H>);

impl<H: Scalar<Raw = u32>> Compare for CmpPart<H> {
    type A = Two<H>;
    type B = Two<H>;
    const TOP: Level = Level::Base;
    #[inline(always)]
    fn apply(a: Two<H>, b: Two<H>, imm: u64) -> bool {
        let (a, b) = if imm & PART_HIGH != 0 { (a.1, b.1) } else { (a.0, b.0) };
        let (a, b) = if imm & SET_FTZ != 0 { (a.flush(), b.flush()) } else { (a, b) };
        by_code(imm as u8, a, b)
    }
}

/// The `imm` bit of [`CmpPart`] that selects the high half.
pub(crate) const PART_HIGH: u64 = 0x1_0000;
