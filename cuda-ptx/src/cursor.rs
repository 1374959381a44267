//! A cursor over the list of tokens: looks ahead, advances, and checks for expected tokens.

use std::ops::Range;

use crate::error::{Error, ErrorKind};
use crate::lexer::{Kind, Token, tokenize};
use crate::number::{Constant, literal};

/// A position in the list of tokens.
pub(crate) struct Cursor<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
    /// The index of the first token that is hidden.
    stop: usize,
    /// The token returned at the end, any number of times.
    end: Token<'a>,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a str) -> Result<Self, Error> {
        let tokens = tokenize(text)?;
        let none = Token { kind: Kind::End, text: "", line: 1, column: 1 };
        let end = tokens.last().copied().unwrap_or(none);
        let stop = tokens.len();
        Ok(Self { tokens, at: 0, stop, end })
    }

    /// Index of the next token.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// Runs `read` on the tokens of the next block `{ .. }`. For `read`, the text ends at the `}`. Afterwards the cursor is
    /// behind the block, independent of how many tokens `read` consumed.
    pub(crate) fn inside_block<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let start = self.at;
        self.skip_balanced("{", "}")?;
        let (behind, stop) = (self.at, self.stop);
        (self.at, self.stop) = (start + 1, behind - 1);
        let result = read(self);
        (self.at, self.stop) = (behind, stop);
        result
    }

    /// The tokens in a range of positions.
    pub(crate) fn tokens(&self, range: Range<usize>) -> &[Token<'a>] {
        self.tokens.get(range).unwrap_or_default()
    }

    /// The tokens from the next one on.
    pub(crate) fn remaining(&self) -> &[Token<'a>] {
        self.tokens.get(self.at..self.stop).unwrap_or_default()
    }

    pub(crate) fn peek(&self) -> Token<'a> {
        self.peek_at(0)
    }

    pub(crate) fn peek_at(&self, ahead: usize) -> Token<'a> {
        let at = self.at + ahead;
        let token = if at < self.stop { self.tokens.get(at) } else { None };
        token.copied().unwrap_or(self.end)
    }

    pub(crate) fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        if token.kind != Kind::End {
            self.at += 1;
        }
        token
    }

    pub(crate) fn at_end(&self) -> bool {
        self.peek().kind == Kind::End
    }

    /// Steps over the punctuation `text` if it is next.
    pub(crate) fn eat(&mut self, text: &str) -> bool {
        let found = self.peek().is_punct(text);
        if found {
            self.next();
        }
        found
    }

    /// Steps over the directive `text` if it is next.
    pub(crate) fn eat_dot(&mut self, text: &str) -> bool {
        let found = self.peek().is_dot(text);
        if found {
            self.next();
        }
        found
    }

    /// Steps over the punctuation `text`. The error message names it `what`.
    pub(crate) fn expect(&mut self, text: &str, what: &'static str) -> Result<(), Error> {
        if self.eat(text) { Ok(()) } else { Err(Error::expected(what, &self.peek())) }
    }

    pub(crate) fn semicolon(&mut self) -> Result<(), Error> {
        self.expect(";", "`;`")
    }

    pub(crate) fn ident(&mut self, what: &'static str) -> Result<Token<'a>, Error> {
        self.of_kind(Kind::Ident, what)
    }

    pub(crate) fn string(&mut self, what: &'static str) -> Result<Token<'a>, Error> {
        self.of_kind(Kind::Str, what)
    }

    pub(crate) fn of_kind(&mut self, kind: Kind, what: &'static str) -> Result<Token<'a>, Error> {
        let token = self.peek();
        if token.kind != kind {
            return Err(Error::expected(what, &token));
        }
        Ok(self.next())
    }

    /// Reads an integer literal, without sign or operators.
    pub(crate) fn integer(&mut self, what: &'static str) -> Result<u64, Error> {
        let token = self.of_kind(Kind::Number, what)?;
        match literal(&token)? {
            Constant::Int { bits, .. } => Ok(bits),
            _ => Err(Error::expected(what, &token)),
        }
    }

    /// Reads an integer literal of at most 32 bits.
    pub(crate) fn integer32(&mut self, what: &'static str) -> Result<u32, Error> {
        let token = self.peek();
        let value = self.integer(what)?;
        u32::try_from(value)
            .map_err(|_| Error::at(&token, ErrorKind::BadNumber("more than 32 bits")))
    }

    /// Steps over `open .. close` and all tokens between.
    ///
    /// # Errors
    /// If `open` is not next, or has no matching `close`.
    pub(crate) fn skip_balanced(&mut self, open: &str, close: &str) -> Result<(), Error> {
        let start = self.peek();
        if !start.is_punct(open) {
            return Err(Error::expected("an opening bracket", &start));
        }
        let mut depth = 0_usize;
        loop {
            let token = self.next();
            if token.kind == Kind::End {
                return Err(Error::at(&start, ErrorKind::Unterminated("a block")));
            } else if token.is_punct(open) {
                depth += 1;
            } else if token.is_punct(close) {
                depth -= 1;
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }
}
