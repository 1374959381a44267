//! The comparisons of `setp` and `set`, also of packed halves, and `testp`.

use crate::exec::map::{self, Binary, Compare, NEGATED, Pick};
use crate::exec::number::float::{Float, Scalar};
use crate::exec::number::lane::{Lane, Two};
use crate::exec::number::rounding::Round;
use crate::lanes::simd::Level;

/// A comparison operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Test {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Equ,
    Neu,
    Ltu,
    Leu,
    Gtu,
    Geu,
    Num,
    Nan,
}

pub(crate) const EQ: u8 = Test::Eq as u8;
pub(crate) const NE: u8 = Test::Ne as u8;
pub(crate) const LT: u8 = Test::Lt as u8;
pub(crate) const LE: u8 = Test::Le as u8;
pub(crate) const GT: u8 = Test::Gt as u8;
pub(crate) const GE: u8 = Test::Ge as u8;
pub(crate) const EQU: u8 = Test::Equ as u8;
pub(crate) const NEU: u8 = Test::Neu as u8;
pub(crate) const LTU: u8 = Test::Ltu as u8;
pub(crate) const LEU: u8 = Test::Leu as u8;
pub(crate) const GTU: u8 = Test::Gtu as u8;
pub(crate) const GEU: u8 = Test::Geu as u8;
pub(crate) const NUM: u8 = Test::Num as u8;
pub(crate) const NAN: u8 = Test::Nan as u8;

/// Compares two numbers. `NE` is ordered: it is false if an operand is NaN.
#[inline(always)]
fn test<L: PartialOrd, const TEST: u8>(a: L, b: L) -> bool {
    let ordered = a.partial_cmp(&b).is_some();
    match TEST {
        EQ => a == b,
        NE => ordered && a != b,
        LT => a < b,
        LE => a <= b,
        GT => a > b,
        GE => a >= b,
        EQU => !ordered || a == b,
        NEU => a != b,
        LTU => !ordered || a < b,
        LEU => !ordered || a <= b,
        GTU => !ordered || a > b,
        GEU => !ordered || a >= b,
        NUM => ordered,
        _ => !ordered,
    }
}

/// A comparison of type `L`. Its results are negated if `imm` contains [`NEGATED`].
pub(crate) struct Cmp<L, const TEST: u8>(std::marker::PhantomData<L>);

impl<L: Lane + PartialOrd, const TEST: u8> Compare for Cmp<L, TEST> {
    type A = L;
    type B = L;
    #[inline(always)]
    fn apply(a: L, b: L, _imm: u64) -> bool {
        test::<L, TEST>(a, b)
    }
}

/// A comparison that flushes denormals first.
pub(crate) struct CmpFtz<L, const TEST: u8>(std::marker::PhantomData<L>);

impl<L: Float + PartialOrd, const TEST: u8> Compare for CmpFtz<L, TEST> {
    type A = L;
    type B = L;
    #[inline(always)]
    fn apply(a: L, b: L, _imm: u64) -> bool {
        test::<L, TEST>(a.flush(), b.flush())
    }
}

/// Returns a comparison for inequality of 32-bit words.
pub(crate) fn not_zero() -> Pick {
    map::compare::<Cmp<u32, EQ>>().with(NEGATED)
}

/// Compares two numbers with the operator of this code.
fn by_code<H: PartialOrd>(code: u8, a: H, b: H) -> bool {
    match code {
        EQ => test::<H, EQ>(a, b),
        NE => test::<H, NE>(a, b),
        LT => test::<H, LT>(a, b),
        LE => test::<H, LE>(a, b),
        GT => test::<H, GT>(a, b),
        GE => test::<H, GE>(a, b),
        EQU => test::<H, EQU>(a, b),
        NEU => test::<H, NEU>(a, b),
        LTU => test::<H, LTU>(a, b),
        LEU => test::<H, LEU>(a, b),
        GTU => test::<H, GTU>(a, b),
        GEU => test::<H, GEU>(a, b),
        NUM => test::<H, NUM>(a, b),
        _ => test::<H, NAN>(a, b),
    }
}

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

/// Tests the property whose index is in `imm`: finite, infinite, number, not a number, normal or subnormal.
pub(crate) struct TestProperty<F>(std::marker::PhantomData<F>);

/// Types whose properties can be tested.
trait Properties: Scalar {
    /// Returns one bit for each property.
    fn properties(self) -> u32;
}

/// Tests only the bits: compilers replace floating-point tests by others, and not always by equivalent ones.
macro_rules! properties {
    ($ty:ty) => {
        impl Properties for $ty {
            #[inline(always)]
            fn properties(self) -> u32 {
                let magnitude = self.to_bits() & !(-0.0 as $ty).to_bits();
                let infinity = <$ty>::INFINITY.to_bits();
                let (finite, nan) = (magnitude < infinity, magnitude > infinity);
                let subnormal = magnitude != 0 && magnitude < <$ty>::MIN_POSITIVE.to_bits();
                // Zero is normal on a GPU.
                let all =
                    [finite, magnitude == infinity, !nan, nan, finite & !subnormal, subnormal];
                all.into_iter().rev().fold(0, |bits, bit| bits << 1 | u32::from(bit))
            }
        }
    };
}

properties!(f32);
properties!(f64);

impl<F: Properties> Compare for TestProperty<F> {
    type A = F;
    type B = F;
    const TOP: Level = Level::Base;
    #[inline(always)]
    fn apply(a: F, _: F, imm: u64) -> bool {
        a.properties() >> imm & 1 != 0
    }
}
