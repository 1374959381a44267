//! The table of module-scope names.

use std::collections::HashMap;

use crate::error::{Error, ErrorKind};
use crate::instruction::Symbol;
use crate::lexer::Token;

/// The symbols of module-scope names, with the lines of their first declarations.
#[derive(Default)]
pub(crate) struct Globals<'a> {
    names: HashMap<&'a str, Global>,
}

/// A declared name.
#[derive(Clone, Copy)]
struct Global {
    symbol: Symbol,
    /// The size of a variable's elements in bytes.
    size: Option<u32>,
    line: u32,
}

impl<'a> Globals<'a> {
    pub(crate) fn find(&self, name: &str) -> Option<Symbol> {
        self.names.get(name).map(|global| global.symbol)
    }

    /// Returns the size of a variable's elements in bytes.
    pub(crate) fn element_size(&self, name: &str) -> Option<u32> {
        self.names.get(name)?.size
    }

    /// Declares a name. `size` is that of a variable's elements.
    ///
    /// # Errors
    /// If the name is declared already.
    pub(crate) fn declare(
        &mut self,
        name: &Token<'a>,
        symbol: Symbol,
        size: Option<u32>,
    ) -> Result<(), Error> {
        if self.names.contains_key(name.text) {
            return Err(self.duplicate(name));
        }
        self.names.insert(name.text, Global { symbol, size, line: name.line });
        Ok(())
    }

    /// Returns the error for a name that is declared already.
    pub(crate) fn duplicate(&self, name: &Token<'a>) -> Error {
        let first_line = self.names.get(name.text).map_or(0, |global| global.line);
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
