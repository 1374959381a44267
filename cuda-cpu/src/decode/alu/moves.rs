//! `mov`, `cvta`, `isspacep`, `selp` and `slct`.

use cuda_ptx::{Operand, ScalarType as T, Special, Word as W};

use super::compare::bits_kind;
use super::lanewise::lanewise;
use crate::decode::build::builder::{Builder, DISAGREES, Problem};
use crate::decode::form::Form;
use crate::decode::memory::load_store::GENERIC_SPACES;
use crate::decode::memory::wide;
use crate::exec::alu::select;
use crate::exec::map::Pick;
use crate::exec::number::lane::Kind;
use crate::exec::special::{IN_CONSTANT, add_window, is_in_space};
use crate::isa::address::{LOCAL_WINDOW, SHARED_WINDOW};
use crate::isa::operand::Class;
use crate::machine::code::{Handler, Op};

/// Decodes `mov`: registers, constants, addresses, special registers, packing and unpacking.
pub(crate) fn mov(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    if form.has_ty(T::B128) {
        return wide::mov(b, form);
    }
    let count = form.take_from(&[(W::V2, 2), (W::V4, 4)]);
    let ty = form.ty().ok_or(DISAGREES)?;
    let kind = bits_kind(ty).ok_or(DISAGREES)?;
    let [d, a] = form.instruction().operands.as_slice() else { return Err(DISAGREES) };
    if let Some(count) = count {
        return elements(b, d, a, count, kind);
    }
    match (alone(d), alone(a)) {
        (Operand::Vector(parts), a) => unpack(b, parts, a, ty, kind),
        (d, Operand::Vector(parts)) => pack(b, d, parts, ty, kind),
        (d, a) => one(b, d, a, kind),
    }
}

/// Decodes a `mov` of one value.
fn one(b: &mut Builder<'_>, d: &Operand, a: &Operand, kind: Kind) -> Result<(), Problem> {
    if always(b, d, a, kind) {
        return Ok(());
    }
    let mut op = Op::new(copy_of(kind));
    if kind == Kind::Pred && !matches!(a, Operand::Special(_)) {
        let not;
        (op.a, not) = b.pred(a)?;
        op.imm = u64::from(not);
    } else {
        op.a = b.source(a, kind)?;
    }
    op.d = b.dest(d, kind, false)?;
    b.emit(op)
}

fn copy_of(kind: Kind) -> Handler {
    match kind.class() {
        Class::Pred => select::copy_pred,
        Class::W32 => select::copy::<u32>,
        Class::W64 => select::copy::<u64>,
    }
}

/// Returns the element of a vector operand with one element, and other operands unchanged.
fn alone(operand: &Operand) -> &Operand {
    let Operand::Vector(parts) = operand else { return operand };
    if let [part] = parts.as_slice() { part } else { operand }
}

/// `mov.v2.u64 d, {a, b};` and `mov.v4.u32 d, %tid;`, element by element.
fn elements(
    b: &mut Builder<'_>,
    d: &Operand,
    a: &Operand,
    count: usize,
    kind: Kind,
) -> Result<(), Problem> {
    let Operand::Vector(dests) = d else { return Err(DISAGREES) };
    if dests.len() != count || kind == Kind::Pred {
        return Err(DISAGREES);
    }
    let written = |d: &&Operand| **d != Operand::Discard;
    match a {
        Operand::Special(Special::Named(name)) if name.is_vector() && count == 4 => {
            let elements = (0..).map(|i| Operand::Special(Special::Element(*name, i)));
            let mut moves = dests.iter().zip(elements).filter(|(d, _)| written(d));
            moves.try_for_each(|(d, element)| one(b, d, &element, kind))
        }
        Operand::Vector(sources) if sources.len() == count => {
            // All sources are read before the first destination is written, as in `mov.v2.b32 {%a, %b}, {%b, %a};`.
            let mut values = Vec::new();
            for source in sources {
                let mut op = Op::new(copy_of(kind));
                (op.a, op.d) = (b.source(source, kind)?, b.frame.register(kind.class()));
                b.emit_plain(op);
                values.push(op.d);
            }
            for (dest, value) in dests.iter().zip(values).filter(|(d, _)| written(d)) {
                let mut op = Op::new(copy_of(kind));
                (op.a, op.d) = (value, b.dest(dest, kind, false)?);
                b.emit(op)?;
            }
            Ok(())
        }
        _ => Err(DISAGREES),
    }
}

/// Makes the destination share the source's slot if both are constant. Returns false if an op is needed.
fn always(b: &mut Builder<'_>, d: &Operand, a: &Operand, kind: Kind) -> bool {
    match a {
        _ if kind == Kind::Pred => false,
        Operand::Reg(_) => b.is_always_as(d, kind.class(), a),
        _ => b.value(a, kind).is_ok_and(|value| b.is_always(d, kind.class(), value)),
    }
}

/// Returns the number of bits of each part of a value.
fn bits_of_part(ty: T, parts: &[Operand]) -> Result<u64, Problem> {
    match (ty.size(), parts.len()) {
        (size @ (2 | 4 | 8), count @ 2) | (size @ (4 | 8), count @ 4) => {
            Ok(u64::from(8 * size) / count as u64)
        }
        _ => Err(DISAGREES),
    }
}

/// `mov.b64 d, {a, b};`: the first part is the lowest.
fn pack(
    b: &mut Builder<'_>,
    d: &Operand,
    parts: &[Operand],
    ty: T,
    kind: Kind,
) -> Result<(), Problem> {
    let mut bits = bits_of_part(ty, parts)?;
    let mut slots = parts.iter().map(|p| b.source(p, Kind::W32)).collect::<Result<Vec<_>, _>>()?;
    if let [x, y, z, w] = slots[..] {
        let two = |(x, y)| {
            let mut op = Op::new(select::pack_32);
            (op.a, op.b, op.imm) = (x, y, bits);
            op.d = b.frame.register(Class::W32);
            b.emit_plain(op);
            op.d
        };
        slots = [(x, y), (z, w)].map(two).to_vec();
        bits *= 2;
    }
    let [x, y] = slots[..] else { return Err(DISAGREES) };
    let wide = kind.class() == Class::W64;
    let mut op = Op::new(if wide { select::pack_64 } else { select::pack_32 });
    (op.a, op.b, op.imm) = (x, y, bits);
    op.d = b.dest(d, kind, false)?;
    b.emit(op)
}

/// `mov.b64 {a, b}, d;`
fn unpack(
    b: &mut Builder<'_>,
    parts: &[Operand],
    a: &Operand,
    ty: T,
    kind: Kind,
) -> Result<(), Problem> {
    let bits = bits_of_part(ty, parts)?;
    let wide = kind.class() == Class::W64;
    let mut source = b.source(a, kind)?;
    // The source may be one of the destinations.
    if parts.contains(a) {
        let mut op = Op::new(copy_of(kind));
        (op.a, op.d) = (source, b.frame.register(kind.class()));
        b.emit_plain(op);
        source = op.d;
    }
    for (i, part) in parts.iter().enumerate().filter(|(_, p)| **p != Operand::Discard) {
        let mut op = Op::new(if wide { select::part_of_64 } else { select::part_of_32 });
        (op.a, op.imm, op.extra) = (source, bits, (bits * i as u64) as u32);
        op.d = b.dest(part, Kind::W32, false)?;
        b.emit(op)?;
    }
    Ok(())
}

/// `cvta.shared.u64 d, a;` and `cvta.to.shared.u64 d, a;`
pub(crate) fn cvta(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let to = form.take(W::To);
    let space = form.take_one(&GENERIC_SPACES).ok_or(DISAGREES)?;
    let kind = form.ty().and_then(bits_kind).ok_or(DISAGREES)?;
    if kind != Kind::W64 {
        return Err("only 64-bit generic addresses are supported");
    }
    let window = match space {
        W::Shared | W::SharedCta | W::SharedCluster => SHARED_WINDOW,
        W::Local => LOCAL_WINDOW,
        _ => 0,
    };
    let [d, a] = form.instruction().operands.as_slice() else { return Err(DISAGREES) };
    if window == 0 && b.is_always_as(d, kind.class(), a) {
        return Ok(());
    }
    let mut op = Op::new(if window == 0 { select::copy::<u64> } else { add_window });
    op.imm = if to { window.wrapping_neg() } else { window };
    op.a = b.source(a, kind)?;
    op.d = b.dest(d, kind, false)?;
    b.emit(op)
}

/// `isspacep.shared p, a;`
pub(crate) fn isspacep(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let space = form.take_one(&GENERIC_SPACES).ok_or(DISAGREES)?;
    let [d, a] = form.instruction().operands.as_slice() else { return Err(DISAGREES) };
    let mut op = Op::new(is_in_space);
    op.imm = match space {
        W::Global => 0,
        W::Shared | W::SharedCta | W::SharedCluster => 1,
        W::Local => 2,
        W::Param | W::ParamEntry => 3,
        _ => IN_CONSTANT,
    };
    op.a = b.source(a, Kind::W64)?;
    op.d = b.dest(d, Kind::Pred, false)?;
    b.emit(op)
}

/// `selp.b32 d, a, b, p;`
pub(crate) fn selp(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let ty = form.ty().ok_or(DISAGREES)?;
    let kind = bits_kind(ty).filter(|&k| k != Kind::Pred).ok_or(DISAGREES)?;
    let [d, x, y, p] = form.instruction().operands.as_slice() else { return Err(DISAGREES) };
    let run: Handler =
        if kind.class() == Class::W64 { select::select::<u64> } else { select::select::<u32> };
    let mut op = Op::new(run);
    op.a = b.source(x, kind)?;
    op.b = b.source(y, kind)?;
    let not;
    (op.c, not) = b.pred(p)?;
    op.imm = u64::from(not);
    op.d = b.dest(d, kind, false)?;
    b.emit(op)
}

/// `slct.f32.s32 d, a, b, c;`
pub(crate) fn slct(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    form.take(W::Ftz);
    let (ty, by) = form.ty().zip(form.ty()).ok_or(DISAGREES)?;
    let kind = bits_kind(ty).filter(|&k| k != Kind::Pred).ok_or(DISAGREES)?;
    let wide = kind.class() == Class::W64;
    let (run, by): (Handler, Kind) = match (wide, by) {
        (false, T::S32) => (select::select_sign::<u32, i32>, Kind::W32),
        (true, T::S32) => (select::select_sign::<u64, i32>, Kind::W32),
        (false, T::F32) => (select::select_sign::<u32, f32>, Kind::F32),
        (true, T::F32) => (select::select_sign::<u64, f32>, Kind::F32),
        _ => return Err(DISAGREES),
    };
    let sources = [Some(kind), Some(kind), Some(by)];
    lanewise(Some(Pick { run, d: kind, signed: false, sources, imm: 0 }), b, form)
}
