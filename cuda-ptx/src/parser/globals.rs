//! The table of module-scope names.

use std::collections::HashMap;

use crate::error::{Error, ErrorKind};
use crate::instruction::Symbol;
use crate::lexer::Token;
use crate::types::ScalarType;

/// The symbols of module-scope names, with the lines of their first declarations.
#[derive(Default)]
pub(crate) struct Globals<'a> {
    names: HashMap<&'a str, (Symbol, u32)>,
    /// The types of variables, by their indices.
    types: HashMap<Symbol, ScalarType>,
}

impl<'a> Globals<'a> {
    pub(crate) fn find(&self, name: &str) -> Option<Symbol> {
        self.names.get(name).map(|(symbol, _)| *symbol)
    }

    /// Returns the type of a variable, or of its elements.
    pub(crate) fn ty(&self, symbol: Symbol) -> Option<ScalarType> {
        self.types.get(&symbol).copied()
    }

    /// Declares a name. `ty` is the type of a variable.
    ///
    /// # Errors
    /// If the name is declared already.
    pub(crate) fn declare(
        &mut self,
        name: &Token<'a>,
        symbol: Symbol,
        ty: Option<ScalarType>,
    ) -> Result<(), Error> {
        if self.names.contains_key(name.text) {
            return Err(self.duplicate(name));
        }
        self.names.insert(name.text, (symbol, name.line));
        self.types.extend(ty.map(|ty| (symbol, ty)));
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
