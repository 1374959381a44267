//! The errors of parsing a PTX text.

use std::fmt;

use crate::lexer::{Kind, Token};
use crate::limits::MAX_EXCERPT_BYTES;

/// The error for a PTX text that is refused: its kind, and the offending token.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Error {
    /// The kind of the error.
    pub kind: ErrorKind,
    /// Line in the PTX text, from 1.
    pub line: u32,
    /// Column in that line, in bytes, from 1.
    pub column: u32,
    /// The offending token, truncated if it is long. Empty at the end of the text.
    pub found: String,
}

/// The kind of an [`Error`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The grammar requires another token, which the text describes.
    Expected(&'static str),
    /// A comment, string or block is not terminated.
    Unterminated(&'static str),
    /// A number is invalid, for the given reason.
    BadNumber(&'static str),
    /// A directive is unknown or not allowed at this place.
    UnknownDirective,
    /// `%name` is neither declared in this scope nor a special register.
    UnknownRegister,
    /// A name is not declared. The text is the kind of name that was expected.
    Undefined(&'static str),
    /// A name is declared twice in one scope.
    Duplicate {
        /// The line of the first declaration.
        first_line: u32,
    },
    /// Two declarations of a name differ. The text is the difference.
    Mismatch(&'static str),
    /// One of the [`limits`](crate::limits) is exceeded.
    Limit {
        /// The name of the limit.
        name: &'static str,
        /// The value of the limit.
        limit: u64,
    },
    /// PTX forbids the construct, for the given reason.
    Invalid(&'static str),
    /// PTX allows the construct, but this crate does not support it.
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

/// Returns the first line of `text`, truncated to [`MAX_EXCERPT_BYTES`].
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
            ErrorKind::Unterminated(what) => write!(f, "{what} is not terminated: {found}"),
            ErrorKind::BadNumber(why) => write!(f, "{found} is not a valid number: {why}"),
            ErrorKind::UnknownDirective => write!(f, "unknown or misplaced directive {found}"),
            ErrorKind::UnknownRegister => {
                write!(f, "{found} is neither a declared register nor a special register")
            }
            ErrorKind::Undefined(what) => write!(f, "undefined {what} {found}"),
            ErrorKind::Duplicate { first_line } => {
                write!(f, "{found} is declared twice, first in line {first_line}")
            }
            ErrorKind::Mismatch(what) => write!(f, "{found} was declared before with {what}"),
            ErrorKind::Limit { name, limit } => {
                write!(f, "{found} exceeds the limit {name} ({limit})")
            }
            ErrorKind::Invalid(what) => write!(f, "{what}, found {found}"),
            ErrorKind::Unsupported(what) => write!(f, "{what} are not supported: {found}"),
        }
    }
}

impl std::error::Error for Error {}

/// Displays the offending token in a message.
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
    fn message_has_position_expectation_and_token() {
        let token = Token { kind: Kind::Ident, text: "foo", line: 3, column: 7 };
        let error = Error::expected("`;`", &token);
        assert_eq!(error.to_string(), "PTX line 3, column 7: expected `;`, found `foo`");
    }

    #[test]
    fn long_token_is_truncated_at_a_character_boundary() {
        let text = "é".repeat(100);
        let cut = excerpt(&text);
        assert_eq!(cut.chars().filter(|c| *c == 'é').count(), MAX_EXCERPT_BYTES / 2);
        assert!(cut.ends_with(".."));
    }
}
