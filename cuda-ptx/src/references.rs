//! The module variables that kernels name, in their own code, in functions that they may call, and in the initial values
//! of other variables.

use std::collections::{BTreeSet, HashMap, HashSet, hash_map::Entry};
use std::ops::Range;

use crate::cursor::Cursor;
use crate::lexer::Kind;
use crate::parser::DefinedVariable;

/// The items of a module: variables, functions and aliases.
#[derive(Default)]
pub(crate) struct References<'a> {
    /// The index of each item, by its name.
    items: HashMap<&'a str, usize>,
    /// The tokens of each item. A function may be declared before it is defined.
    tokens: Vec<Vec<Range<usize>>>,
    /// The index of each variable, by its name.
    variables: HashMap<&'a str, u32>,
    defined: Vec<DefinedVariable<'a>>,
}

/// The names in some tokens.
#[derive(Default)]
struct Names {
    variables: BTreeSet<u32>,
    items: Vec<usize>,
    /// Whether there is a call through a pointer, which may reach every function.
    calls_pointer: bool,
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
        let index = *self.items.entry(name).or_insert(self.tokens.len());
        if index == self.tokens.len() {
            self.tokens.push(Vec::new());
        }
        self.tokens[index].push(tokens);
    }

    /// Returns for each kernel the indices of the variables that it may use, in order.
    pub(crate) fn used(&self, cur: &Cursor<'a>, kernels: &[Range<usize>]) -> Vec<Vec<u32>> {
        if self.defined.is_empty() {
            return vec![Vec::new(); kernels.len()];
        }
        let items: Vec<_> = self.tokens.iter().map(|tokens| self.names(cur, tokens)).collect();
        let kernel = |tokens: &Range<usize>| {
            self.reached(self.names(cur, std::slice::from_ref(tokens)), &items)
        };
        kernels.iter().map(kernel).collect()
    }

    /// Returns the variables, in order.
    pub(crate) fn into_variables(self) -> Vec<DefinedVariable<'a>> {
        self.defined
    }

    fn names(&self, cur: &Cursor<'a>, ranges: &[Range<usize>]) -> Names {
        let (mut names, mut seen) = (Names::default(), HashSet::new());
        for token in ranges.iter().flat_map(|range| cur.tokens(range.clone())) {
            names.calls_pointer |= token.is_dot(".callprototype");
            if token.kind == Kind::Ident && seen.insert(token.text) {
                names.variables.extend(self.variables.get(token.text));
                names.items.extend(self.items.get(token.text));
            }
        }
        names
    }

    /// The variables that these names reach, through items too.
    fn reached(&self, names: Names, items: &[Names]) -> Vec<u32> {
        let Names { mut variables, items: mut left, mut calls_pointer } = names;
        let mut seen: HashSet<_> = left.iter().copied().collect();
        while let Some(names) = left.pop().map(|index| &items[index]) {
            calls_pointer |= names.calls_pointer;
            variables.extend(&names.variables);
            left.extend(names.items.iter().filter(|index| seen.insert(**index)));
        }
        if calls_pointer {
            return (0..self.defined.len() as u32).collect();
        }
        variables.into_iter().collect()
    }
}
