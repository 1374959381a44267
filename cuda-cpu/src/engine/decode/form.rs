//! An instruction while its handler is being chosen: which modifiers are still unexplained.

use cuda_ptx::{Instruction, Operand, ScalarType};

/// An instruction and the modifiers that nobody has asked for yet. A handler may only be used when
/// all of them were: a modifier is never skipped.
pub(crate) struct Form<'a> {
    ins: &'a Instruction,
    left: Vec<&'a str>,
    /// Operands beyond what is written, and how many of the written ones are already consumed.
    pub(crate) zero_appended: bool,
    pub(crate) constants_taken: usize,
}

impl<'a> Form<'a> {
    pub(crate) fn new(ins: &'a Instruction) -> Self {
        let left = ins.modifiers.iter().map(String::as_str).collect();
        Self { ins, left, zero_appended: false, constants_taken: 0 }
    }

    pub(crate) fn opcode(&self) -> &'a str {
        &self.ins.opcode
    }

    pub(crate) fn instruction(&self) -> &'a Instruction {
        self.ins
    }

    /// Takes this modifier, if it is there.
    pub(crate) fn take(&mut self, name: &str) -> bool {
        let at = self.left.iter().position(|&m| m == name);
        at.map(|at| self.left.remove(at)).is_some()
    }

    /// Takes the first modifier that is one of `names`.
    pub(crate) fn take_one(&mut self, names: &[&str]) -> Option<&'a str> {
        let at = self.left.iter().position(|m| names.contains(m))?;
        Some(self.left.remove(at))
    }

    /// Takes the first modifier that is a type.
    pub(crate) fn ty(&mut self) -> Option<ScalarType> {
        let at = self.left.iter().position(|m| ScalarType::from_name(m).is_some())?;
        ScalarType::from_name(self.left.remove(at))
    }

    /// The first type without taking it.
    pub(crate) fn peek_ty(&self) -> Option<ScalarType> {
        self.left.iter().find_map(|m| ScalarType::from_name(m))
    }

    /// The modifier is there and not yet taken.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.left.contains(&name)
    }

    /// Everything was taken.
    pub(crate) fn is_spent(&self) -> bool {
        self.left.is_empty()
    }

    pub(crate) fn operand(&self, index: usize) -> Option<&'a Operand> {
        self.ins.operands.get(index)
    }

    /// The integer constant that must be the operand at `index`, counted as taken.
    pub(crate) fn constant_operand(&mut self, index: usize) -> Option<u64> {
        let Operand::Int(value) = self.operand(index)? else { return None };
        self.constants_taken += 1;
        Some(*value)
    }

    /// The handler has one more source than is written: a zero.
    pub(crate) fn append_zero(&mut self) {
        self.zero_appended = true;
    }
}
