//! Why a module cannot be loaded.

use std::fmt;

use crate::memory::OutOfMemory;

/// How many problems are kept; the others are only counted.
const KEPT: usize = 32;

/// A module cannot be run here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadError {
    /// What is wrong, in order (the first ones).
    pub problems: Vec<LoadProblem>,
    /// How many problems there are.
    pub count: usize,
    /// There was no room for the module's variables.
    pub memory: Option<OutOfMemory>,
}

/// One instruction or declaration that cannot be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadProblem {
    /// The function it is in.
    pub function: String,
    /// The instruction with its modifiers, or the name of what was declared.
    pub instruction: String,
    /// Line in the PTX text.
    pub line: u32,
    /// Column in that line.
    pub column: u32,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl LoadError {
    pub(crate) fn new() -> Self {
        Self { problems: Vec::new(), count: 0, memory: None }
    }

    pub(crate) fn add(&mut self, problem: LoadProblem) {
        self.count += 1;
        if self.problems.len() < KEPT {
            self.problems.push(problem);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0 && self.memory.is_none()
    }
}

impl fmt::Display for LoadProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { function, instruction, line, column, reason } = self;
        write!(f, "line {line}, column {column}, in `{function}`: `{instruction}`: {reason}")
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(memory) = self.memory {
            return write!(f, "no room for the module's variables: {memory}");
        }
        write!(f, "the CPU device cannot run this module, {} problem(s)", self.count)?;
        self.problems.iter().try_for_each(|p| write!(f, "\n  {p}"))?;
        match self.count - self.problems.len() {
            0 => Ok(()),
            more => write!(f, "\n  and {more} more"),
        }
    }
}

impl std::error::Error for LoadError {}
