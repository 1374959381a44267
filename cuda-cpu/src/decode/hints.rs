//! Hint instructions: prefetches, cache priorities and policies, register budgets and dependent grids.
//!
//! Except for `createpolicy`, they have no effect here, but their modifiers and operands are checked.

use cuda_ptx::Operand;

use super::build::builder::{Builder, OPERANDS, Problem, UNKNOWN};
use crate::exec::alu::select;
use crate::exec::control;
use crate::exec::form::Form;
use crate::exec::number::lane::Kind;
use crate::isa::preset::PresetValue;
use crate::machine::code::Op;

/// Returns whether the opcode is a hint instruction.
pub(crate) fn is_hint(opcode: &str) -> bool {
    let names = ["prefetch", "prefetchu", "discard", "applypriority", "pmevent"];
    names.contains(&opcode) || ["createpolicy", "griddepcontrol", "setmaxnreg"].contains(&opcode)
}

/// Decodes a hint instruction.
pub(crate) fn hint(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let operands = form.instruction().operands.as_slice();
    let fits = match form.opcode() {
        "prefetch" => prefetch(form) && matches!(operands, [Operand::Address(_)]),
        "prefetchu" => form.take("L1") && matches!(operands, [Operand::Address(_)]),
        "discard" => {
            form.take("global");
            form.take("L2") && matches!(operands, [Operand::Address(_), Operand::Int(128)])
        }
        "applypriority" => {
            form.take("global");
            form.take("L2::evict_normal")
                && matches!(operands, [Operand::Address(_), Operand::Int(128)])
        }
        "pmevent" => {
            form.take("mask");
            matches!(operands, [Operand::Int(_)])
        }
        // Grids run one after the other.
        "griddepcontrol" => {
            form.take_one(&["launch_dependents", "wait"]).is_some() && operands.is_empty()
        }
        // The number of registers is not limited.
        "setmaxnreg" => {
            let known = form.take_one(&["inc", "dec"]).is_some() && form.take("sync");
            let known = known && form.take("aligned") && form.take("u32");
            known && matches!(operands, [Operand::Int(n)] if (24..=256).contains(n) && n % 8 == 0)
        }
        _ => return policy(b, form),
    };
    if !form.is_spent() {
        return Err(UNKNOWN);
    }
    if fits { b.emit(Op::new(control::nothing)) } else { Err(OPERANDS) }
}

fn prefetch(form: &mut Form<'_>) -> bool {
    if form.take("tensormap") {
        form.take_one(&["const", "param"]);
        return true;
    }
    form.take_one(&["global", "local"]);
    form.take_one(&["L1", "L2", "L2::evict_last", "L2::evict_normal"]).is_some()
}

/// Decodes `createpolicy`. Policies have no effect here, but programs may store and pass them. Fractional policies have
/// the same bits as on an H200.
fn policy(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let what = form.take_one(&["fractional", "range", "cvt"]).ok_or(UNKNOWN)?;
    if what == "cvt" {
        let known = form.take("L2") && form.take("b64") && form.is_spent();
        let [d, a] = form.instruction().operands.as_slice() else { return Err(OPERANDS) };
        let mut op = Op::new(select::copy::<u64>);
        op.a = b.source(a, Kind::W64)?;
        op.d = b.dest(d, Kind::W64, false)?;
        return if known { b.emit(op) } else { Err(UNKNOWN) };
    }
    let primary = take_priority(form).ok_or(UNKNOWN)?;
    // Only `evict_first` has a nonzero secondary code.
    let secondary = if take_priority(form) == Some(EVICT_FIRST) { 1 } else { 0 };
    let is_range = what == "range";
    if is_range {
        form.take("global");
    }
    if !form.take("b64") || !form.is_spent() {
        return Err(UNKNOWN);
    }
    let (d, fraction) = match form.instruction().operands.as_slice() {
        [d] if !is_range => (d, 1.0),
        [d, Operand::F64(bits)] if !is_range => (d, f64::from_bits(*bits)),
        [d, Operand::F32(bits)] if !is_range => (d, f64::from(f32::from_bits(*bits))),
        [d, Operand::Address(_), _, _] if is_range => (d, 1.0),
        _ => return Err(OPERANDS),
    };
    if !(fraction > 0.0 && fraction <= 1.0) {
        return Err(OPERANDS);
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
    let names = ["L2::evict_last", "L2::evict_normal", "L2::evict_first", "L2::evict_unchanged"];
    // Takes the modifier that is written first.
    let first =
        form.instruction().modifiers.iter().find(|m| form.has(m) && names.contains(&m.as_str()))?;
    form.take(first);
    Some(match first.as_str() {
        "L2::evict_last" => 4,
        "L2::evict_normal" => 6,
        "L2::evict_first" => EVICT_FIRST,
        _ => 0,
    })
}
