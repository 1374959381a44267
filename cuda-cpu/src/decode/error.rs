//! Errors of loading a module.

use std::borrow::Cow;
use std::fmt;

use cuda_core::internals::text_prefix;
use rustc_hash::FxHashMap;

use crate::memory::OutOfMemory;

/// Maximum number of different problems that are kept. Further ones are only counted.
const KEPT: usize = 1000;

/// Maximum length of a name in a problem, in bytes.
const MAX_NAME_BYTES: usize = 512;

/// The error of a module that the CPU device cannot run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadError {
    /// The problems. An instruction that occurs several times is listed once, at its first occurrence. At most 1000 are
    /// kept.
    pub problems: Vec<LoadProblem>,
    /// Number of problems, including repeated ones.
    pub count: usize,
    /// The allocation error, if the memory had no room for the module's variables.
    pub memory: Option<OutOfMemory>,
}

/// An instruction or declaration that the device cannot run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadProblem {
    /// The function with the first occurrence.
    pub function: String,
    /// The instruction with its modifiers, or the declared name.
    pub instruction: String,
    /// Line in the PTX.
    pub line: u32,
    /// Column in the line.
    pub column: u32,
    /// The reason.
    pub reason: Cow<'static, str>,
    /// Number of occurrences.
    pub occurrences: usize,
}

/// The problems found so far.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    all: Vec<LoadProblem>,
    count: usize,
    /// Index of each problem, by instruction and reason.
    known: FxHashMap<(String, Cow<'static, str>), usize>,
}

impl Problems {
    pub(crate) fn add(&mut self, mut problem: LoadProblem) {
        self.count += 1;
        problem.instruction = shortened(&problem.instruction);
        let key = (problem.instruction.clone(), problem.reason.clone());
        if let Some(&index) = self.known.get(&key) {
            self.all[index].occurrences += 1;
        } else if self.all.len() < KEPT {
            self.known.insert(key, self.all.len());
            self.all.push(problem);
        }
    }

    /// Returns the error if there are any problems.
    pub(crate) fn error(self) -> Option<LoadError> {
        let Self { all: problems, count, .. } = self;
        (count > 0).then_some(LoadError { problems, count, memory: None })
    }
}

/// Returns a name for a problem. A thousand problems could otherwise each repeat a name as long as the PTX.
pub(super) fn shortened(name: &str) -> String {
    let prefix = text_prefix(name, MAX_NAME_BYTES);
    let end = if prefix.len() < name.len() { ".." } else { "" };
    format!("{prefix}{end}")
}

impl LoadError {
    /// Creates the error for a memory without room for the module's variables.
    pub(crate) fn no_room(memory: OutOfMemory) -> Self {
        Self { problems: Vec::new(), count: 0, memory: Some(memory) }
    }
}

impl fmt::Display for LoadProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { function, instruction, line, column, reason, occurrences } = self;
        write!(f, "line {line}, column {column}, in `{function}`: `{instruction}`")?;
        if *occurrences > 1 {
            write!(f, " ({occurrences} times)")?;
        }
        write!(f, ": {reason}")
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(memory) = self.memory {
            return write!(f, "no room for the module's variables: {memory}");
        }
        write!(f, "the CPU device cannot run this module, {} problem(s)", self.count)?;
        self.problems.iter().try_for_each(|p| write!(f, "\n  {p}"))?;
        let listed: usize = self.problems.iter().map(|problem| problem.occurrences).sum();
        match self.count - listed {
            0 => Ok(()),
            more => write!(f, "\n  and {more} more"),
        }
    }
}

impl std::error::Error for LoadError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(instruction: &str, line: u32) -> LoadProblem {
        let (function, instruction) = ("k".to_owned(), instruction.to_owned());
        LoadProblem { function, instruction, line, column: 5, reason: "why".into(), occurrences: 1 }
    }

    #[test]
    fn equal_problems_are_listed_once() {
        assert_eq!(Problems::default().error(), None);
        let mut problems = Problems::default();
        [("a.b", 3), ("c", 4), ("a.b", 9), ("a.b", 11)]
            .into_iter()
            .for_each(|(name, line)| problems.add(problem(name, line)));
        let error = problems.error().unwrap();
        assert_eq!((error.count, error.problems.len()), (4, 2));
        let text = error.to_string();
        let lines: Vec<_> = text.lines().skip(1).collect();
        assert_eq!(
            lines,
            [
                "  line 3, column 5, in `k`: `a.b` (3 times): why",
                "  line 4, column 5, in `k`: `c`: why"
            ]
        );
    }

    #[test]
    fn long_names_are_shortened() {
        let mut problems = Problems::default();
        problems.add(problem(&"é".repeat(1000), 1));
        let error = problems.error().unwrap();
        assert_eq!(error.problems[0].instruction, "é".repeat(256) + "..");
    }

    #[test]
    fn problems_are_limited() {
        let mut problems = Problems::default();
        (0..KEPT as u32 + 7).for_each(|i| problems.add(problem(&format!("i{i}"), i)));
        problems.add(problem("i5", 0));
        problems.add(problem(&"long".repeat(1000), 1));
        let error = problems.error().unwrap();
        assert_eq!(error.problems.len(), KEPT);
        assert!(error.to_string().ends_with("\n  and 8 more"));
    }
}
