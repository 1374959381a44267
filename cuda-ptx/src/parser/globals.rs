//! The table of module-scope names.

use std::collections::HashMap;

use crate::error::{Error, ErrorKind};
use crate::instruction::Symbol;
use crate::lexer::Token;

/// The symbols of module-scope names, with the lines of their first declarations.
#[derive(Default)]
pub(crate) struct Globals<'a> {
    names: HashMap<&'a str, (Symbol, u32)>,
}

impl<'a> Globals<'a> {
    pub(crate) fn find(&self, name: &str) -> Option<Symbol> {
        self.names.get(name).map(|(symbol, _)| *symbol)
    }

    /// Declares a name.
    ///
    /// # Errors
    /// If the name is declared already.
    pub(crate) fn declare(&mut self, name: &Token<'a>, symbol: Symbol) -> Result<(), Error> {
        if self.names.contains_key(name.text) {
            return Err(self.duplicate(name));
        }
        self.names.insert(name.text, (symbol, name.line));
        Ok(())
    }

    /// Returns the error for a name that is declared already.
    pub(crate) fn duplicate(&self, name: &Token<'a>) -> Error {
        let first_line = self.names.get(name.text).map_or(0, |(_, line)| *line);
        Error::at(name, ErrorKind::Duplicate { first_line })
    }

    /// Returns the symbol of `name`.
    ///
    /// # Errors
    /// If the name is undefined.
    pub(crate) fn require(&self, name: &Token<'a>) -> Result<Symbol, Error> {
        let undefined = || Error::at(name, ErrorKind::Undefined("variable or function"));
        self.find(name.text).ok_or_else(undefined)
    }
}
