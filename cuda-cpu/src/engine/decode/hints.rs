//! Instructions that only advise: prefetches, cache priorities and policies, register budgets, grids that depend on
//! each other. They do nothing here, but what they may be made of is checked.

use cuda_ptx::Operand;

use super::builder::{Builder, OPERANDS, Problem, UNKNOWN};
use super::form::Form;
use crate::engine::exec::lane::Kind;
use crate::engine::exec::{control, select};
use crate::engine::op::Op;

/// Whether it is the name of such an instruction.
pub(crate) fn is_hint(opcode: &str) -> bool {
    let names = ["prefetch", "prefetchu", "discard", "applypriority", "pmevent"];
    names.contains(&opcode) || ["createpolicy", "griddepcontrol", "setmaxnreg"].contains(&opcode)
}

/// Decodes one of them.
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
        "griddepcontrol" => {
            form.take_one(&["launch_dependents", "wait"]).is_some() && operands.is_empty()
        }
        "setmaxnreg" => {
            let known = form.take_one(&["inc", "dec"]).is_some() && form.take("sync");
            known
                && form.take("aligned")
                && form.take("u32")
                && matches!(operands, [Operand::Int(_)])
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

/// `createpolicy.fractional.L2::evict_last.b64 policy, 0.5;`: what a policy is made of is the device's own affair.
fn policy(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let kind = form.take_one(&["fractional", "range", "cvt"]).ok_or(UNKNOWN)?;
    let priorities =
        ["L2::evict_last", "L2::evict_normal", "L2::evict_first", "L2::evict_unchanged"];
    let known = match kind {
        "cvt" => form.take("L2"),
        _ => form.take_one(&priorities).is_some(),
    };
    form.take_one(&priorities[2..]);
    if kind == "range" {
        form.take("global");
    }
    if !known || !form.take("b64") || !form.is_spent() {
        return Err(UNKNOWN);
    }
    let d = form.operand(0).ok_or(OPERANDS)?;
    let mut op = Op::new(select::copy::<u64>);
    op.a = b.source(&Operand::Int(0), Kind::W64)?;
    op.d = b.dest(d, Kind::W64, false)?;
    b.emit(op)
}
