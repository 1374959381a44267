//! Decodes lane-wise instructions: selects the handler and converts the operands to its kinds.

use cuda_ptx::{Opcode as O, Operand, ScalarType as T, Word as W};

use crate::{
    decode::build::builder::{Builder, OPERANDS, Problem, UNKNOWN},
    exec::{
        alu::{
            approx,
            bits::{self, Bfi, PackField},
            carry, compare, extremes, float_arithmetic, int_arithmetic, packed,
            select::{self, Logic, NOT_B},
        },
        convert::cvt,
        form::Form,
        map::{self, Pick},
        number::lane::Kind,
    },
    isa::slot::{Class, Slot},
    machine::code::Op,
};

/// Decodes a lane-wise instruction.
pub(crate) fn decode(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    match form.opcode() {
        O::Bfi => return decode_bfi(b, form),
        O::Lop3 if form.has(W::And) || form.has(W::Or) => return decode_lop3_test(b, form),
        O::Addc | O::Subc | O::Madc => return decode_carry(b, form),
        O::Add | O::Sub | O::Mad if form.has(W::Cc) => return decode_carry(b, form),
        _ => {}
    }
    let pick = pick(form).filter(|_| form.is_spent()).ok_or(UNKNOWN)?;
    let op = operands(b, form, &pick)?;
    b.emit(op)
}

fn pick(form: &mut Form<'_>) -> Option<Pick> {
    let float = matches!(
        form.peek_ty(),
        Some(T::F16 | T::F16x2 | T::BF16 | T::BF16x2 | T::F32 | T::F32x2 | T::F64)
    );
    match form.opcode() {
        _ if packed::is_packed(form) => packed::pick(form),
        _ if extremes::is_extreme(form) => extremes::pick(form),
        O::Cvt => cvt::pick(form),
        O::Rcp | O::Sqrt | O::Rsqrt | O::Ex2 | O::Lg2 | O::Sin | O::Cos | O::Tanh => {
            approx::pick(form)
        }
        O::Div if float => approx::pick(form),
        O::Add
        | O::Sub
        | O::Mul
        | O::Mad
        | O::Fma
        | O::Min
        | O::Max
        | O::Neg
        | O::Abs
        | O::Copysign
            if float =>
        {
            float_arithmetic::pick(form)
        }
        O::Add
        | O::Sub
        | O::Mul
        | O::Mad
        | O::Mul24
        | O::Mad24
        | O::Div
        | O::Rem
        | O::Min
        | O::Max
        | O::Neg
        | O::Abs
        | O::Sad
        | O::Dp4a
        | O::Dp2a => int_arithmetic::pick(form),
        O::And
        | O::Or
        | O::Xor
        | O::Not
        | O::Cnot
        | O::Shl
        | O::Shr
        | O::Shf
        | O::Prmt
        | O::Popc
        | O::Clz
        | O::Brev
        | O::Bfind
        | O::Bfe
        | O::Bmsk
        | O::Szext
        | O::Fns
        | O::Lop3 => bits::pick(form),
        _ => None,
    }
}

/// Creates an op with the destination and sources that the handler requires.
pub(crate) fn operands(b: &mut Builder<'_>, form: &Form<'_>, pick: &Pick) -> Result<Op, Problem> {
    let written = form.instruction().operands.len() - form.constants_taken;
    let sources = pick.sources.iter().flatten().count();
    if written + usize::from(form.zero_appended) != sources + 1 {
        return Err(OPERANDS);
    }
    let mut op = Op::new(pick.run);
    op.imm = pick.imm;
    let mut slots = [Slot::NONE; 3];
    for (i, kind) in pick.sources.iter().enumerate() {
        let Some(kind) = *kind else { continue };
        let zero = Operand::Int(0);
        let operand = form.operand(i + 1).filter(|_| i + 1 < written).unwrap_or(&zero);
        slots[i] = b.source(operand, kind)?;
    }
    [op.a, op.b, op.c] = slots;
    op.d = b.dest(form.operand(0).ok_or(OPERANDS)?, pick.d, pick.signed)?;
    Ok(op)
}

/// Decodes `bfi`. It has four sources, so position and length are packed into one register first.
fn decode_bfi(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let pick = match form.ty() {
        Some(T::B32) => map::ternary::<Bfi<u32>>(),
        Some(T::B64) => map::ternary::<Bfi<u64>>(),
        _ => return Err(UNKNOWN),
    };
    let [d, x, y, at, len] = form.instruction().operands.as_slice() else { return Err(OPERANDS) };
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
    if form.is_spent() { b.emit(op) } else { Err(UNKNOWN) }
}

fn decode_carry(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let pick = carry::pick(form).filter(|_| form.is_spent()).ok_or(UNKNOWN)?;
    let mut op = operands(b, form, &pick)?;
    let carry = b.carry();
    op.extra = b.extras([carry]);
    b.emit(op)
}

/// `lop3.or.b32 d|p, a, b, c, table, q;`: `p` is whether the result is nonzero, combined with `q`.
fn decode_lop3_test(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let how = if form.take(W::And) { Logic::And } else { Logic::Or };
    form.take(W::Or);
    let pick = bits::pick(form).filter(|_| form.is_spent()).ok_or(UNKNOWN)?;
    let [Operand::Pair(d, p), x, y, z, _, q] = form.instruction().operands.as_slice() else {
        return Err(OPERANDS);
    };
    let mut op = Op::new(pick.run);
    op.imm = pick.imm;
    op.a = b.source(x, pick.d)?;
    op.b = b.source(y, pick.d)?;
    op.c = b.source(z, pick.d)?;
    op.d = b.frame.register(pick.d.class());
    b.emit_plain(op);
    let result = op.d;
    let test = compare::pick_not_zero();
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
