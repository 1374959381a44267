//! Hint instructions: prefetches, cache priorities and policies, register budgets and dependent grids.
//!
//! Except for `createpolicy`, they have no effect here, but their modifiers and operands are checked.

use cuda_ptx::{Operand, ScalarType as T, Word as W};

use super::build::builder::{Builder, DISAGREES, Problem};
use crate::decode::form::Form;
use crate::exec::alu::select;
use crate::exec::control;
use crate::exec::number::lane::Kind;
use crate::isa::operand::PresetValue;
use crate::machine::code::Op;

/// Emits an instruction without effect, if its form is valid.
fn hint(b: &mut Builder<'_>, is_valid: bool) -> Result<(), Problem> {
    if is_valid { b.emit(Op::new(control::nothing)) } else { Err(DISAGREES) }
}

pub(crate) fn prefetch(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let known = if form.take(W::Tensormap) {
        form.take_one(&[W::Const, W::Param]);
        true
    } else {
        form.take_one(&[W::Global, W::Local]);
        form.take_one(&[W::L1, W::L2, W::L2EvictLast, W::L2EvictNormal]).is_some()
    };
    hint(b, known && matches!(operands(form), [Operand::Address(_)]))
}

pub(crate) fn prefetchu(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let known = form.take(W::L1);
    hint(b, known && matches!(operands(form), [Operand::Address(_)]))
}

/// Decodes `discard` or `applypriority`, which have this modifier.
pub(crate) fn line(b: &mut Builder<'_>, form: &mut Form<'_>, word: W) -> Result<(), Problem> {
    form.take(W::Global);
    let known = form.take(word);
    hint(b, known && matches!(operands(form), [Operand::Address(_), Operand::Int(128)]))
}

pub(crate) fn event(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    form.take(W::Mask);
    hint(b, matches!(operands(form), [Operand::Int(_)]))
}

/// Decodes `griddepcontrol`. Grids run one after the other.
pub(crate) fn dependent_grids(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let known = form.take_one(&[W::LaunchDependents, W::Wait]).is_some();
    hint(b, known && operands(form).is_empty())
}

/// Decodes `setmaxnreg`. The number of registers is not limited.
pub(crate) fn max_registers(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let known = form.take_one(&[W::Inc, W::Dec]).is_some() && form.take(W::Sync);
    let known = known && form.take(W::Aligned) && form.take_ty(T::U32);
    let fits = |n: &u64| (24..=256).contains(n) && n.is_multiple_of(8);
    hint(b, known && matches!(operands(form), [Operand::Int(n)] if fits(n)))
}

fn operands<'a>(form: &Form<'a>) -> &'a [Operand] {
    &form.instruction().operands
}

/// Decodes `createpolicy`. Policies have no effect here, but programs may store and pass them. Fractional policies have
/// the same bits as on an H200.
pub(crate) fn policy(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let what = form.take_one(&[W::Fractional, W::Range, W::Cvt]).ok_or(DISAGREES)?;
    if what == W::Cvt {
        let known = form.take(W::L2) && form.take_ty(T::B64);
        let [d, a] = form.instruction().operands.as_slice() else { return Err(DISAGREES) };
        let mut op = Op::new(select::copy::<u64>);
        op.a = b.source(a, Kind::W64)?;
        op.d = b.dest(d, Kind::W64, false)?;
        return if known { b.emit(op) } else { Err(DISAGREES) };
    }
    let primary = take_priority(form).ok_or(DISAGREES)?;
    // Only `evict_first` has a nonzero secondary code.
    let secondary = if take_priority(form) == Some(EVICT_FIRST) { 1 } else { 0 };
    let is_range = what == W::Range;
    if is_range {
        form.take(W::Global);
    }
    if !form.take_ty(T::B64) {
        return Err(DISAGREES);
    }
    let (d, fraction) = match form.instruction().operands.as_slice() {
        [d] if !is_range => (d, 1.0),
        [d, Operand::F64(bits)] if !is_range => (d, f64::from_bits(*bits)),
        [d, Operand::F32(bits)] if !is_range => (d, f64::from(f32::from_bits(*bits))),
        [d, Operand::Address(_), _, _] if is_range => (d, 1.0),
        _ => {
            return Err(
                "the CPU device encodes policies when it loads a module: write the fraction as a number",
            );
        }
    };
    if !(fraction > 0.0 && fraction <= 1.0) {
        return Err(DISAGREES);
    }
    let sixteenths = ((fraction * 16.0).ceil() as u64).max(1) - 1;
    let bits = (0x100 | u64::from(is_range) << 7 | (primary | secondary) << 4 | sixteenths) << 52;
    let mut op = Op::new(select::copy::<u64>);
    op.a = b.frame.preset(Kind::W64.class(), PresetValue::Const(bits));
    op.d = b.dest(d, Kind::W64, false)?;
    b.emit(op)
}

const EVICT_FIRST: u64 = 2;

fn take_priority(form: &mut Form<'_>) -> Option<u64> {
    form.take_from(&[
        (W::L2EvictLast, 4),
        (W::L2EvictNormal, 6),
        (W::L2EvictFirst, EVICT_FIRST),
        (W::L2EvictUnchanged, 0),
    ])
}
