//! `bra`, `brx.idx`, `call`, `ret`, `exit`, `trap` and `nanosleep`.

use cuda_ptx::{Function, LabelId, Operand, Param, ScalarType as T, Space, Symbol, Word as W};

use super::build::builder::{Builder, OPERANDS, Problem, UNKNOWN};
use crate::decode::form::Form;
use crate::exec::control;
use crate::exec::number::lane::Kind;
use crate::isa::call::{Builtin, Call, Callee, Passed};
use crate::isa::slot::Class;
use crate::machine::code::{Control, Op};

/// Decodes `bra`. The target is filled in when the function is complete.
pub(crate) fn bra(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    form.take(W::Uni);
    let [Operand::Label(LabelId(label))] = form.instruction().operands.as_slice() else {
        return Err(OPERANDS);
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
        return Err(OPERANDS);
    };
    if !indexed {
        return Err(UNKNOWN);
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
    let (callee, rest) = operands.split_first().ok_or(OPERANDS)?;
    operands = rest;
    let arguments = take_list(&mut operands);
    let callee = match callee {
        Operand::Symbol(Symbol::Function(i), 0) => direct(b, *i)?,
        Operand::Reg(_) => Callee::Indirect(b.source(callee, Kind::W64)?),
        _ => return Err(OPERANDS),
    };
    if let Callee::Direct(index) = callee {
        fits(b, &arguments, &results, &b.module.functions[index as usize])?;
    }
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

/// Checks that the arguments and results of a direct call match the function's declaration.
fn fits(
    b: &Builder<'_>,
    arguments: &[Operand],
    results: &[Operand],
    function: &Function,
) -> Result<(), Problem> {
    let one = |(operand, param): (&Operand, &Param)| match operand {
        Operand::Reg(id) => (b.class_of(*id) == Class::W64) == (param.size > 4),
        Operand::Symbol(..) => place(b, operand).is_ok_and(|(_, bytes)| bytes == param.size),
        Operand::Vector(parts) => parts.len() == param.lanes as usize,
        _ => param.lanes == 1,
    };
    let same = |operands: &[Operand], params: &[Param]| {
        operands.len() == params.len() && operands.iter().zip(params).all(one)
    };
    if function.is_entry {
        return Err("the callee is a kernel");
    }
    if !same(arguments, &function.params) || !same(results, &function.returns) {
        return Err("the arguments or results do not match the function");
    }
    Ok(())
}

fn direct(b: &Builder<'_>, index: u32) -> Result<Callee, Problem> {
    let function = b.module.functions.get(index as usize).ok_or(OPERANDS)?;
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

/// Returns the offset in the caller's local memory and the size of a passed variable.
fn place(b: &Builder<'_>, operand: &Operand) -> Result<(u32, u32), Problem> {
    match *operand {
        Operand::Symbol(Symbol::Body(i), 0) => {
            let v = b.body.variables.get(i as usize).ok_or(OPERANDS)?;
            if v.space != Space::Param {
                return Err(OPERANDS);
            }
            Ok((b.locals.variables[i as usize], v.size.unwrap_or(0) as u32))
        }
        Operand::Symbol(Symbol::Param(i), 0) if !b.function.is_entry => {
            Ok((b.locals.params[i as usize], b.function.params[i as usize].size))
        }
        Operand::Symbol(Symbol::Return(i), 0) => {
            Ok((b.locals.returns[i as usize], b.function.returns[i as usize].size))
        }
        _ => Err(OPERANDS),
    }
}

fn passed(b: &mut Builder<'_>, operand: &Operand) -> Result<Passed, Problem> {
    match operand {
        Operand::Symbol(_, 0) => place(b, operand).map(|(at, bytes)| Passed::Local(at, bytes)),
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
