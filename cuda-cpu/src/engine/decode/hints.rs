//! Instructions that only advise: prefetches and cache priorities. They do nothing here, but what they may be made of
//! is checked.

use cuda_ptx::Operand;

use super::builder::{Builder, OPERANDS, Problem, UNKNOWN};
use super::form::Form;
use crate::engine::exec::control;
use crate::engine::op::Op;

/// Whether it is the name of such an instruction.
pub(crate) fn is_hint(opcode: &str) -> bool {
    ["prefetch", "prefetchu", "discard", "applypriority", "pmevent"].contains(&opcode)
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
        _ => false,
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
