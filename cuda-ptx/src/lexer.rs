//! Splits a PTX text into tokens with line and column. Comments and white space are removed.
//!
//! Numbers are only delimited here. [`number`](crate::number) reads their values when needed. A character that starts no
//! token becomes its own token, so that [`signatures`] can skip bodies in a future syntax. [`parse`] refuses such a token.
//!
//! [`signatures`]: crate::signatures
//! [`parse`]: crate::parse

use crate::error::{Error, ErrorKind};
use crate::limits::{MAX_SOURCE_BYTES, index};

/// A token: a piece of the text and its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub(crate) kind: Kind,
    pub(crate) text: &'a str,
    /// The line, from 1.
    pub(crate) line: u32,
    /// The column in bytes, from 1.
    pub(crate) column: u32,
}

/// The kind of a [`Token`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An identifier: `add`, `%r1`, `$L__BB0_2`, `_`.
    Ident,
    /// A directive or modifier with its dot: `.global`, `.shared::cta`, `.2d`.
    Dot,
    /// A number: `12`, `0x1F`, `0f3F800000`, `1.5e3`.
    Number,
    /// A string with its quotes: `"text"`.
    Str,
    /// Punctuation, or a character that PTX does not use.
    Punct,
    /// The end of the text.
    End,
}

impl Token<'_> {
    pub(crate) fn is_punct(&self, text: &str) -> bool {
        self.kind == Kind::Punct && self.text == text
    }

    pub(crate) fn is_dot(&self, text: &str) -> bool {
        self.kind == Kind::Dot && self.text == text
    }

    /// Whether `other` follows directly, without white space.
    pub(crate) fn touches(&self, other: &Token<'_>) -> bool {
        let end = u64::from(self.column) + self.text.len() as u64;
        self.line == other.line && end == u64::from(other.column)
    }
}

/// Returns all tokens of `text`. The last one has the kind [`Kind::End`].
pub(crate) fn tokenize(text: &str) -> Result<Vec<Token<'_>>, Error> {
    tokenize_within(text, MAX_SOURCE_BYTES)
}

/// Returns all tokens of a text of at most `most` bytes.
fn tokenize_within(text: &str, most: u64) -> Result<Vec<Token<'_>>, Error> {
    let mut lexer = Lexer { text, at: 0, line: 1, line_start: 0 };
    if text.len() as u64 > most {
        return Err(Error::limit("MAX_SOURCE_BYTES", most, &lexer.here()));
    }
    let mut tokens = Vec::new();
    loop {
        lexer.skip_blanks()?;
        let token = lexer.token()?;
        tokens.push(token);
        if token.kind == Kind::End {
            return Ok(tokens);
        }
    }
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: u32,
    line_start: usize,
}

impl<'a> Lexer<'a> {
    fn byte(&self, ahead: usize) -> u8 {
        self.text.as_bytes().get(self.at + ahead).copied().unwrap_or(0)
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Returns an empty token at the current position, for errors outside of a token.
    fn here(&self) -> Token<'a> {
        let column = index(self.at - self.line_start) + 1;
        Token { kind: Kind::End, text: "", line: self.line, column }
    }

    fn newline(&mut self) {
        self.line += 1;
        self.line_start = self.at;
    }

    fn skip_blanks(&mut self) -> Result<(), Error> {
        loop {
            match self.byte(0) {
                b'\n' => {
                    self.at += 1;
                    self.newline();
                }
                b' ' | b'\t' | b'\r' | 0x0b | 0x0c => self.at += 1,
                // Compilers return the text with a terminating NUL, which callers may pass on.
                0 if self.at < self.text.len() => self.at += 1,
                b'/' if self.byte(1) == b'/' => {
                    self.at += self.rest().find('\n').unwrap_or(self.rest().len());
                }
                b'/' if self.byte(1) == b'*' => self.skip_comment()?,
                // A line marker of the preprocessor: `# 12 "file"`.
                b'#' if self.starts_line() => {
                    self.at += self.rest().find('\n').unwrap_or(self.rest().len());
                }
                _ => return Ok(()),
            }
        }
    }

    fn skip_comment(&mut self) -> Result<(), Error> {
        let start = Token { kind: Kind::Punct, text: "/*", ..self.here() };
        self.at += 2;
        loop {
            match self.byte(0) {
                b'*' if self.byte(1) == b'/' => {
                    self.at += 2;
                    return Ok(());
                }
                b'\n' => {
                    self.at += 1;
                    self.newline();
                }
                _ if self.at >= self.text.len() => {
                    return Err(Error::at(&start, ErrorKind::Unterminated("a comment")));
                }
                _ => self.at += 1,
            }
        }
    }

    fn token(&mut self) -> Result<Token<'a>, Error> {
        let here = self.here();
        let start = self.at;
        let kind = match self.byte(0) {
            _ if start >= self.text.len() => return Ok(here),
            b'.' if self.byte(1).is_ascii_digit() && !self.follows_name() => self.number(),
            b'.' if is_name(self.byte(1)) => self.dot(),
            b'%' if !is_name(self.byte(1)) => self.punct(),
            b'%' | b'$' | b'_' | b'a'..=b'z' | b'A'..=b'Z' => {
                self.at += 1;
                self.name();
                Kind::Ident
            }
            b'0'..=b'9' => self.number(),
            b'"' => self.string(&here)?,
            _ => self.punct(),
        };
        Ok(Token { kind, text: self.text.get(start..self.at).unwrap_or_default(), ..here })
    }

    /// Whether a name or modifier ends here, so that a dot continues it: `.v2.5` is not a number.
    fn follows_name(&self) -> bool {
        self.at
            .checked_sub(1)
            .is_some_and(|before| self.text.as_bytes().get(before).is_some_and(|b| is_name(*b)))
    }

    /// Whether only white space precedes this place in its line.
    fn starts_line(&self) -> bool {
        self.text.get(self.line_start..self.at).is_some_and(|before| before.trim().is_empty())
    }

    fn name(&mut self) {
        while is_name(self.byte(0)) {
            self.at += 1;
        }
    }

    /// Reads the parts of a modifier with `::`, such as `.shared::cta`.
    fn dot(&mut self) -> Kind {
        self.at += 1;
        self.name();
        while self.byte(0) == b':' && self.byte(1) == b':' && is_name(self.byte(2)) {
            self.at += 2;
            self.name();
        }
        Kind::Dot
    }

    fn number(&mut self) -> Kind {
        let prefixed = self.byte(0) == b'0'
            && matches!(self.byte(1), b'x' | b'X' | b'b' | b'B' | b'f' | b'F' | b'd' | b'D');
        if prefixed {
            self.name();
            return Kind::Number;
        }
        self.digits();
        if self.byte(0) == b'.' && !matches!(self.byte(1), b'a'..=b'z' | b'A'..=b'Z' | b'_') {
            self.at += 1;
            self.digits();
        }
        let signed = matches!(self.byte(1), b'+' | b'-') && self.byte(2).is_ascii_digit();
        if matches!(self.byte(0), b'e' | b'E') && signed {
            self.at += 2;
        }
        self.name();
        Kind::Number
    }

    fn digits(&mut self) {
        while self.byte(0).is_ascii_digit() {
            self.at += 1;
        }
    }

    fn string(&mut self, start: &Token<'a>) -> Result<Kind, Error> {
        self.at += 1;
        loop {
            match self.byte(0) {
                b'"' => {
                    self.at += 1;
                    return Ok(Kind::Str);
                }
                b'\n' | 0 => {
                    let token = Token { kind: Kind::Str, text: "\"", ..*start };
                    return Err(Error::at(&token, ErrorKind::Unterminated("a string")));
                }
                b'\\' if !matches!(self.byte(1), b'\n' | 0) => self.at += 2,
                _ => self.at += 1,
            }
        }
    }

    fn punct(&mut self) -> Kind {
        const PAIRS: [&str; 8] = ["<<", ">>", "<=", ">=", "==", "!=", "&&", "||"];
        let pair = PAIRS.iter().any(|pair| self.rest().starts_with(pair));
        let one = self.rest().chars().next().map_or(1, char::len_utf8);
        self.at += if pair { 2 } else { one };
        Kind::Punct
    }
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$'
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The documentation of the crate states this size.
    /// The limit of the length keeps all positions and indices in 32 bits.
    #[test]
    fn text_longer_than_the_limit_is_refused() {
        let text = ".version 9.1\n.target sm_90 // \u{e9}\n{ add.u32 %r1, %r2, 0x10; }";
        for length in (0..=text.len()).filter(|length| text.is_char_boundary(*length)) {
            for most in 0..=text.len() as u64 {
                let tokens = tokenize_within(&text[..length], most);
                let kind = ErrorKind::Limit { name: "MAX_SOURCE_BYTES", limit: most };
                assert_eq!(tokens.is_ok(), length as u64 <= most, "{length} {most}");
                let position = |error: Error| (error.kind, error.line, error.column);
                assert!(
                    tokens.is_ok_and(|tokens| tokens.iter().all(|t| t.line <= 3 && t.column <= 40))
                        || tokenize_within(&text[..length], most)
                            .is_err_and(|e| position(e) == (kind, 1, 1))
                );
            }
        }
    }

    #[test]
    fn token_has_32_bytes() {
        assert_eq!(size_of::<Token<'_>>(), 32);
    }

    fn texts(text: &str) -> Vec<&str> {
        tokenize(text).unwrap().iter().map(|t| t.text).collect()
    }

    #[test]
    fn an_instruction() {
        assert_eq!(
            texts("@!%p1 ld.global.v2.f32 {%f1,%f2}, [%rd1+-8];"),
            [
                "@", "!", "%p1", "ld", ".global", ".v2", ".f32", "{", "%f1", ",", "%f2", "}", ",",
                "[", "%rd1", "+", "-", "8", "]", ";", ""
            ]
        );
    }

    #[test]
    fn double_colons_stay_inside_a_modifier() {
        assert_eq!(
            texts("cp.async.shared::cta.L2::128B"),
            ["cp", ".async", ".shared::cta", ".L2::128B", ""]
        );
        assert_eq!(texts("$L1: tex.2d"), ["$L1", ":", "tex", ".2d", ""]);
    }

    #[test]
    fn numbers() {
        assert_eq!(
            texts("0x1FU 0f3F800000 017 8.7 1.5e-3 2e5 1. 3U"),
            ["0x1FU", "0f3F800000", "017", "8.7", "1.5e-3", "2e5", "1.", "3U", ""]
        );
    }

    #[test]
    fn tokens_inside_comments_and_strings_are_ignored() {
        assert_eq!(
            texts("a /* } */ b // {\n c \"}\\\" //\" \0"),
            ["a", "b", "c", "\"}\\\" //\"", ""]
        );
        assert!(tokenize("a /* b").is_err());
        assert!(tokenize("\"abc\n\"").is_err());
        assert!(tokenize("\"abc\\").is_err());
    }

    #[test]
    fn lines_and_columns_start_at_one() {
        let tokens = tokenize("a\n  /* x\n */ b é c").unwrap();
        let places: Vec<_> = tokens.iter().map(|t| (t.text, t.line, t.column)).collect();
        assert_eq!(places, [("a", 1, 1), ("b", 3, 5), ("é", 3, 7), ("c", 3, 10), ("", 3, 11)]);
    }
}
