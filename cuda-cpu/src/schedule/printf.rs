//! Formats the output of `printf`.

use std::cell::Cell;

/// Type of the next argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Argument {
    /// Four bytes.
    Word,
    /// Eight bytes.
    Long,
    /// An `f64`.
    Float,
    /// A pointer to a string.
    Text,
}

/// A conversion such as `%-08.3lf`.
#[derive(Debug, Default)]
struct Conversion {
    left: bool,
    plus: bool,
    space: bool,
    alternate: bool,
    zero: bool,
    width: usize,
    precision: Option<usize>,
    long: bool,
}

/// Maximum field width. Larger widths are clamped.
const MAX_WIDTH: usize = 4096;

/// Maximum output in bytes, the size of a GPU's `printf` buffer. The rest is left out.
const MAX_OUTPUT: usize = 1 << 20;

/// Maximum number of arguments, as in CUDA. Conversions behind it are printed as they are written.
const MAX_ARGUMENTS: usize = 32;

/// The conversions that take an argument.
const CONVERSIONS: &str = "diuxXopcsfFeEgGaA";

/// Formats a string. `next` returns the bits of the next argument, and its text if it is a string.
pub(crate) fn format(format: &str, mut next: impl FnMut(Argument) -> (u64, String)) -> String {
    let taken = Cell::new(0);
    let mut next = |kind| {
        taken.set(taken.get() + 1);
        if taken.get() <= MAX_ARGUMENTS { next(kind) } else { (0, String::new()) }
    };
    let mut out = String::with_capacity(format.len());
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        if out.len() > MAX_OUTPUT {
            return out;
        }
        rest = &rest[at + 1..];
        let (conversion, kind, after) = parse(rest, &mut next);
        match kind {
            Some('%') => out.push('%'),
            Some(kind) if CONVERSIONS.contains(kind) && taken.get() >= MAX_ARGUMENTS => {
                out.push('%');
                out.push_str(&rest[..rest.len() - after.len()]);
            }
            Some(kind) => convert(&mut out, &conversion, kind, &mut next),
            None => out.push('%'),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Parses the part of a conversion that follows `%`.
fn parse<'a>(
    text: &'a str,
    next: &mut impl FnMut(Argument) -> (u64, String),
) -> (Conversion, Option<char>, &'a str) {
    let mut c = Conversion::default();
    let mut rest = text;
    loop {
        match rest.as_bytes().first() {
            Some(b'-') => c.left = true,
            Some(b'+') => c.plus = true,
            Some(b' ') => c.space = true,
            Some(b'#') => c.alternate = true,
            Some(b'0') => c.zero = true,
            _ => break,
        }
        rest = &rest[1..];
    }
    let mut number = |rest: &mut &'a str| -> i64 {
        if let Some(after) = rest.strip_prefix('*') {
            *rest = after;
            return i64::from(next(Argument::Word).0 as u32 as i32);
        }
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at(digits);
        *rest = after;
        number.parse().unwrap_or(0)
    };
    let width = number(&mut rest);
    c.left |= width < 0;
    c.width = usize::try_from(width.unsigned_abs()).unwrap_or(0).min(MAX_WIDTH);
    if let Some(mut after) = rest.strip_prefix('.') {
        // A negative precision counts as no precision, as in C.
        c.precision = usize::try_from(number(&mut after)).ok().map(|p| p.min(MAX_WIDTH));
        rest = after;
    }
    loop {
        match rest.as_bytes().first() {
            Some(b'l' | b'j' | b'z' | b't') => c.long = true,
            Some(b'h') => {}
            _ => break,
        }
        rest = &rest[1..];
    }
    let mut chars = rest.chars();
    let kind = chars.next();
    (c, kind, chars.as_str())
}

fn convert(
    out: &mut String,
    c: &Conversion,
    kind: char,
    next: &mut impl FnMut(Argument) -> (u64, String),
) {
    let integer = if c.long { Argument::Long } else { Argument::Word };
    match kind {
        'd' | 'i' => {
            let bits = next(integer).0;
            let value = if c.long { bits as i64 } else { i64::from(bits as u32 as i32) };
            let digits = at_least(value.unsigned_abs().to_string(), c, value == 0);
            field(out, c, sign(c, value < 0), &digits, c.precision.is_none());
        }
        'u' | 'x' | 'X' | 'o' => {
            let bits = next(integer).0;
            let value = if c.long { bits } else { bits & 0xFFFF_FFFF };
            let (digits, prefix) = match kind {
                'x' => (format!("{value:x}"), "0x"),
                'X' => (format!("{value:X}"), "0X"),
                'o' => (format!("{value:o}"), "0"),
                _ => (value.to_string(), ""),
            };
            let prefix = if c.alternate && value != 0 { prefix } else { "" };
            field(out, c, prefix, &at_least(digits, c, value == 0), c.precision.is_none());
        }
        'p' => {
            let value = next(Argument::Long).0;
            field(out, c, "", &format!("{value:#x}"), false);
        }
        'c' => {
            let value = next(Argument::Word).0 as u8;
            field(out, c, "", &char::from(value).to_string(), false);
        }
        's' => {
            let text = next(Argument::Text).1;
            let shown: String = text.chars().take(c.precision.unwrap_or(usize::MAX)).collect();
            field(out, c, "", &shown, false);
        }
        'f' | 'F' | 'e' | 'E' | 'g' | 'G' | 'a' | 'A' => {
            let value = f64::from_bits(next(Argument::Float).0);
            let digits = float(c, kind, value.abs());
            field(out, c, sign(c, value.is_sign_negative()), &digits, value.is_finite());
        }
        other => {
            out.push('%');
            out.push(other);
        }
    }
}

fn sign(c: &Conversion, negative: bool) -> &'static str {
    match (negative, c.plus, c.space) {
        (true, ..) => "-",
        (_, true, _) => "+",
        (_, _, true) => " ",
        _ => "",
    }
}

/// Pads digits with zeros to the precision. Zero with precision zero has no digits.
fn at_least(digits: String, c: &Conversion, zero: bool) -> String {
    match c.precision {
        Some(0) if zero => String::new(),
        Some(p) => format!("{digits:0>p$}"),
        None => digits,
    }
}

fn float(c: &Conversion, kind: char, value: f64) -> String {
    let precision = c.precision.unwrap_or(6);
    let text = match kind.to_ascii_lowercase() {
        _ if value.is_nan() => "nan".into(),
        _ if value.is_infinite() => "inf".into(),
        'f' => format!("{value:.precision$}"),
        'e' => exponent(value, precision),
        'a' => hexadecimal(value),
        _ => general(c, value, precision.max(1)),
    };
    if kind.is_ascii_uppercase() { text.to_uppercase() } else { text }
}

/// Formats with an exponent of at least two digits, as in `1.5e+03`.
fn exponent(value: f64, precision: usize) -> String {
    let text = format!("{value:.precision$e}");
    let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
    let power: i32 = power.parse().unwrap_or(0);
    let sign = if power < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", power.abs())
}

fn general(c: &Conversion, value: f64, precision: usize) -> String {
    let scientific = exponent(value, precision - 1);
    let power: i32 = scientific.split_once('e').and_then(|(_, p)| p.parse().ok()).unwrap_or(0);
    let plain = (-4..precision as i32).contains(&power);
    let text = if plain {
        let decimals = usize::try_from(precision as i32 - 1 - power).unwrap_or(0);
        format!("{value:.decimals$}")
    } else {
        scientific
    };
    if c.alternate || !text.contains('.') {
        return text;
    }
    let (digits, power) = match text.split_once('e') {
        Some((digits, power)) => (digits.to_owned(), format!("e{power}")),
        None => (text, String::new()),
    };
    format!("{}{power}", digits.trim_end_matches('0').trim_end_matches('.'))
}

fn hexadecimal(value: f64) -> String {
    if value == 0.0 {
        return "0x0p+0".into();
    }
    let (bits, subnormal) = (value.to_bits(), !value.is_normal());
    let power = if subnormal { -1022 } else { (bits >> 52) as i64 - 1023 };
    let fraction = format!("{:013x}", bits & ((1 << 52) - 1));
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    format!("0x{}{point}{fraction}p{power:+}", u8::from(!subnormal))
}

/// Pads to the width, with zeros between prefix and digits, or with spaces outside.
fn field(out: &mut String, c: &Conversion, prefix: &str, text: &str, may_zero: bool) {
    let missing = c.width.saturating_sub(prefix.len() + text.chars().count());
    let zeros = c.zero && may_zero && !c.left;
    let pad = |out: &mut String, with: char| out.extend(std::iter::repeat_n(with, missing));
    if !c.left && !zeros {
        pad(out, ' ');
    }
    out.push_str(prefix);
    if zeros {
        pad(out, '0');
    }
    out.push_str(text);
    if c.left {
        pad(out, ' ');
    }
}
