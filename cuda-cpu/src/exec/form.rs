//! The modifiers of an instruction while its handler is selected.

use cuda_ptx::{Instruction, Operand, ScalarType};

/// An instruction and its modifiers that are not yet taken. A handler is valid only if all modifiers were taken, so
/// none is ignored by mistake.
pub(crate) struct Form<'a> {
    ins: &'a Instruction,
    left: Vec<&'a str>,
    /// Whether a zero operand is appended (see [`Form::append_zero`]), and the number of operands that are already
    /// consumed.
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

    /// Takes this modifier. Returns false if it is absent.
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

    /// Returns the first modifier that is a type, without taking it.
    pub(crate) fn peek_ty(&self) -> Option<ScalarType> {
        self.left.iter().find_map(|m| ScalarType::from_name(m))
    }

    /// Returns whether the modifier is present and not taken.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.left.contains(&name)
    }

    /// Returns whether all modifiers were taken.
    pub(crate) fn is_spent(&self) -> bool {
        self.left.is_empty()
    }

    pub(crate) fn operand(&self, index: usize) -> Option<&'a Operand> {
        self.ins.operands.get(index)
    }

    /// Takes the integer constant at operand `index`. Returns `None` if the operand is not a constant.
    pub(crate) fn constant_operand(&mut self, index: usize) -> Option<u64> {
        let Operand::Int(value) = self.operand(index)? else { return None };
        self.constants_taken += 1;
        Some(*value)
    }

    /// Appends a zero as a source operand for handlers with one more source than the instruction.
    pub(crate) fn append_zero(&mut self) {
        self.zero_appended = true;
    }
}
