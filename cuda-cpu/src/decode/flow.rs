//! `bra`, `brx.idx`, `call`, `ret`, `exit`, `trap` and `nanosleep`.

use cuda_ptx::{LabelId, Operand, ScalarType as T, Symbol, Word as W};

use super::build::builder::{Builder, DISAGREES, Problem};
use crate::decode::form::Form;
use crate::exec::control;
use crate::exec::number::lane::Kind;
use crate::isa::operand::{Builtin, Call, Callee, Class, Passed};
use crate::machine::code::{Control, Op};

/// Decodes `bra`. The target is filled in when the function is complete.
pub(crate) fn bra(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    form.take(W::Uni);
    let [Operand::Label(LabelId(label))] = form.instruction().operands.as_slice() else {
        return Err(DISAGREES);
    };
    let guarded = form.instruction().guard.is_some();
    let mut op = Op::new(if guarded { control::branch } else { control::jump });
    op.imm = u64::from(*label);
    let pc = b.pc();
    b.jumps.push(pc);
    b.emit_self_guarded(op)
}

/// `brx.idx index, targets;`
pub(crate) fn brx(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let indexed = form.take(W::Idx);
    form.take(W::Uni);
    let [index, Operand::Targets(list)] = form.instruction().operands.as_slice() else {
        return Err(DISAGREES);
    };
    if !indexed {
        return Err(DISAGREES);
    }
    let table = b.jump_table(*list)?;
    let index = b.source(index, Kind::W32)?;
    b.control(Control::Indexed { index, table })
}

/// Decodes `ret`.
pub(crate) fn ret(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    form.take(W::Uni);
    b.control(if b.function.is_entry { Control::Exit } else { Control::Return })
}

/// Decodes `nanosleep`.
pub(crate) fn pause(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    form.take_ty(T::U32);
    b.control(Control::Pause)
}

/// `call (results), callee, (arguments), prototype;`
pub(crate) fn call(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    form.take(W::Uni);
    let mut operands = form.instruction().operands.as_slice();
    let take_list = |operands: &mut &[Operand]| match *operands {
        [Operand::List(list), rest @ ..] => {
            let list = list.clone();
            *operands = rest;
            list
        }
        _ => Vec::new(),
    };
    let results = take_list(&mut operands);
    let (callee, rest) = operands.split_first().ok_or(DISAGREES)?;
    operands = rest;
    let arguments = take_list(&mut operands);
    let callee = match callee {
        Operand::Symbol(Symbol::Function(i), 0) => direct(b, *i)?,
        Operand::Reg(_) => Callee::Indirect(b.source(callee, Kind::W64)?),
        _ => return Err(DISAGREES),
    };
    let arguments = elements(&arguments).map(|a| passed(b, a)).collect::<Result<_, _>>()?;
    let results = elements(&results).map(|r| passed(b, r)).collect::<Result<_, _>>()?;
    b.control(Control::Call(Call { callee, arguments, results }))
}

/// Returns the operands, and the elements of vectors, which are passed one by one.
fn elements(operands: &[Operand]) -> impl Iterator<Item = &Operand> {
    operands.iter().flat_map(|operand| match operand {
        Operand::Vector(parts) => parts.as_slice(),
        operand => std::slice::from_ref(operand),
    })
}

fn direct(b: &Builder<'_>, index: u32) -> Result<Callee, Problem> {
    let function = b.module.functions.get(index as usize).ok_or(DISAGREES)?;
    if function.body.is_some() {
        return Ok(Callee::Direct(index));
    }
    Ok(Callee::Builtin(match function.name.as_str() {
        "vprintf" => Builtin::Vprintf,
        "__assertfail" => Builtin::Assertfail,
        "malloc" => Builtin::Malloc,
        "free" => Builtin::Free,
        _ => return Err("the function is declared but not defined"),
    }))
}

fn passed(b: &mut Builder<'_>, operand: &Operand) -> Result<Passed, Problem> {
    match operand {
        Operand::Symbol(Symbol::Body(index), 0) => {
            let index = *index as usize;
            let (at, variable) =
                b.locals.variables.get(index).zip(b.body.variables.get(index)).ok_or(DISAGREES)?;
            // A larger one does not fit the local memory of a frame.
            Ok(Passed::Local(
                *at,
                variable.size.and_then(|size| u32::try_from(size).ok()).unwrap_or(0),
            ))
        }
        Operand::Discard => Err("the CPU device needs a place for each result of a call"),
        Operand::Reg(id) => {
            let class = b.class_of(*id);
            Ok(Passed::Register(b.register(*id, class)?, class))
        }
        Operand::F32(_) => Ok(Passed::Register(b.source(operand, Kind::F32)?, Kind::F32.class())),
        constant => {
            let class = Class::W64;
            Ok(Passed::Register(b.source(constant, Kind::W64)?, class))
        }
    }
}
