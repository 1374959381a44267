//! The comparisons of `setp` and `set`.

use cuda_ptx::{ScalarType as T, Word as W};
use half::{bf16, f16};

use crate::exec::form::Form;
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

const EQ: u8 = Test::Eq as u8;
const NE: u8 = Test::Ne as u8;
const LT: u8 = Test::Lt as u8;
const LE: u8 = Test::Le as u8;
const GT: u8 = Test::Gt as u8;
const GE: u8 = Test::Ge as u8;
const EQU: u8 = Test::Equ as u8;
const NEU: u8 = Test::Neu as u8;
const LTU: u8 = Test::Ltu as u8;
const LEU: u8 = Test::Leu as u8;
const GTU: u8 = Test::Gtu as u8;
const GEU: u8 = Test::Geu as u8;
const NUM: u8 = Test::Num as u8;
const NAN: u8 = Test::Nan as u8;

/// Names of the operators. The unsigned ones (`lo`, `ls`, `hi`, `hs`) are the same as the others, because the type is
/// unsigned.
const NAMES: [(W, u8); 18] = [
    (W::Eq, EQ),
    (W::Ne, NE),
    (W::Lt, LT),
    (W::Le, LE),
    (W::Gt, GT),
    (W::Ge, GE),
    (W::Lo, LT),
    (W::Ls, LE),
    (W::Hi, GT),
    (W::Hs, GE),
    (W::Equ, EQU),
    (W::Neu, NEU),
    (W::Ltu, LTU),
    (W::Leu, LEU),
    (W::Gtu, GTU),
    (W::Geu, GEU),
    (W::Num, NUM),
    (W::Nan, NAN),
];

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
struct Cmp<L, const TEST: u8>(std::marker::PhantomData<L>);

impl<L: Lane + PartialOrd, const TEST: u8> Compare for Cmp<L, TEST> {
    type A = L;
    type B = L;
    #[inline(always)]
    fn apply(a: L, b: L, _imm: u64) -> bool {
        test::<L, TEST>(a, b)
    }
}

/// A comparison that flushes denormals first.
struct CmpFtz<L, const TEST: u8>(std::marker::PhantomData<L>);

impl<L: Float + PartialOrd, const TEST: u8> Compare for CmpFtz<L, TEST> {
    type A = L;
    type B = L;
    #[inline(always)]
    fn apply(a: L, b: L, _imm: u64) -> bool {
        test::<L, TEST>(a.flush(), b.flush())
    }
}

/// Selects a comparison of integers. Half of the operators are the negations of others.
macro_rules! int_tests {
    ($test:expr, $ty:ty) => {
        match $test {
            EQ => Some(map::compare::<Cmp<$ty, EQ>>()),
            NE => Some(negated(map::compare::<Cmp<$ty, EQ>>())),
            LT => Some(map::compare::<Cmp<$ty, LT>>()),
            GE => Some(negated(map::compare::<Cmp<$ty, LT>>())),
            LE => Some(map::compare::<Cmp<$ty, LE>>()),
            GT => Some(negated(map::compare::<Cmp<$ty, LE>>())),
            _ => None,
        }
    };
}

/// Selects a comparison of floating-point numbers. The unordered operators are the negations of ordered ones.
macro_rules! float_tests {
    ($test:expr, $cmp:ident, $ty:ty) => {
        match $test {
            EQ => Some(map::compare::<$cmp<$ty, EQ>>()),
            NE => Some(map::compare::<$cmp<$ty, NE>>()),
            LT => Some(map::compare::<$cmp<$ty, LT>>()),
            LE => Some(map::compare::<$cmp<$ty, LE>>()),
            GT => Some(map::compare::<$cmp<$ty, GT>>()),
            GE => Some(map::compare::<$cmp<$ty, GE>>()),
            NUM => Some(map::compare::<$cmp<$ty, NUM>>()),
            NEU => Some(negated(map::compare::<$cmp<$ty, EQ>>())),
            EQU => Some(negated(map::compare::<$cmp<$ty, NE>>())),
            GEU => Some(negated(map::compare::<$cmp<$ty, LT>>())),
            GTU => Some(negated(map::compare::<$cmp<$ty, LE>>())),
            LEU => Some(negated(map::compare::<$cmp<$ty, GT>>())),
            LTU => Some(negated(map::compare::<$cmp<$ty, GE>>())),
            NAN => Some(negated(map::compare::<$cmp<$ty, NUM>>())),
            _ => None,
        }
    };
}

fn negated(pick: Pick) -> Pick {
    pick.with(NEGATED)
}

/// Takes the name of the operator.
pub(crate) fn take_test(form: &mut Form<'_>) -> Option<u8> {
    let names = NAMES.map(|(name, _)| name);
    let taken = form.take_one(&names)?;
    NAMES.iter().find(|&&(name, _)| name == taken).map(|&(_, test)| test)
}

/// Selects the comparison for this type.
pub(crate) fn pick(test: u8, ty: T, ftz: bool) -> Option<Pick> {
    match ty {
        T::F32 if ftz => float_tests!(test, CmpFtz, f32),
        T::F16 if ftz => float_tests!(test, CmpFtz, f16),
        _ if ftz => None,
        T::B16 | T::U16 => int_tests!(test, u16),
        T::S16 => int_tests!(test, i16),
        T::B32 | T::U32 => int_tests!(test, u32),
        T::S32 => int_tests!(test, i32),
        T::B64 | T::U64 => int_tests!(test, u64),
        T::S64 => int_tests!(test, i64),
        T::F32 => float_tests!(test, Cmp, f32),
        T::F64 => float_tests!(test, Cmp, f64),
        T::F16 => float_tests!(test, Cmp, f16),
        T::BF16 => float_tests!(test, Cmp, bf16),
        _ => None,
    }
}

/// Returns a comparison for inequality of 32-bit words.
pub(crate) fn pick_not_zero() -> Pick {
    negated(map::compare::<Cmp<u32, EQ>>())
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
