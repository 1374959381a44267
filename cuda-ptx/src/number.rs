//! Reads numbers: decimal, hexadecimal, octal and binary integers, exact floats and decimal floats.

use crate::error::{Error, ErrorKind};
use crate::lexer::Token;

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

#[cfg(test)]
mod tests {
    use super::*;

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
