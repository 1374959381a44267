//! Elimination of copies of launch constants: kernel parameters, special registers and immediate values.
//!
//! Compilers copy such values into registers before they use them. If a single unguarded instruction writes a register,
//! the register can share the preset's slot. No op is emitted for the instruction.

use cuda_ptx::{Body, Function, Operand, RegId, ScalarType};

use super::builder::Builder;
use crate::isa::preset::PresetValue;
use crate::isa::slot::Class;

/// The constant registers of a function.
pub(crate) struct Known {
    /// For each register, the number of instructions that write it. 2 means two or more.
    writes: Vec<u8>,
    holds: Vec<bool>,
}

impl Known {
    /// Counts the possible writes of each register. Registers that are read in the position of a result are also
    /// counted. That prevents an elimination but is otherwise harmless.
    pub(crate) fn new(function: &Function, body: &Body) -> Self {
        let count = body.registers.len();
        let mut known = Self { writes: vec![0; count], holds: vec![false; count] };
        let own = function.returns.iter().chain(&function.params).filter_map(|p| p.register);
        own.for_each(|id| known.write(id));
        body.instructions.iter().filter_map(|i| i.operands.first()).for_each(|o| known.written(o));
        known
    }

    fn written(&mut self, operand: &Operand) {
        match operand {
            Operand::Reg(id) | Operand::NotReg(id) => self.write(*id),
            Operand::Part(part) => self.write(part.register),
            Operand::Pair(a, b) => {
                self.written(a);
                self.written(b);
            }
            Operand::Vector(parts) | Operand::List(parts) => {
                parts.iter().for_each(|part| self.written(part));
            }
            _ => {}
        }
    }

    fn write(&mut self, id: RegId) {
        if let Some(writes) = self.writes.get_mut(id.0 as usize) {
            *writes = (*writes + 1).min(2);
        }
    }

    pub(crate) fn is_written_once(&self, id: RegId) -> bool {
        self.writes.get(id.0 as usize) == Some(&1)
    }

    /// Marks a register as constant.
    pub(crate) fn set(&mut self, id: RegId) {
        if let Some(holds) = self.holds.get_mut(id.0 as usize) {
            *holds = true;
        }
    }

    pub(crate) fn holds(&self, id: RegId) -> bool {
        self.holds.get(id.0 as usize) == Some(&true)
    }
}

impl Builder<'_> {
    /// Makes a register share the slot of its only value. Returns false if that is impossible and an op must write it.
    pub(crate) fn is_always(&mut self, dest: &Operand, class: Class, value: PresetValue) -> bool {
        let Some(id) = self.written_once(dest, class) else { return false };
        self.registers[id.0 as usize] = Some(self.frame.preset(class, value));
        self.known.set(id);
        true
    }

    /// As [`is_always`](Self::is_always), for a copy of a constant register.
    pub(crate) fn is_always_as(&mut self, dest: &Operand, class: Class, source: &Operand) -> bool {
        let (Some(id), Operand::Reg(from)) = (self.written_once(dest, class), source) else {
            return false;
        };
        if !self.known.holds(*from) || self.class_of(*from) != class {
            return false;
        }
        self.registers[id.0 as usize] = self.registers[from.0 as usize];
        self.known.set(id);
        true
    }

    /// Returns the destination, if this instruction is its only write, is unguarded, and the register is not used
    /// before.
    fn written_once(&self, dest: &Operand, class: Class) -> Option<RegId> {
        let Operand::Reg(id) = *dest else { return None };
        let unguarded = self.ins.is_some_and(|ins| ins.guard.is_none());
        let fits =
            self.class_of(id) == class && self.body.registers[id.0 as usize].ty != ScalarType::B128;
        let fresh = self.registers.get(id.0 as usize).is_some_and(Option::is_none);
        (unguarded && fits && fresh && self.known.is_written_once(id)).then_some(id)
    }
}
