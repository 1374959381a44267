//! The module variables that kernels name, in their own code, in functions that they may call, and in the initial values
//! of other variables.

use std::collections::{HashMap, HashSet, hash_map::Entry};
use std::ops::Range;

use crate::cursor::Cursor;
use crate::lexer::Kind;
use crate::parser::DefinedVariable;

/// The items of a module, as ranges of tokens, by the names that they define.
#[derive(Default)]
pub(crate) struct References<'a> {
    /// A name may be declared before it is defined.
    items: HashMap<&'a str, Vec<Range<usize>>>,
    /// The index of each variable, by its name.
    variables: HashMap<&'a str, u32>,
    defined: Vec<DefinedVariable<'a>>,
}

impl<'a> References<'a> {
    /// Adds a variable.
    pub(crate) fn variable(&mut self, variable: DefinedVariable<'a>) {
        if let Entry::Vacant(entry) = self.variables.entry(variable.name) {
            entry.insert(self.defined.len() as u32);
            self.defined.push(variable);
        }
    }

    /// Adds an item that defines `name`.
    pub(crate) fn item(&mut self, name: &'a str, tokens: Range<usize>) {
        self.items.entry(name).or_default().push(tokens);
    }

    /// Returns the indices of the variables that the tokens of a kernel may use, in order.
    pub(crate) fn used(&self, cur: &Cursor<'a>, kernel: Range<usize>) -> Vec<u32> {
        let (mut found, mut seen) = (HashSet::new(), HashSet::new());
        let mut ranges = vec![kernel];
        while let Some(range) = ranges.pop() {
            for token in cur.tokens(range) {
                // A call through a pointer may reach every function.
                if token.is_dot(".callprototype") {
                    return (0..self.defined.len() as u32).collect();
                }
                if token.kind == Kind::Ident && seen.insert(token.text) {
                    found.extend(self.variables.get(token.text));
                    ranges.extend(self.items.get(token.text).into_iter().flatten().cloned());
                }
            }
        }
        let mut found: Vec<_> = found.into_iter().copied().collect();
        found.sort_unstable();
        found
    }

    /// Returns the variables, in order.
    pub(crate) fn into_variables(self) -> Vec<DefinedVariable<'a>> {
        self.defined
    }
}
