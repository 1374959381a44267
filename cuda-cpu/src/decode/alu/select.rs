//! `selp` and `slct`.

use cuda_ptx::{ScalarType as T, Word as W};

use super::compare::bits_kind;
use super::lanewise::lanewise;
use crate::decode::build::builder::{Builder, DISAGREES, Problem};
use crate::decode::form::Form;
use crate::exec::alu::select;
use crate::exec::map::Pick;
use crate::exec::number::lane::Kind;
use crate::isa::slot::Class;
use crate::machine::code::{Handler, Op};

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
