//! The tokens of a PTX text: splits the text, reads the values of numbers, and steps through the tokens with a cursor.
//!
//! Tokens have a line and a column. Comments and white space are removed. The [`Cursor`] reads the value of a number
//! when it is needed ([`literal`]). A character that starts no token becomes its own token, so that [`signatures`] can
//! skip bodies in a future syntax. [`parse`] refuses such a token.
//!
//! [`signatures`]: crate::signatures
//! [`parse`]: crate::parse

use std::ops::Range;

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
fn tokenize(text: &str) -> Result<Vec<Token<'_>>, Error> {
    tokenize_within(text, MAX_SOURCE_BYTES)
}

/// Returns all tokens of a text of at most `most` bytes.
fn tokenize_within(text: &str, most: u64) -> Result<Vec<Token<'_>>, Error> {
    let mut lexer = Lexer { text, at: 0, line: 1, line_start: 0, starts_line: true };
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
    /// Whether only white space precedes this place in its line.
    starts_line: bool,
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
        self.starts_line = true;
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
                b'#' if self.starts_line => {
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
                    self.starts_line = false;
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
        self.starts_line = false;
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

/// The value of a constant expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Constant {
    /// An integer of 64 bits, and whether it is unsigned.
    Int { bits: u64, unsigned: bool },
    /// Bits of an f32.
    F32(u32),
    /// Bits of an f64.
    F64(u64),
}

impl Constant {
    pub(crate) fn signed(value: i64) -> Self {
        Self::Int { bits: value as u64, unsigned: false }
    }
}

/// Reads the value of the number `token`.
pub(crate) fn literal(token: &Token<'_>) -> Result<Constant, Error> {
    read(token.text).map_err(|why| Error::at(token, ErrorKind::BadNumber(why)))
}

fn read(text: &str) -> Result<Constant, &'static str> {
    let prefix = text.get(..2).unwrap_or_default();
    let rest = text.get(2..).unwrap_or_default();
    match prefix {
        "0x" | "0X" => integer(rest, 16),
        "0b" | "0B" => integer(rest, 2),
        "0f" | "0F" => Ok(Constant::F32(exact(rest, 8)? as u32)),
        "0d" | "0D" => Ok(Constant::F64(exact(rest, 16)?)),
        _ if text.contains(['.', 'e', 'E']) => decimal_float(text),
        _ if prefix.starts_with('0') && !matches!(text, "0" | "0U" | "0u") => {
            integer(text.get(1..).unwrap_or_default(), 8)
        }
        _ => integer(text, 10),
    }
}

fn integer(text: &str, radix: u32) -> Result<Constant, &'static str> {
    let digits = text.strip_suffix(['U', 'u']);
    let (digits, unsigned) = digits.map_or((text, false), |digits| (digits, true));
    if digits.is_empty() || !digits.bytes().all(|digit| char::from(digit).is_digit(radix)) {
        return Err("an invalid or missing digit");
    }
    let bits = u64::from_str_radix(digits, radix).map_err(|_| "more than 64 bits")?;
    // As in C, a value that does not fit in a signed 64-bit integer is unsigned.
    Ok(Constant::Int { bits, unsigned: unsigned || bits > i64::MAX as u64 })
}

/// Reads the bits of an exact float.
fn exact(digits: &str, count: usize) -> Result<u64, &'static str> {
    if digits.len() != count || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err("`0f` requires 8 hexadecimal digits, `0d` 16");
    }
    u64::from_str_radix(digits, 16).map_err(|_| "more than 64 bits")
}

fn decimal_float(text: &str) -> Result<Constant, &'static str> {
    // Rust's grammar of numbers allows a leading dot.
    let value: f64 = text.parse().map_err(|_| "not a decimal float")?;
    Ok(Constant::F64(value.to_bits()))
}

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

    /// Runs `read` on the tokens of the next block `{ .. }`. For `read`, the text ends at the `}`. Afterwards the
    /// cursor is behind the block, independent of how many tokens `read` consumed.
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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn line_markers_are_ignored_at_the_start_of_a_line() {
        assert_eq!(
            texts("# 1 x\na\n \t# 2 x\nb # 3\n/* */ # 4\n/*\n*/ #"),
            ["a", "b", "#", "3", "#", "4", "#", ""]
        );
    }

    #[test]
    fn lines_and_columns_start_at_one() {
        let tokens = tokenize("a\n  /* x\n */ b é c").unwrap();
        let places: Vec<_> = tokens.iter().map(|t| (t.text, t.line, t.column)).collect();
        assert_eq!(places, [("a", 1, 1), ("b", 3, 5), ("é", 3, 7), ("c", 3, 10), ("", 3, 11)]);
    }

    fn int(bits: u64, unsigned: bool) -> Result<Constant, &'static str> {
        Ok(Constant::Int { bits, unsigned })
    }

    #[test]
    fn integers_in_every_base() {
        assert_eq!(read("0"), int(0, false));
        assert_eq!(read("0U"), int(0, true));
        assert_eq!(read("42"), int(42, false));
        assert_eq!(read("42U"), int(42, true));
        assert_eq!(read("0x1f"), int(31, false));
        assert_eq!(read("017"), int(15, false));
        assert_eq!(read("0b101"), int(5, false));
        assert_eq!(read("0xFFFFFFFFFFFFFFFF"), int(u64::MAX, true));
    }

    #[test]
    fn floats() {
        assert_eq!(read("0f3F800000"), Ok(Constant::F32(1.0_f32.to_bits())));
        assert_eq!(read("0d3FF0000000000000"), Ok(Constant::F64(1.0_f64.to_bits())));
        assert_eq!(read("1.5e-3"), Ok(Constant::F64(1.5e-3_f64.to_bits())));
        assert_eq!(read("2."), Ok(Constant::F64(2.0_f64.to_bits())));
    }

    #[test]
    fn invalid_numbers_are_refused() {
        for text in
            ["0x", "0b2", "08", "0f3F8", "0d1", "1.5x", "1e", "12abc", "99999999999999999999"]
        {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
