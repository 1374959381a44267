//! Registers of 128 bits: `mov`, `ld`, `st` and `atom` of `.b128`.

use cuda_ptx::{Address, Operand, RegId, ScalarType as T, Word as W};

use super::load_store::{access, set_address};
use crate::decode::build::builder::{Builder, DISAGREES, Problem};
use crate::decode::form::Form;
use crate::exec::alu::select;
use crate::exec::memory::atomics;
use crate::exec::memory::atomics::{CompareExchange, Exchange, Read, upper};
use crate::exec::number::lane::Kind;
use crate::isa::address::SpaceKind;
use crate::isa::effect::{Access, AccessKind, Effect, Order};
use crate::isa::operand::{Class, Slot};
use crate::machine::code::{Handler, Op};
use crate::memory::access;

impl Builder<'_> {
    /// Returns the halves of a register, the low one first. Allocates unused ones for a discarded operand.
    pub(super) fn halves(&mut self, operand: &Operand) -> Result<[Slot; 2], Problem> {
        let low = match operand {
            Operand::Reg(id) if self.is_wide(*id) => {
                let known = self.registers[id.0 as usize];
                known.unwrap_or_else(|| self.new_halves())
            }
            Operand::Reg(_) => return Err("an operand's register has the wrong size"),
            Operand::Discard => self.new_halves(),
            _ => return Err("the CPU device has no constants of 128 bits: write a vector of two"),
        };
        if let Operand::Reg(id) = operand {
            self.registers[id.0 as usize] = Some(low);
        }
        Ok([low, upper(low)])
    }

    fn new_halves(&mut self) -> Slot {
        let low = self.frame.register(Class::W64);
        self.frame.register(Class::W64);
        low
    }

    /// Returns whether a register has 128 bits.
    pub(in crate::decode) fn is_wide(&self, id: RegId) -> bool {
        self.body.registers.get(id.0 as usize).is_some_and(|r| r.ty == T::B128)
    }
}

/// Decodes `mov.b128` between registers, from two or four parts, and to them.
pub(in crate::decode) fn mov(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    form.take_ty(T::B128);
    let [d, a] = form.instruction().operands.as_slice() else { return Err(DISAGREES) };
    let from = match a {
        Operand::Vector(parts) => match parts.as_slice() {
            [low, high] => [b.source(low, Kind::W64)?, b.source(high, Kind::W64)?],
            [x, y, z, w] => [joined(b, x, y)?, joined(b, z, w)?],
            _ => return Err(DISAGREES),
        },
        a => b.halves(a)?,
    };
    let to = match d {
        Operand::Vector(parts) => match parts.as_slice() {
            [low, high] => [b.dest(low, Kind::W64, false)?, b.dest(high, Kind::W64, false)?],
            parts @ [_, _, _, _] => return split(b, parts, from),
            _ => return Err(DISAGREES),
        },
        d => b.halves(d)?,
    };
    for (a, d) in from.into_iter().zip(to) {
        let mut op = Op::new(select::copy::<u64>);
        (op.a, op.d) = (a, d);
        b.emit(op)?;
    }
    Ok(())
}

/// Joins two words in a temporary register.
fn joined(b: &mut Builder<'_>, low: &Operand, high: &Operand) -> Result<Slot, Problem> {
    let mut op = Op::new(select::pack_64);
    (op.a, op.b) = (b.source(low, Kind::W32)?, b.source(high, Kind::W32)?);
    (op.d, op.imm) = (b.frame.temporary(Class::W64), 32);
    b.emit_plain(op);
    Ok(op.d)
}

/// Writes the four words of two halves.
fn split(b: &mut Builder<'_>, parts: &[Operand], from: [Slot; 2]) -> Result<(), Problem> {
    for (i, part) in parts.iter().enumerate().filter(|(_, part)| **part != Operand::Discard) {
        let mut op = Op::new(select::part_of_64);
        (op.a, op.imm, op.extra) = (from[i / 2], 32, 32 * (i as u32 % 2));
        op.d = b.dest(part, Kind::W32, false)?;
        b.emit(op)?;
    }
    Ok(())
}

/// A memory access of 128 bits.
pub(super) struct Wide<'a> {
    pub(super) order: Order,
    pub(super) space: SpaceKind,
    pub(super) dest: &'a Operand,
    pub(super) address: &'a Address,
    pub(super) values: &'a [Operand],
}

/// `atom.exch.b128 d, [a], b;` and `atom.cas.b128 d, [a], b, c;`
pub(super) fn atomic(b: &mut Builder<'_>, name: W, wide: &Wide<'_>) -> Result<(), Problem> {
    match name {
        W::Exch => at_once(b, atomics::atomic::<Exchange>, AccessKind::Exchange, 1, wide),
        W::Cas => at_once(b, atomics::atomic::<CompareExchange>, AccessKind::Update, 2, wide),
        _ => Err(DISAGREES),
    }
}

/// `ld.relaxed.gpu.b128 d, [a];`
pub(super) fn load(b: &mut Builder<'_>, wide: &Wide<'_>) -> Result<(), Problem> {
    at_once(b, atomics::atomic::<Read>, AccessKind::Read, 0, wide)
}

/// `st.relaxed.gpu.b128 [a], b;`
pub(super) fn store(b: &mut Builder<'_>, wide: &Wide<'_>) -> Result<(), Problem> {
    at_once(b, atomics::atomic::<Exchange>, AccessKind::Write, 1, wide)
}

fn at_once(
    b: &mut Builder<'_>,
    run: Handler,
    kind: AccessKind,
    operands: usize,
    wide: &Wide<'_>,
) -> Result<(), Problem> {
    if wide.values.len() != operands {
        return Err(DISAGREES);
    }
    if !access::is_there() {
        return Err("the processor does not support atomic accesses of 128 bits");
    }
    let mut op = Op::new(run);
    let mut given = [Slot::NONE; 2];
    for (slot, value) in given.iter_mut().zip(wide.values) {
        [*slot, _] = b.halves(value)?;
    }
    let third;
    [op.b, third] = given;
    set_address(b, &mut op, wide.address, wide.space)?;
    op.extra = b.extras([third, Slot(wide.space as u32)]);
    [op.d, _] = b.halves(wide.dest)?;
    let access = Access { count: 2, order: wide.order, ..access(kind, wide.space, T::B64, &op) };
    b.states(Effect::Access(access));
    b.emit(op)
}
