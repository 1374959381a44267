//! Evaluates constant expressions in operands, initializers and array sizes.
//!
//! Integers have 64 bits. As in C, they are signed unless they have the suffix `U` or need the top bit.

use crate::error::{Error, ErrorKind};
use crate::lexer::{Constant, Cursor, Kind, Token, literal};
use crate::limits::MAX_EXPRESSION_DEPTH;

/// The name of the constant that is the number of lanes in a warp.
pub(crate) const WARP_SIZE: &str = "WARP_SZ";
const LANES: i64 = 32;

/// Whether a constant expression starts at `token`, not a name or a bracket.
pub(crate) fn starts_constant(token: &Token<'_>) -> bool {
    match token.kind {
        Kind::Number => true,
        Kind::Punct => matches!(token.text, "-" | "+" | "~" | "!" | "("),
        Kind::Ident => token.text == WARP_SIZE,
        _ => false,
    }
}

/// Reads and evaluates a constant expression.
pub(crate) fn constant(cur: &mut Cursor<'_>) -> Result<Constant, Error> {
    Evaluator { cur, depth: 0 }.ternary()
}

/// Reads a constant expression that must be an integer. Returns its bits.
pub(crate) fn constant_integer(cur: &mut Cursor<'_>, what: &'static str) -> Result<u64, Error> {
    let token = cur.peek();
    match constant(cur)? {
        Constant::Int { bits, .. } => Ok(bits),
        _ => Err(Error::expected(what, &token)),
    }
}

/// Reads an optional offset behind an address: `+8`, `+-8`, `-8`, or nothing.
pub(crate) fn offset(cur: &mut Cursor<'_>) -> Result<i64, Error> {
    let signed = cur.peek().is_punct("+") || cur.peek().is_punct("-");
    if signed { Ok(constant_integer(cur, "an offset")? as i64) } else { Ok(0) }
}

struct Evaluator<'c, 'a> {
    cur: &'c mut Cursor<'a>,
    depth: u64,
}

impl Evaluator<'_, '_> {
    /// Runs `part` one level deeper.
    ///
    /// # Errors
    /// If the nesting exceeds the limit.
    fn deeper<T>(&mut self, part: impl Fn(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        if self.depth >= MAX_EXPRESSION_DEPTH {
            let token = self.cur.peek();
            return Err(Error::limit("MAX_EXPRESSION_DEPTH", MAX_EXPRESSION_DEPTH, &token));
        }
        self.depth += 1;
        let result = part(self);
        self.depth -= 1;
        result
    }

    fn ternary(&mut self) -> Result<Constant, Error> {
        let condition = self.binary(0)?;
        let token = self.cur.peek();
        if !self.cur.eat("?") {
            return Ok(condition);
        }
        let chosen = self.deeper(Self::ternary)?;
        self.cur.expect(":", "`:`")?;
        let other = self.deeper(Self::ternary)?;
        let (bits, _) = integer(condition, &token)?;
        Ok(if bits != 0 { chosen } else { other })
    }

    /// Evaluates binary operators with a precedence of at least `least`.
    fn binary(&mut self, least: u32) -> Result<Constant, Error> {
        let mut left = self.deeper(Self::unary)?;
        loop {
            let operator = self.cur.peek();
            let Some(strength) = binding(&operator).filter(|strength| *strength >= least) else {
                return Ok(left);
            };
            self.cur.next();
            let right = self.deeper(|inner| inner.binary(strength + 1))?;
            left = combine(left, &operator, right)?;
        }
    }

    fn unary(&mut self) -> Result<Constant, Error> {
        let token = self.cur.next();
        match (token.kind, token.text) {
            (Kind::Number, _) => literal(&token),
            (Kind::Ident, WARP_SIZE) => Ok(Constant::signed(LANES)),
            (Kind::Punct, "-") => Ok(negated(self.deeper(Self::unary)?)),
            (Kind::Punct, "+") => self.deeper(Self::unary),
            (Kind::Punct, "~") => {
                let (bits, unsigned) = integer(self.deeper(Self::unary)?, &token)?;
                Ok(Constant::Int { bits: !bits, unsigned })
            }
            (Kind::Punct, "!") => {
                let (bits, _) = integer(self.deeper(Self::unary)?, &token)?;
                Ok(Constant::signed(i64::from(bits == 0)))
            }
            (Kind::Punct, "(") => self.parenthesis(),
            _ => Err(Error::expected("a constant", &token)),
        }
    }

    /// Evaluates `(expression)`, or the cast `(.u64) x`.
    fn parenthesis(&mut self) -> Result<Constant, Error> {
        let token = self.cur.peek();
        let unsigned = match token.text {
            ".s64" => false,
            ".u64" => true,
            _ => {
                let inner = self.deeper(Self::ternary)?;
                self.cur.expect(")", "`)`")?;
                return Ok(inner);
            }
        };
        self.cur.next();
        self.cur.expect(")", "`)`")?;
        let (bits, _) = integer(self.deeper(Self::unary)?, &token)?;
        Ok(Constant::Int { bits, unsigned })
    }
}

fn negated(value: Constant) -> Constant {
    match value {
        Constant::Int { bits, unsigned } => Constant::Int { bits: bits.wrapping_neg(), unsigned },
        Constant::F32(bits) => Constant::F32(bits ^ (1 << 31)),
        Constant::F64(bits) => Constant::F64(bits ^ (1 << 63)),
    }
}

/// Returns the precedence of a binary operator, or `None` if the token is not one.
fn binding(operator: &Token<'_>) -> Option<u32> {
    if operator.kind != Kind::Punct {
        return None;
    }
    Some(match operator.text {
        "||" => 0,
        "&&" => 1,
        "|" => 2,
        "^" => 3,
        "&" => 4,
        "==" | "!=" => 5,
        "<" | ">" | "<=" | ">=" => 6,
        "<<" | ">>" => 7,
        "+" | "-" => 8,
        "*" | "/" | "%" => 9,
        _ => return None,
    })
}

fn integer(value: Constant, token: &Token<'_>) -> Result<(u64, bool), Error> {
    match value {
        Constant::Int { bits, unsigned } => Ok((bits, unsigned)),
        _ => Err(Error::invalid("the operator requires two integers or two decimal floats", token)),
    }
}

fn combine(left: Constant, operator: &Token<'_>, right: Constant) -> Result<Constant, Error> {
    if let (Constant::F64(a), Constant::F64(b)) = (left, right) {
        return combine_floats(f64::from_bits(a), operator, f64::from_bits(b));
    }
    let (a, a_unsigned) = integer(left, operator)?;
    let (b, b_unsigned) = integer(right, operator)?;
    let unsigned = a_unsigned || b_unsigned;
    let order = if unsigned { a.cmp(&b) } else { (a as i64).cmp(&(b as i64)) };
    let truth = |condition: bool| Constant::signed(i64::from(condition));
    // A right shift by 64 or more leaves only copies of the sign bit.
    let shift = u32::try_from(b).unwrap_or(u32::MAX);
    let bits = match operator.text {
        "||" => return Ok(truth(a != 0 || b != 0)),
        "&&" => return Ok(truth(a != 0 && b != 0)),
        "==" => return Ok(truth(a == b)),
        "!=" => return Ok(truth(a != b)),
        "<" => return Ok(truth(order.is_lt())),
        ">" => return Ok(truth(order.is_gt())),
        "<=" => return Ok(truth(order.is_le())),
        ">=" => return Ok(truth(order.is_ge())),
        "|" => a | b,
        "^" => a ^ b,
        "&" => a & b,
        "+" => a.wrapping_add(b),
        "-" => a.wrapping_sub(b),
        "*" => a.wrapping_mul(b),
        "<<" => a.checked_shl(shift).unwrap_or(0),
        ">>" if a_unsigned => a.checked_shr(shift).unwrap_or(0),
        ">>" => ((a as i64) >> shift.min(63)) as u64,
        _ => divide(a, operator, b, unsigned)?,
    };
    Ok(Constant::Int { bits, unsigned })
}

/// Combines two decimal floats. Exact floats, such as `0f3F800000`, have no operators.
fn combine_floats(a: f64, operator: &Token<'_>, b: f64) -> Result<Constant, Error> {
    let truth = |condition: bool| Ok(Constant::signed(i64::from(condition)));
    let value = match operator.text {
        "+" => a + b,
        "-" => a - b,
        "*" => a * b,
        "/" if b == 0.0 => {
            let by_zero = ErrorKind::Invalid("division by zero in a constant expression");
            return Err(Error::at(operator, by_zero));
        }
        "/" => a / b,
        "==" => return truth(a == b),
        "!=" => return truth(a != b),
        "<" => return truth(a < b),
        ">" => return truth(a > b),
        "<=" => return truth(a <= b),
        ">=" => return truth(a >= b),
        _ => return Err(Error::invalid("the operator requires integer constants", operator)),
    };
    Ok(Constant::F64(value.to_bits()))
}

fn divide(a: u64, operator: &Token<'_>, b: u64, unsigned: bool) -> Result<u64, Error> {
    if b == 0 {
        let by_zero = ErrorKind::Invalid("division by zero in a constant expression");
        return Err(Error::at(operator, by_zero));
    }
    Ok(match (operator.text == "/", unsigned) {
        (true, true) => a / b,
        (false, true) => a % b,
        (true, false) => (a as i64).wrapping_div(b as i64) as u64,
        (false, false) => (a as i64).wrapping_rem(b as i64) as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn eval(text: &str) -> Result<Constant, Error> {
        constant(&mut Cursor::new(text)?)
    }

    #[test]
    fn precedence_and_signs() {
        for (text, value) in [
            ("1 + 2 * 3", 7),
            ("(1 + 2) * 3", 9),
            ("-8 + 4", -4),
            ("10 - 3 - 2", 5),
            ("1 << 4 | 1", 17),
            ("-16 >> 2", -4),
            ("-7 / 2", -3),
            ("-7 % 4", -3),
            ("1 < 2 && 2 >= 3", 0),
            ("1 ? 5 : 6", 5),
            ("!0 + ~0", 0),
            ("WARP_SZ - 1", 31),
            ("(.s64) 0xFFFFFFFFFFFFFFFF", -1),
            ("1 << 64", 0),
            ("-1 >> 100", -1),
        ] {
            assert_eq!(eval(text), Ok(Constant::signed(value)), "{text}");
        }
        assert_eq!(eval("-1 < 1U"), Ok(Constant::signed(0)));
        assert_eq!(eval("-0f3F800000"), Ok(Constant::F32((-1.0_f32).to_bits())));
        assert_eq!(eval("1.5 * 2.0 + .5"), Ok(Constant::F64(3.5_f64.to_bits())));
        assert_eq!(eval("1.0 < 2.0"), Ok(Constant::signed(1)));
    }

    #[test]
    fn invalid_expressions_are_refused() {
        for text in ["1 / 0", "1.0 + 2", "", "(1", "1 ? 2", "0x8000000000000000 % 0"] {
            assert!(eval(text).is_err(), "{text}");
        }
        assert!(eval("-0x8000000000000000 / -1").is_ok());
        for part in ["(", "-", "1 ? ", "1 ? 1 : "] {
            let error = eval(&part.repeat(100_000)).unwrap_err();
            assert!(matches!(error.kind, ErrorKind::Limit { .. }), "{part}: {error}");
        }
    }
}
