//! What can be wrong with a PTX text, and where.

use std::fmt;

use crate::lexer::{Kind, Token};
use crate::limits::MAX_EXCERPT_BYTES;

/// A PTX text that was refused: why, and at which token.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Error {
    /// What is wrong.
    pub kind: ErrorKind,
    /// Line in the PTX text, from 1.
    pub line: u32,
    /// Column in that line, in bytes, from 1.
    pub column: u32,
    /// The offending token, cut short if it is long; empty at the end of the text.
    pub found: String,
}

/// See [`Error::kind`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The grammar wants something else here.
    Expected(&'static str),
    /// A comment, string or block that never ends.
    Unterminated(&'static str),
    /// A number that is none, and why.
    BadNumber(&'static str),
    /// A directive that PTX does not know at this place.
    UnknownDirective,
    /// `%name` is neither declared here nor a special register.
    UnknownRegister,
    /// A name that nothing declares: what kind of name was looked for.
    Undefined(&'static str),
    /// A name that the same scope declared before.
    Duplicate {
        /// Where it was declared first.
        first_line: u32,
    },
    /// A name that was declared before, differently: what differs.
    Mismatch(&'static str),
    /// One of the limits of [`limits`](crate::limits) is exceeded.
    Limit {
        /// The name of the limit.
        name: &'static str,
        /// Its value.
        limit: u64,
    },
    /// Something that PTX forbids.
    Invalid(&'static str),
    /// Something that PTX allows and this crate does not know.
    Unsupported(&'static str),
}

impl Error {
    pub(crate) fn at(token: &Token<'_>, kind: ErrorKind) -> Self {
        let found = match token.kind {
            Kind::End => String::new(),
            _ => excerpt(token.text),
        };
        Self { kind, line: token.line, column: token.column, found }
    }

    pub(crate) fn expected(what: &'static str, token: &Token<'_>) -> Self {
        Self::at(token, ErrorKind::Expected(what))
    }

    pub(crate) fn invalid(what: &'static str, token: &Token<'_>) -> Self {
        Self::at(token, ErrorKind::Invalid(what))
    }

    pub(crate) fn limit(name: &'static str, limit: u64, token: &Token<'_>) -> Self {
        Self::at(token, ErrorKind::Limit { name, limit })
    }
}

/// The first line of `text`, cut at [`MAX_EXCERPT_BYTES`].
fn excerpt(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let mut short: String = String::new();
    for c in line.chars() {
        if short.len() + c.len_utf8() > MAX_EXCERPT_BYTES {
            short.push_str("..");
            break;
        }
        short.push(c);
    }
    short
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PTX line {}, column {}: ", self.line, self.column)?;
        let found = Found(&self.found);
        match &self.kind {
            ErrorKind::Expected(what) => write!(f, "expected {what}, found {found}"),
            ErrorKind::Unterminated(what) => write!(f, "{what} has no end: {found}"),
            ErrorKind::BadNumber(why) => write!(f, "{found} is not a number: {why}"),
            ErrorKind::UnknownDirective => write!(f, "{found} is not a directive known here"),
            ErrorKind::UnknownRegister => {
                write!(f, "{found} is neither a declared register nor a special register")
            }
            ErrorKind::Undefined(what) => write!(f, "undefined {what} {found}"),
            ErrorKind::Duplicate { first_line } => {
                write!(f, "{found} is declared twice, first in line {first_line}")
            }
            ErrorKind::Mismatch(what) => write!(f, "{found} was declared with {what} before"),
            ErrorKind::Limit { name, limit } => {
                write!(f, "{found} exceeds the limit {name} ({limit})")
            }
            ErrorKind::Invalid(what) => write!(f, "{what}, found {found}"),
            ErrorKind::Unsupported(what) => write!(f, "{what} are not supported: {found}"),
        }
    }
}

impl std::error::Error for Error {}

/// The offending token in a sentence.
struct Found<'a>(&'a str);

impl fmt::Display for Found<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            f.write_str("the end of the text")
        } else {
            write!(f, "`{}`", self.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_where_what_was_expected_and_what_was_found() {
        let token = Token { kind: Kind::Ident, text: "foo", line: 3, column: 7 };
        let error = Error::expected("`;`", &token);
        assert_eq!(error.to_string(), "PTX line 3, column 7: expected `;`, found `foo`");
    }

    #[test]
    fn a_long_token_is_cut_at_a_character() {
        let text = "é".repeat(100);
        let cut = excerpt(&text);
        assert_eq!(cut.chars().filter(|c| *c == 'é').count(), MAX_EXCERPT_BYTES / 2);
        assert!(cut.ends_with(".."));
    }
}
