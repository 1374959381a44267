//! Finds the module variables that each kernel may use: in its own code, in the functions that it may call, and in the
//! initial values of variables.

use std::collections::{BTreeSet, HashMap, HashSet, hash_map::Entry};
use std::ops::Range;
use std::sync::Arc;

use crate::cursor::Cursor;
use crate::lexer::Kind;
use crate::limits::index;
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
    /// Whether an item could not be parsed. It may hold the address of any variable.
    incomplete: bool,
}

/// The limit of steps per token of the text, for the searches of all kernels together. Kernels that exceed the limit
/// count as using every variable. So time and memory are proportional to the text.
const STEPS_PER_TOKEN: usize = 16;

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
            entry.insert(index(self.defined.len()));
            self.defined.push(variable);
        }
    }

    /// Adds an item that defines `name`.
    pub(crate) fn item(&mut self, name: &'a str, tokens: Range<usize>) {
        let item = *self.items.entry(name).or_insert(self.tokens.len());
        if item == self.tokens.len() {
            self.tokens.push(Vec::new());
        }
        self.tokens[item].push(tokens);
    }

    /// Records that an item could not be parsed.
    pub(crate) fn unknown_item(&mut self) {
        self.incomplete = true;
    }

    /// Returns for each kernel the indices of the variables that it may use, in order.
    pub(crate) fn used(&self, cur: &Cursor<'a>, kernels: &[Range<usize>]) -> Vec<Arc<[u32]>> {
        let all: Arc<[u32]> = (0..index(self.defined.len())).collect();
        if all.is_empty() || self.incomplete {
            return vec![all; kernels.len()];
        }
        let mut steps = cur.position().saturating_mul(STEPS_PER_TOKEN);
        let items: Vec<_> = self.tokens.iter().map(|tokens| self.names(cur, tokens)).collect();
        let kernel = |tokens: &Range<usize>| {
            let names = self.names(cur, std::slice::from_ref(tokens));
            reached(names, &items, &mut steps).unwrap_or_else(|| all.clone())
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
}

/// Returns the variables that `names` reach through items. `None` if they may reach all, or if `steps` run out.
fn reached(names: Names, items: &[Names], steps: &mut usize) -> Option<Arc<[u32]>> {
    let Names { mut variables, items: mut left, mut calls_pointer } = names;
    let mut seen: HashSet<_> = left.iter().copied().collect();
    while let Some(names) = left.pop().map(|index| &items[index]) {
        *steps = steps.checked_sub(1 + names.variables.len() + names.items.len())?;
        calls_pointer |= names.calls_pointer;
        variables.extend(&names.variables);
        left.extend(names.items.iter().filter(|index| seen.insert(**index)));
    }
    *steps = steps.checked_sub(variables.len())?;
    (!calls_pointer).then(|| variables.into_iter().collect())
}
