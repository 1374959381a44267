//! `setp`, `set`, `testp`, and the logic of predicates.

use cuda_ptx::{Operand, ScalarType as T, Word as W};
use half::{bf16, f16};

use crate::decode::build::builder::{Builder, DISAGREES, Problem};
use crate::decode::form::Form;
use crate::exec::alu::compare::{
    Cmp, CmpFtz, CmpPart, EQ, EQU, GE, GEU, GT, GTU, LE, LEU, LT, LTU, NAN, NE, NEU, NUM,
    PART_HIGH, SET_FTZ, SET_NOT, SET_ONES, SetTwo, TestProperty,
};
use crate::exec::alu::select;
use crate::exec::alu::select::{Logic, NOT_A, NOT_B};
use crate::exec::map;
use crate::exec::map::{NEGATED, Pick};
use crate::exec::number::lane::Kind;
use crate::isa::operand::{Class, Slot};
use crate::machine::code::Op;

/// Returns the register kind for the bits of a type.
pub(crate) fn bits_kind(ty: T) -> Option<Kind> {
    Some(match ty {
        T::Pred => Kind::Pred,
        T::F32 => Kind::F32,
        T::F64 => Kind::F64,
        ty if ty == T::B128 || !ty.is_fundamental() => return None,
        ty if ty.size() == 8 => Kind::W64,
        _ => Kind::W32,
    })
}

/// Names of the operators. The unsigned ones (`lo`, `ls`, `hi`, `hs`) are the same as the others, because the type is
/// unsigned.
const TESTS: [(W, u8); 18] = [
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

/// Selects the comparison for this type.
fn comparison(test: u8, ty: T, ftz: bool) -> Option<Pick> {
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

/// Selects `set` of packed halves with packed results of type `to`.
fn packed_set(test: u8, to: T, from: T, ftz: bool) -> Option<Pick> {
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
fn packed_part(test: u8, ty: T, ftz: bool, high: bool) -> Option<Pick> {
    let imm = u64::from(test) | if ftz { SET_FTZ } else { 0 } | if high { PART_HIGH } else { 0 };
    match ty {
        T::F16x2 => Some(map::compare::<CmpPart<f16>>().with(imm)),
        T::BF16x2 => Some(map::compare::<CmpPart<bf16>>().with(imm)),
        _ => None,
    }
}

const LOGIC: [(W, Logic); 3] = [(W::And, Logic::And), (W::Or, Logic::Or), (W::Xor, Logic::Xor)];

/// Emits a comparison into a new predicate register.
fn emit_compare(
    b: &mut Builder<'_>,
    pick: &Pick,
    x: &Operand,
    y: &Operand,
) -> Result<Slot, Problem> {
    let mut op = Op::new(pick.run);
    op.imm = pick.imm;
    let [Some(kx), Some(ky), None] = pick.sources else { return Err(DISAGREES) };
    op.a = b.source(x, kx)?;
    op.b = b.source(y, ky)?;
    op.d = b.frame.register(Class::Pred);
    b.emit_plain(op);
    Ok(op.d)
}

/// `setp.lt.and.f32 p|q, a, b, c;`
pub(crate) fn setp(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let test = form.take_from(&TESTS).ok_or(DISAGREES)?;
    let logic = form.take_from(&LOGIC);
    let ftz = form.take(W::Ftz);
    let ty = form.ty().ok_or(DISAGREES)?;
    let operands = form.instruction().operands.as_slice();
    let (dest, x, y, with) = match (operands, logic) {
        ([d, x, y], None) => (d, x, y, None),
        ([d, x, y, c], Some(logic)) => (d, x, y, Some((c, logic))),
        _ => return Err(DISAGREES),
    };
    if matches!(ty, T::F16x2 | T::BF16x2) {
        let (p, q) = match dest {
            Operand::Pair(p, q) => (&**p, &**q),
            p => (p, &Operand::Discard),
        };
        let with = keep_old(b, with)?;
        for (d, high) in [(p, false), (q, true)] {
            let pick = packed_part(test, ty, ftz, high).ok_or(DISAGREES)?;
            let result = emit_compare(b, &pick, x, y)?;
            finish_slot(b, d, result, false, with)?;
        }
        return Ok(());
    }
    let pick = comparison(test, ty, ftz).ok_or(DISAGREES)?;
    if let (None, Operand::Reg(_)) = (with, dest) {
        let mut op = Op::new(pick.run);
        op.imm = pick.imm;
        op.a = b.source(x, pick.sources[0].ok_or(DISAGREES)?)?;
        op.b = b.source(y, pick.sources[1].ok_or(DISAGREES)?)?;
        op.d = b.dest(dest, Kind::Pred, false)?;
        return b.emit(op);
    }
    let result = emit_compare(b, &pick, x, y)?;
    match dest {
        Operand::Pair(p, q) => {
            let with = keep_old(b, with)?;
            finish_slot(b, p, result, false, with)?;
            finish_slot(b, q, result, true, with)
        }
        d => finish(b, d, result, false, with),
    }
}

/// Copies the predicate with which results are combined. It may be the first destination, and the second result needs
/// its old value.
fn keep_old(
    b: &mut Builder<'_>,
    with: Option<(&Operand, Logic)>,
) -> Result<Option<(Slot, Logic)>, Problem> {
    let Some((c, logic)) = with else { return Ok(None) };
    let (slot, not) = b.pred(c)?;
    Ok(Some((copy_pred(b, slot, not), logic)))
}

fn copy_pred(b: &mut Builder<'_>, slot: Slot, not: bool) -> Slot {
    let mut op = Op::new(select::copy_pred);
    op.a = slot;
    op.imm = u64::from(not);
    op.d = b.frame.register(Class::Pred);
    b.emit_plain(op);
    op.d
}

fn finish(
    b: &mut Builder<'_>,
    dest: &Operand,
    result: Slot,
    inverted: bool,
    with: Option<(&Operand, Logic)>,
) -> Result<(), Problem> {
    let with = match with {
        Some((c, logic)) => {
            let (slot, not) = b.pred(c)?;
            let slot = if not { copy_pred(b, slot, true) } else { slot };
            Some((slot, logic))
        }
        None => None,
    };
    finish_slot(b, dest, result, inverted, with)
}

/// Emits `dest = result logic c`.
fn finish_slot(
    b: &mut Builder<'_>,
    dest: &Operand,
    result: Slot,
    inverted: bool,
    with: Option<(Slot, Logic)>,
) -> Result<(), Problem> {
    let mut op;
    match with {
        None => {
            op = Op::new(select::copy_pred);
            op.imm = u64::from(inverted);
        }
        Some((c, logic)) => {
            op = Op::new(select::logic);
            op.imm = logic as u64 | if inverted { NOT_A } else { 0 };
            op.b = c;
        }
    }
    op.a = result;
    op.d = b.dest(dest, Kind::Pred, false)?;
    b.emit(op)
}

/// `set.lt.u32.f32 d, a, b;`
pub(crate) fn set(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let test = form.take_from(&TESTS).ok_or(DISAGREES)?;
    let logic = form.take_from(&LOGIC);
    let ftz = form.take(W::Ftz);
    let (to, from) = form.ty().zip(form.ty()).ok_or(DISAGREES)?;
    if let Some(pick) = packed_set(test, to, from, ftz) {
        let ones = match to {
            T::F16x2 => 0x3C00_3C00,
            T::BF16x2 => 0x3F80_3F80,
            _ => 0xFFFF_FFFF,
        };
        return set_two(b, form, &pick, logic.map(|logic| (logic, ones)));
    }
    let one = match to {
        T::U32 | T::S32 => u64::from(u32::MAX),
        T::U16 | T::S16 => u64::from(u16::MAX),
        T::F32 => u64::from(1f32.to_bits()),
        T::F16 => 0x3C00,
        T::BF16 => 0x3F80,
        _ => return Err(DISAGREES),
    };
    let pick = comparison(test, from, ftz).ok_or(DISAGREES)?;
    let operands = form.instruction().operands.as_slice();
    let (dest, mut result, with) = match operands {
        [d, x, y] => (d, emit_compare(b, &pick, x, y)?, None),
        [d, x, y, c] => (d, emit_compare(b, &pick, x, y)?, Some(c)),
        _ => return Err(DISAGREES),
    };
    if with.is_some() != logic.is_some() {
        return Err(DISAGREES);
    }
    if let Some((c, logic)) = with.zip(logic) {
        let (c, not) = b.pred(c)?;
        let mut op = Op::new(select::logic);
        op.imm = logic as u64 | if not { NOT_B } else { 0 };
        (op.a, op.b, op.d) = (result, c, b.frame.register(Class::Pred));
        result = op.d;
        b.emit_plain(op);
    }
    let mut op = Op::new(select::pred_to_lanes);
    op.a = result;
    op.imm = one;
    op.d = b.dest(dest, Kind::W32, false)?;
    b.emit(op)
}

/// `set.lt.and.f16x2.f16x2 d, a, b, c;`: combines both results with `c`.
fn set_two(
    b: &mut Builder<'_>,
    form: &Form<'_>,
    pick: &Pick,
    logic: Option<(Logic, u64)>,
) -> Result<(), Problem> {
    let Some((logic, ones)) = logic else {
        let op = super::lanewise::operands(b, form, pick)?;
        return b.emit(op);
    };
    let [d, x, y, c] = form.instruction().operands.as_slice() else { return Err(DISAGREES) };
    let (x, y) = (b.source(x, Kind::W32)?, b.source(y, Kind::W32)?);
    let zero = b.source(&Operand::Int(0), Kind::W32)?;
    let compared = |b: &mut Builder<'_>, imm: u64| {
        let mut op = Op::new(pick.run);
        (op.a, op.b, op.imm) = (x, y, pick.imm | imm);
        op.d = b.frame.temporary(Class::W32);
        b.emit_plain(op);
        op.d
    };
    let result = compared(b, 0);
    let mut op = Op::new(select::select::<u32>);
    let not;
    (op.c, not) = b.pred(c)?;
    op.imm = u64::from(not);
    (op.a, op.b) = match logic {
        Logic::And => (result, zero),
        Logic::Or => (b.source(&Operand::Int(ones), Kind::W32)?, result),
        Logic::Xor => (compared(b, SET_NOT), result),
    };
    op.d = b.dest(d, Kind::W32, false)?;
    b.emit(op)
}

/// Selects the handler of `testp` by the property and the type.
fn property(form: &mut Form<'_>) -> Option<Pick> {
    // The handler's `imm` is the position.
    const PROPERTIES: [W; 6] =
        [W::Finite, W::Infinite, W::Number, W::Notanumber, W::Normal, W::Subnormal];
    let imm = form.take_code(&PROPERTIES)?;
    let mut pick = match form.ty()? {
        T::F32 => map::compare::<TestProperty<f32>>(),
        T::F64 => map::compare::<TestProperty<f64>>(),
        _ => return None,
    };
    pick.sources[1] = None;
    Some(pick.with(imm))
}

/// `testp.finite.f32 p, a;`
pub(crate) fn testp(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let pick = property(form).ok_or(DISAGREES)?;
    let mut op = super::lanewise::operands(b, form, &pick)?;
    op.b = op.a;
    b.emit(op)
}

/// Decodes `and.pred`, `or.pred` and `xor.pred`, or without an operation `not.pred`.
pub(crate) fn predicates(
    b: &mut Builder<'_>,
    form: &mut Form<'_>,
    logic: Option<Logic>,
) -> Result<(), Problem> {
    form.ty();
    let (dest, x, with) = match (form.instruction().operands.as_slice(), logic) {
        ([d, x], None) => (d, x, None),
        ([d, x, y], Some(logic)) => (d, x, Some((y, logic))),
        _ => return Err(DISAGREES),
    };
    let (a, not_a) = b.pred(x)?;
    let mut op = Op::new(select::copy_pred);
    op.imm = u64::from(!not_a);
    if let Some((y, logic)) = with {
        op.run = select::logic;
        let not_b;
        (op.b, not_b) = b.pred(y)?;
        op.imm = logic as u64 | if not_a { NOT_A } else { 0 } | if not_b { NOT_B } else { 0 };
    }
    op.a = a;
    op.d = b.dest(dest, Kind::Pred, false)?;
    b.emit(op)
}
