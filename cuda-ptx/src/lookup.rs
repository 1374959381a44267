//! Looks up kernels, functions and variables of a module by name, and formats instruction names.

use std::fmt;

use crate::ast::{Function, Module, Variable};
use crate::instruction::Instruction;
use crate::modifier::{Modifier, Word};

impl Module {
    /// Returns the kernel with this name, if the module defines it.
    pub fn entry(&self, name: &str) -> Option<&Function> {
        self.entries().find(|function| function.name == name)
    }

    /// Iterates over the kernels that the module defines, in order.
    pub fn entries(&self) -> impl Iterator<Item = &Function> {
        self.functions.iter().filter(|function| function.is_entry && function.body.is_some())
    }

    /// Returns the kernel or function with this name, defined or only declared.
    pub fn function(&self, name: &str) -> Option<&Function> {
        self.functions.iter().find(|function| function.name == name)
    }

    /// Returns the module-scope variable with this name.
    pub fn variable(&self, name: &str) -> Option<&Variable> {
        self.variables.iter().find(|variable| variable.name == name)
    }

    /// Returns the number in the architecture of `.target`, such as 90 for `sm_90a`. `None` if there is none.
    pub fn architecture(&self) -> Option<u32> {
        let number = self.target.first()?.strip_prefix("sm_")?;
        number.trim_end_matches(|letter: char| letter.is_ascii_lowercase()).parse().ok()
    }
}

impl Function {
    /// Returns the size of the parameter block in bytes, up to the end of the last parameter.
    pub fn parameter_bytes(&self) -> u32 {
        self.params.last().map_or(0, |last| last.offset + last.size)
    }
}

impl Instruction {
    /// Returns the full name for messages, such as `ld.global.v4.f32`.
    pub fn name(&self) -> InstructionName<'_> {
        InstructionName(self)
    }

    /// Returns whether the instruction has this modifier.
    pub fn has(&self, word: Word) -> bool {
        self.modifiers.contains(&Modifier::Word(word))
    }
}

/// The full name of an instruction, for display ([`Instruction::name`]).
#[derive(Debug, Clone, Copy)]
pub struct InstructionName<'a>(&'a Instruction);

impl fmt::Display for InstructionName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.opcode {
            Ok(opcode) => f.write_str(opcode.name())?,
            Err(name) => f.write_str(name)?,
        }
        self.0.modifiers.iter().try_for_each(|modifier| write!(f, ".{modifier}"))
    }
}
