//! Parses the initializer of a variable: numbers, addresses and nested braces.

use crate::ast::{Init, InitValue};
use crate::cursor::Cursor;
use crate::error::{Error, ErrorKind};
use crate::instruction::Symbol;
use crate::lexer::{Kind, Token};
use crate::limits::MAX_VARIABLE_BYTES;
use crate::number::Constant;
use crate::parser::declared::{DeclaredType, Dimensions};
use crate::parser::expression::{constant, offset, starts_constant};
use crate::parser::mask::MaskedAddress;
use crate::types::ScalarType;

/// The maximum number of zero bytes between two values that are stored in one piece. Longer runs of zeros are skipped.
const ZEROS_KEPT: u64 = 64;

/// A piece of an initializer, before its symbol is resolved.
pub(crate) struct RawInit<'a> {
    at: u64,
    value: RawValue<'a>,
}

enum RawValue<'a> {
    Bytes(Vec<u8>),
    Address { name: Token<'a>, addend: i64, generic: bool, size: u32 },
}

impl<'a> RawInit<'a> {
    /// Resolves the symbol with `find`.
    pub(crate) fn resolve(
        self,
        find: impl Fn(&Token<'a>) -> Result<Symbol, Error>,
    ) -> Result<Init, Error> {
        let value = match self.value {
            RawValue::Bytes(bytes) => InitValue::Bytes(bytes),
            RawValue::Address { name, addend, generic, size } => {
                InitValue::Address { symbol: find(&name)?, addend, generic, size }
            }
        };
        Ok(Init { at: self.at, value })
    }
}

/// A parsed initializer: its pieces, and its size in bytes up to the end of the last element.
pub(crate) struct Initializer<'a> {
    pub(crate) pieces: Vec<RawInit<'a>>,
    pub(crate) bytes: u64,
}

/// Parses the initializer of a variable of this type and these dimensions.
pub(crate) fn initializer<'a>(
    cur: &mut Cursor<'a>,
    ty: &DeclaredType,
    dims: &Dimensions,
) -> Result<Initializer<'a>, Error> {
    let mut lengths = dims.known.clone();
    if dims.open {
        lengths.insert(0, u64::MAX);
    }
    if ty.lanes > 1 {
        lengths.push(u64::from(ty.lanes));
    }
    let mut reader = Reader { cur, ty: ty.ty, pieces: Vec::new(), element: 0, end: 0, mask: None };
    match lengths.split_first() {
        Some((first, inner)) => reader.braces(*first, inner)?,
        None => reader.scalar()?,
    }
    if let Some(mask) = &reader.mask {
        return Err(mask.incomplete());
    }
    let bytes = reader.end.saturating_mul(u64::from(ty.ty.size()));
    Ok(Initializer { pieces: reader.pieces, bytes })
}

struct Reader<'c, 'a> {
    cur: &'c mut Cursor<'a>,
    ty: ScalarType,
    pieces: Vec<RawInit<'a>>,
    /// The flattened index of the next element.
    element: u64,
    /// The number of elements up to the last one written, rounded up to whole rows.
    end: u64,
    /// The address that is being written byte by byte.
    mask: Option<MaskedAddress<'a>>,
}

impl<'a> Reader<'_, 'a> {
    /// Parses `{ .. }` with up to `length` items, each an array of `inner` dimensions. The recursion is limited by the number
    /// of dimensions.
    fn braces(&mut self, length: u64, inner: &[u64]) -> Result<(), Error> {
        self.cur.expect("{", "`{`")?;
        let start = self.element;
        let row = inner.iter().fold(1_u64, |size, n| size.saturating_mul(*n));
        let limit = start.saturating_add(length.saturating_mul(row));
        while !self.cur.peek().is_punct("}") {
            let token = self.cur.peek();
            match inner.split_first() {
                Some((next, rest)) if token.is_punct("{") => {
                    let begin = self.element;
                    self.braces(*next, rest)?;
                    self.element = begin.saturating_add(row);
                    self.end = self.end.max(self.element);
                }
                _ => self.scalar()?,
            }
            if self.element > limit {
                return Err(Error::invalid(
                    "the initializer has more values than the variable has elements",
                    &token,
                ));
            }
            if !self.cur.eat(",") {
                break;
            }
        }
        self.cur.expect("}", "`,` or `}`")
    }

    fn scalar(&mut self) -> Result<(), Error> {
        let size = self.ty.size();
        let at = self.element.saturating_mul(u64::from(size));
        self.element = self.element.saturating_add(1);
        self.end = self.end.max(self.element);
        let token = self.cur.peek();
        if at >= MAX_VARIABLE_BYTES {
            return Err(Error::limit("MAX_VARIABLE_BYTES", MAX_VARIABLE_BYTES, &token));
        }
        if self.cur.peek_at(1).is_punct("(") && token.kind == Kind::Number {
            return self.masked(at);
        }
        if let Some(mask) = &self.mask {
            return Err(mask.incomplete());
        }
        if starts_constant(&token) {
            let value = constant(self.cur)?;
            self.bytes(at, encode(value, self.ty, &token)?);
            return Ok(());
        }
        let (name, addend, generic) = address(self.cur)?;
        if !matches!(size, 4 | 8) {
            let why = ErrorKind::Invalid("an address requires an element of 4 or 8 bytes");
            return Err(Error::at(&name, why));
        }
        self.push(at, RawValue::Address { name, addend, generic, size });
        Ok(())
    }

    /// Parses one byte of an address: `0xFF00(x)`.
    fn masked(&mut self, at: u64) -> Result<(), Error> {
        let token = self.cur.peek();
        let mask = self.cur.integer("a mask")?;
        self.cur.expect("(", "`(`")?;
        let (name, addend, generic) = address(self.cur)?;
        self.cur.expect(")", "`)`")?;
        if self.ty.size() != 1 {
            return Err(Error::invalid("a masked address requires elements of one byte", &token));
        }
        let address = self.mask.take();
        let address = match address {
            None => MaskedAddress::start(at, token, mask, (name, addend, generic))?,
            Some(begun) => begun.extend(at, &token, mask, (name, addend, generic))?,
        };
        if address.is_complete() {
            let (name, addend, generic) = address.address;
            self.push(address.at, RawValue::Address { name, addend, generic, size: 8 });
        } else {
            self.mask = Some(address);
        }
        Ok(())
    }

    fn push(&mut self, at: u64, value: RawValue<'a>) {
        self.pieces.push(RawInit { at, value });
    }

    /// Adds bytes, to the last piece if they follow it closely, else as a new piece.
    fn bytes(&mut self, at: u64, mut new: Vec<u8>) {
        if new.iter().all(|byte| *byte == 0) {
            return;
        }
        if let Some(RawInit { at: start, value: RawValue::Bytes(bytes) }) = self.pieces.last_mut() {
            let gap = at.saturating_sub(*start + bytes.len() as u64);
            if gap <= ZEROS_KEPT {
                bytes.extend((0..gap).map(|_| 0));
                bytes.append(&mut new);
                return;
            }
        }
        self.push(at, RawValue::Bytes(new));
    }
}

/// Parses `x`, `x+8`, `generic(x)` or `generic(x)+8`.
fn address<'a>(cur: &mut Cursor<'a>) -> Result<(Token<'a>, i64, bool), Error> {
    let mut name = cur.ident("a constant or a name")?;
    let generic = name.text == "generic" && cur.eat("(");
    let mut addend = 0_i64;
    if generic {
        name = cur.ident("a name")?;
        addend = offset(cur)?;
        cur.expect(")", "`)`")?;
    }
    addend = addend.wrapping_add(offset(cur)?);
    Ok((name, addend, generic))
}

/// Returns the little-endian bytes of `value` as an element of type `ty`.
fn encode(value: Constant, ty: ScalarType, token: &Token<'_>) -> Result<Vec<u8>, Error> {
    let size = ty.size() as usize;
    let wide: [u8; 16] = match (value, ty) {
        (Constant::F32(bits), _) if size == 4 => u128::from(bits).to_le_bytes(),
        (Constant::F64(bits), _) if size == 8 => u128::from(bits).to_le_bytes(),
        (Constant::F32(bits), ScalarType::F64) => {
            u128::from(f64::from(f32::from_bits(bits)).to_bits()).to_le_bytes()
        }
        (Constant::F64(bits), ScalarType::F32) => {
            u128::from((f64::from_bits(bits) as f32).to_bits()).to_le_bytes()
        }
        (Constant::Int { bits, unsigned: false }, ScalarType::F32 | ScalarType::F64) => {
            float_bytes(bits as i64 as f64, ty)
        }
        (Constant::Int { bits, .. }, ScalarType::F32 | ScalarType::F64) => {
            float_bytes(bits as f64, ty)
        }
        (Constant::Int { bits, unsigned: true }, _) => u128::from(bits).to_le_bytes(),
        (Constant::Int { bits, .. }, _) => i128::from(bits as i64).to_le_bytes(),
        _ => return Err(Error::expected("a constant of the variable's type", token)),
    };
    Ok(wide.iter().take(size).copied().collect())
}

fn float_bytes(value: f64, ty: ScalarType) -> [u8; 16] {
    match ty {
        ScalarType::F32 => u128::from((value as f32).to_bits()).to_le_bytes(),
        _ => u128::from(value.to_bits()).to_le_bytes(),
    }
}
