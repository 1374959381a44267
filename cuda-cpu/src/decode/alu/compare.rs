//! `setp`, `set`, `testp`, and the logic of predicates.

use cuda_ptx::{Opcode as O, Operand, ScalarType as T, Word as W};

use crate::{
    decode::build::builder::{Builder, OPERANDS, Problem, UNKNOWN},
    exec::{
        alu::{
            compare, compare_packed, property,
            select::{self, Logic, NOT_A, NOT_B},
        },
        form::Form,
        map::Pick,
        number::lane::Kind,
    },
    isa::slot::{Class, Slot},
    machine::code::Op,
};

/// Returns the register kind for the bits of a type.
pub(crate) fn bits_kind(ty: T) -> Option<Kind> {
    Some(match ty {
        T::Pred => Kind::Pred,
        T::F32 => Kind::F32,
        T::F64 => Kind::F64,
        T::B128 | T::F32x2 => return None,
        ty if ty.size() == 8 => Kind::W64,
        _ => Kind::W32,
    })
}

fn take_logic(form: &mut Form<'_>) -> Option<Logic> {
    Some(match form.take_one(&[W::And, W::Or, W::Xor])? {
        W::And => Logic::And,
        W::Or => Logic::Or,
        _ => Logic::Xor,
    })
}

/// Emits a comparison into a new predicate register.
fn emit_compare(
    b: &mut Builder<'_>,
    pick: &Pick,
    x: &Operand,
    y: &Operand,
) -> Result<Slot, Problem> {
    let mut op = Op::new(pick.run);
    op.imm = pick.imm;
    let [Some(kx), Some(ky), None] = pick.sources else { return Err(UNKNOWN) };
    op.a = b.source(x, kx)?;
    op.b = b.source(y, ky)?;
    op.d = b.frame.register(Class::Pred);
    b.emit_plain(op);
    Ok(op.d)
}

/// `setp.lt.and.f32 p|q, a, b, c;`
pub(crate) fn setp(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let test = compare::take_test(form).ok_or(UNKNOWN)?;
    let logic = take_logic(form);
    let ftz = form.take(W::Ftz);
    let ty = form.ty().filter(|_| form.is_spent()).ok_or(UNKNOWN)?;
    let operands = form.instruction().operands.as_slice();
    let (dest, x, y, with) = match (operands, logic) {
        ([d, x, y], None) => (d, x, y, None),
        ([d, x, y, c], Some(logic)) => (d, x, y, Some((c, logic))),
        _ => return Err(OPERANDS),
    };
    if matches!(ty, T::F16x2 | T::BF16x2) {
        let Operand::Pair(p, q) = dest else { return Err(OPERANDS) };
        let with = keep_old(b, with)?;
        for (d, high) in [(p, false), (q, true)] {
            let pick = compare_packed::pick_part(test, ty, ftz, high).ok_or(UNKNOWN)?;
            let result = emit_compare(b, &pick, x, y)?;
            finish_slot(b, d, result, false, with)?;
        }
        return Ok(());
    }
    let pick = compare::pick(test, ty, ftz).ok_or(UNKNOWN)?;
    if let (None, Operand::Reg(_)) = (with, dest) {
        let mut op = Op::new(pick.run);
        op.imm = pick.imm;
        op.a = b.source(x, pick.sources[0].ok_or(UNKNOWN)?)?;
        op.b = b.source(y, pick.sources[1].ok_or(UNKNOWN)?)?;
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
    let test = compare::take_test(form).ok_or(UNKNOWN)?;
    let logic = take_logic(form);
    let ftz = form.take(W::Ftz);
    let (to, from) = form.ty().zip(form.ty()).filter(|_| form.is_spent()).ok_or(UNKNOWN)?;
    if let Some(pick) = compare_packed::pick_set(test, to, from, ftz) {
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
        _ => return Err(UNKNOWN),
    };
    let pick = compare::pick(test, from, ftz).ok_or(UNKNOWN)?;
    let operands = form.instruction().operands.as_slice();
    let (dest, mut result, with) = match operands {
        [d, x, y] => (d, emit_compare(b, &pick, x, y)?, None),
        [d, x, y, c] => (d, emit_compare(b, &pick, x, y)?, Some(c)),
        _ => return Err(OPERANDS),
    };
    if with.is_some() != logic.is_some() {
        return Err(OPERANDS);
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
    let [d, x, y, c] = form.instruction().operands.as_slice() else { return Err(OPERANDS) };
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
        Logic::Xor => (compared(b, compare_packed::SET_NOT), result),
    };
    op.d = b.dest(d, Kind::W32, false)?;
    b.emit(op)
}

/// `testp.finite.f32 p, a;`
pub(crate) fn testp(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let pick = property::pick(form).filter(|_| form.is_spent()).ok_or(UNKNOWN)?;
    let mut op = super::lanewise::operands(b, form, &pick)?;
    op.b = op.a;
    b.emit(op)
}

/// Decodes `and.pred`, `or.pred`, `xor.pred` and `not.pred`.
pub(crate) fn logic(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    form.ty();
    let operands = form.instruction().operands.as_slice();
    let (dest, x, y) = match operands {
        [d, x] if form.opcode() == O::Not => (d, x, None),
        [d, x, y] if form.opcode() != O::Not => (d, x, Some(y)),
        _ => return Err(OPERANDS),
    };
    if !form.is_spent() {
        return Err(UNKNOWN);
    }
    let (a, not_a) = b.pred(x)?;
    let mut op = match y {
        None => {
            let mut op = Op::new(select::copy_pred);
            op.imm = u64::from(!not_a);
            op
        }
        Some(y) => {
            let mut op = Op::new(select::logic);
            let not_b;
            (op.b, not_b) = b.pred(y)?;
            let logic = match form.opcode() {
                O::And => Logic::And,
                O::Or => Logic::Or,
                _ => Logic::Xor,
            };
            op.imm = logic as u64 | if not_a { NOT_A } else { 0 } | if not_b { NOT_B } else { 0 };
            op
        }
    };
    op.a = a;
    op.d = b.dest(dest, Kind::Pred, false)?;
    b.emit(op)
}
