//! Decodes bit operations.

use cuda_ptx::{Operand, ScalarType as T, Word as W};

use super::compare::predicates;
use super::lanewise::{by_type, lanewise, of_type};
use crate::decode::build::builder::{Builder, DISAGREES, Problem};
use crate::decode::form::Form;
use crate::exec::alu::bits::{
    And, Bfe, Bfi, Bfind, Bmsk, Brev, Clz, Cnot, Fns, Lop3, Not, Or, PackField, Popc, Prmt,
    SHF_RIGHT, SHF_WRAP, Shf, Shl, Shr, Szext, Xor,
};
use crate::exec::alu::compare::not_zero;
use crate::exec::alu::select;
use crate::exec::alu::select::{Logic, NOT_B};
use crate::exec::map;
use crate::exec::map::Pick;
use crate::exec::number::lane::Kind;
use crate::isa::operand::Class;
use crate::machine::code::Op;

of_type! {
    not_bits: unary Not bits;
    and_bits: binary And bits;
    or_bits: binary Or bits;
    xor_bits: binary Xor bits;
    cnot: unary Cnot bits;
    shift_left: binary Shl bits;
    shift_right: binary Shr [B16: u16, B32: u32, B64: u64, U16: u16, S16: i16, U32: u32, S32: i32, U64: u64, S64: i64];
    count_ones: unary Popc [B32: u32, B64: u64];
    leading_zeros: unary Clz [B32: u32, B64: u64];
    reverse: unary Brev [B32: u32, B64: u64];
    extract: ternary Bfe [U32: u32, S32: i32, U64: u64, S64: i64];
    find_nth: ternary Fns [B32: u32];
}

/// Decodes `and`, `or` and `xor`, of bits or predicates.
pub(crate) fn logic(b: &mut Builder<'_>, form: &mut Form<'_>, logic: Logic) -> Result<(), Problem> {
    if form.peek_ty() == Some(T::Pred) {
        return predicates(b, form, Some(logic));
    }
    let pick = match logic {
        Logic::And => and_bits(form),
        Logic::Or => or_bits(form),
        Logic::Xor => xor_bits(form),
    };
    lanewise(pick, b, form)
}

/// Decodes `not`, of bits or a predicate.
pub(crate) fn not(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    if form.peek_ty() == Some(T::Pred) {
        return predicates(b, form, None);
    }
    lanewise(not_bits(form), b, form)
}

pub(crate) fn find_first(form: &mut Form<'_>) -> Option<Pick> {
    let amount = form.take(W::Shiftamt);
    let pick = by_type!(form.ty()?, unary, Bfind, [U32: u32, S32: i32, U64: u64, S64: i64]);
    pick.map(|pick| pick.with(amount.into()))
}

pub(crate) fn mask(form: &mut Form<'_>) -> Option<Pick> {
    let wrap = form.take_one(&[W::Clamp, W::Wrap])? == W::Wrap;
    by_type!(form.ty()?, binary, Bmsk, [B32: u32]).map(|pick| pick.with(wrap.into()))
}

pub(crate) fn extend(form: &mut Form<'_>) -> Option<Pick> {
    let wrap = form.take_one(&[W::Clamp, W::Wrap])? == W::Wrap;
    by_type!(form.ty()?, binary, Szext, [U32: u32, S32: i32]).map(|pick| pick.with(wrap.into()))
}

pub(crate) fn funnel_shift(form: &mut Form<'_>) -> Option<Pick> {
    let right = form.take_one(&[W::L, W::R])? == W::R;
    let wrap = form.take_one(&[W::Wrap, W::Clamp])? == W::Wrap;
    let mode = if right { SHF_RIGHT } else { 0 } | if wrap { SHF_WRAP } else { 0 };
    form.take_ty(T::B32).then(|| map::ternary::<Shf<u32>>().with(mode))
}

pub(crate) fn permute(form: &mut Form<'_>) -> Option<Pick> {
    // The handler's mode is the position, from 1.
    const MODES: [W; 6] = [W::F4e, W::B4e, W::Rc8, W::Ecl, W::Ecr, W::Rc16];
    let mode = form.take_code(&MODES).map_or(0, |at| at + 1);
    form.take_ty(T::B32).then(|| map::ternary::<Prmt<u32>>().with(mode))
}

/// Decodes `lop3`.
pub(crate) fn table(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let with = form.take_one(&[W::And, W::Or]);
    let table = form.constant_operand(4).filter(|_| form.take_ty(T::B32)).ok_or(DISAGREES)?;
    let pick = map::ternary::<Lop3>().with(table);
    match with {
        Some(W::And) => table_with_test(b, form, &pick, Logic::And),
        Some(_) => table_with_test(b, form, &pick, Logic::Or),
        None => lanewise(Some(pick), b, form),
    }
}

/// `lop3.or.b32 d|p, a, b, c, table, q;`: `p` is whether the result is nonzero, combined with `q`.
fn table_with_test(
    b: &mut Builder<'_>,
    form: &Form<'_>,
    pick: &Pick,
    how: Logic,
) -> Result<(), Problem> {
    let [Operand::Pair(d, p), x, y, z, _, q] = form.instruction().operands.as_slice() else {
        return Err(DISAGREES);
    };
    let mut op = Op::new(pick.run);
    op.imm = pick.imm;
    op.a = b.source(x, pick.d)?;
    op.b = b.source(y, pick.d)?;
    op.c = b.source(z, pick.d)?;
    op.d = b.frame.register(pick.d.class());
    b.emit_plain(op);
    let result = op.d;
    let test = not_zero();
    let mut op = Op::new(test.run);
    op.imm = test.imm;
    (op.a, op.b) = (result, b.source(&Operand::Int(0), pick.d)?);
    op.d = b.frame.register(Class::Pred);
    b.emit_plain(op);
    let (q, not) = b.pred(q)?;
    let mut logic = Op::new(select::logic);
    logic.imm = how as u64 | if not { NOT_B } else { 0 };
    (logic.a, logic.b) = (op.d, q);
    logic.d = b.dest(p, Kind::Pred, false)?;
    b.emit(logic)?;
    let mut copy = Op::new(select::copy::<u32>);
    copy.a = result;
    copy.d = b.dest(d, pick.d, false)?;
    b.emit(copy)
}

/// Decodes `bfi`. It has four sources, so position and length are packed into one register first.
pub(crate) fn insert(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let pick = match form.ty() {
        Some(T::B32) => map::ternary::<Bfi<u32>>(),
        Some(T::B64) => map::ternary::<Bfi<u64>>(),
        _ => return Err(DISAGREES),
    };
    let [d, x, y, at, len] = form.instruction().operands.as_slice() else { return Err(DISAGREES) };
    let pack = map::binary::<PackField>();
    let mut packed = Op::new(pack.run);
    packed.a = b.source(at, pack.d)?;
    packed.b = b.source(len, pack.d)?;
    packed.d = b.frame.register(pack.d.class());
    b.emit_plain(packed);
    let mut op = Op::new(pick.run);
    op.a = b.source(x, pick.d)?;
    op.b = b.source(y, pick.d)?;
    op.c = packed.d;
    op.d = b.dest(d, pick.d, false)?;
    b.emit(op)
}
