//! The comparisons of `setp` and `set`.

use crate::exec::map;
use crate::exec::map::{Compare, NEGATED, Pick};
use crate::exec::number::float::Float;
use crate::exec::number::lane::Lane;

/// A comparison operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Test {
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
pub(super) fn by_code<H: PartialOrd>(code: u8, a: H, b: H) -> bool {
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
