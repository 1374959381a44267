//! Emits lane-wise instructions: converts the operands to the kinds of the handler.

use cuda_ptx::Operand;

use crate::{
    decode::{
        build::builder::{Builder, DISAGREES, Problem},
        form::Form,
    },
    exec::map::Pick,
    isa::slot::Slot,
    machine::code::Op,
};

/// Emits a lane-wise instruction with the selected handler. Fails if there is none.
pub(crate) fn lanewise(
    pick: Option<Pick>,
    b: &mut Builder<'_>,
    form: &Form<'_>,
) -> Result<(), Problem> {
    let op = operands(b, form, &pick.ok_or(DISAGREES)?)?;
    b.emit(op)
}

/// Creates an op with the destination and sources that the handler requires.
pub(crate) fn operands(b: &mut Builder<'_>, form: &Form<'_>, pick: &Pick) -> Result<Op, Problem> {
    let written = form.instruction().operands.len() - form.constants_taken;
    let sources = pick.sources.iter().flatten().count();
    if written + usize::from(form.zero_appended) != sources + 1 {
        return Err(DISAGREES);
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
    op.d = b.dest(form.operand(0).ok_or(DISAGREES)?, pick.d, pick.signed)?;
    Ok(op)
}
