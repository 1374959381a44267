//! Comparisons of packed halves.

use cuda_ptx::ScalarType as T;
use half::{bf16, f16};

use super::compare::by_code;
use crate::exec::map;
use crate::exec::map::{Binary, Compare, Pick};
use crate::exec::number::float::Scalar;
use crate::exec::number::lane::Two;
use crate::exec::number::rounding::Round;
use crate::lanes::simd::Level;

/// `imm` bits of [`SetTwo`], above the operator in the low byte.
const SET_FTZ: u64 = 0x100;
/// The result is all ones or zero, not 1.0 or 0.
const SET_ONES: u64 = 0x200;
/// The comparison is negated.
pub(crate) const SET_NOT: u64 = 0x400;

/// `set` of packed halves.
struct SetTwo<H>(std::marker::PhantomData<H>);

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
struct CmpPart<H>(std::marker::PhantomData<H>);

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
const PART_HIGH: u64 = 0x1_0000;

/// Selects `set` of packed halves with packed results of type `to`.
pub(crate) fn pick_set(test: u8, to: T, from: T, ftz: bool) -> Option<Pick> {
    let imm = u64::from(test) | if ftz { SET_FTZ } else { 0 };
    match (to, from) {
        (T::F16x2, T::F16x2) => Some(map::binary::<SetTwo<f16>>().with(imm)),
        (T::BF16x2, T::BF16x2) => Some(map::binary::<SetTwo<bf16>>().with(imm)),
        (T::U32 | T::S32, T::F16x2) => Some(map::binary::<SetTwo<f16>>().with(imm | SET_ONES)),
        (T::U32 | T::S32, T::BF16x2) => Some(map::binary::<SetTwo<bf16>>().with(imm | SET_ONES)),
        _ => None,
    }
}

/// Selects `setp` of packed halves, for the comparison of one part.
pub(crate) fn pick_part(test: u8, ty: T, ftz: bool, high: bool) -> Option<Pick> {
    let imm = u64::from(test) | if ftz { SET_FTZ } else { 0 } | if high { PART_HIGH } else { 0 };
    match ty {
        T::F16x2 => Some(map::compare::<CmpPart<f16>>().with(imm)),
        T::BF16x2 => Some(map::compare::<CmpPart<bf16>>().with(imm)),
        _ => None,
    }
}
