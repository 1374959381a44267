//! Parses declarations of variables: type, alignment, array dimensions and initializer.

use crate::ast::{Init, InitValue, Symbol, Variable};
use crate::error::{Error, ErrorKind};
use crate::lexer::{Constant, Cursor, Kind, Token};
use crate::limits::{MAX_ALIGNMENT, MAX_DIMENSIONS, MAX_VARIABLE_BYTES};
use crate::parser::directive::skip_attribute;
use crate::parser::expression::{constant, constant_integer, offset, starts_constant};
use crate::words::{ScalarType, Space};

/// A variable with its name token and its unresolved initializer.
pub(crate) struct DeclaredVariable<'a> {
    pub(crate) token: Token<'a>,
    /// The variable, with an empty `init`.
    pub(crate) variable: Variable,
    pub(crate) init: Vec<RawInit<'a>>,
}

/// Parses `.align 4 .b8 a[8] = {1, 2}, b;` after the state space, with the semicolon.
pub(crate) fn variables<'a>(
    cur: &mut Cursor<'a>,
    space: Space,
    external: bool,
) -> Result<Vec<DeclaredVariable<'a>>, Error> {
    let ty = declared_type(cur)?;
    let mut list = Vec::new();
    loop {
        list.push(variable(cur, space, external, &ty)?);
        if !cur.eat(",") {
            cur.expect(";", "`;`, `,`, `[` or `=`")?;
            return Ok(list);
        }
    }
}

fn variable<'a>(
    cur: &mut Cursor<'a>,
    space: Space,
    external: bool,
    ty: &DeclaredType,
) -> Result<DeclaredVariable<'a>, Error> {
    skip_attribute(cur)?;
    let token = cur.ident("the name of a variable")?;
    let dims = Dimensions::parse(cur)?;
    let mut size = Some(dims.bytes(ty, &token)?).filter(|_| !dims.open);
    let mut init = Vec::new();
    if cur.eat("=") {
        if external {
            let why = "an `.extern` variable cannot have an initializer";
            return Err(Error::invalid(why, &token));
        }
        let read = initializer(cur, ty, &dims)?;
        if read.bytes > MAX_VARIABLE_BYTES {
            return Err(Error::limit("MAX_VARIABLE_BYTES", MAX_VARIABLE_BYTES, &token));
        }
        init = read.pieces;
        size = Some(size.unwrap_or(read.bytes));
    }
    let variable = Variable {
        name: token.text.to_owned(),
        space,
        ty: ty.ty,
        align: ty.align(),
        size,
        init: Vec::new(),
        external,
        line: token.line,
    };
    Ok(DeclaredVariable { token, variable, init })
}

/// A declared type: `.align 16 .v4 .f32`, `.u64 .ptr .global .align 4`.
pub(crate) struct DeclaredType {
    pub(crate) ty: ScalarType,
    /// The number of vector elements: 4 for `.v4`, 1 without a vector.
    pub(crate) lanes: u32,
    /// The declared alignment.
    align: Option<u32>,
    /// Whether it is a reference to a texture, sampler or surface, which takes no memory of the program.
    opaque: bool,
    /// Whether `.ptr` is written.
    pub(crate) pointer: bool,
}

impl DeclaredType {
    /// The declared alignment, else the natural one.
    pub(crate) fn align(&self) -> u32 {
        self.align.unwrap_or(self.ty.size() * self.lanes)
    }
}

/// Parses the tokens between the state space and the name.
pub(crate) fn declared_type(cur: &mut Cursor<'_>) -> Result<DeclaredType, Error> {
    let mut ty = None;
    let mut declared =
        DeclaredType { ty: ScalarType::B8, lanes: 1, align: None, opaque: false, pointer: false };
    while cur.peek().kind == Kind::Dot {
        let token = cur.next();
        match token.text {
            ".align" => declared.align = Some(alignment(cur)?),
            ".attribute" => cur.skip_balanced("(", ")")?,
            ".v2" => declared.lanes = 2,
            ".v4" => declared.lanes = 4,
            ".v8" => declared.lanes = 8,
            ".ptr" => {
                declared.pointer = true;
                pointee(cur)?;
            }
            _ => {
                declared.opaque = matches!(token.text, ".texref" | ".samplerref" | ".surfref");
                let scalar = match declared.opaque {
                    true => ScalarType::B64,
                    false => scalar_type(&token)?,
                };
                if ty.replace(scalar).is_some() {
                    return Err(Error::expected("a name", &token));
                }
            }
        }
    }
    declared.ty = ty.ok_or_else(|| Error::expected("a type", &cur.peek()))?;
    Ok(declared)
}

fn scalar_type(token: &Token<'_>) -> Result<ScalarType, Error> {
    let name = token.text.trim_start_matches('.');
    let ty = ScalarType::from_name(name).filter(|ty| ty.is_fundamental());
    ty.ok_or_else(|| Error::expected("a type", token))
}

/// Skips the operands of `.ptr`: the space that it points into, and the alignment.
fn pointee(cur: &mut Cursor<'_>) -> Result<(), Error> {
    const SPACES: [&str; 6] = [".global", ".const", ".shared", ".local", ".param", ".generic"];
    if SPACES.iter().any(|space| cur.peek().is_dot(space)) {
        cur.next();
    }
    if cur.eat_dot(".align") {
        alignment(cur)?;
    }
    Ok(())
}

fn alignment(cur: &mut Cursor<'_>) -> Result<u32, Error> {
    let token = cur.peek();
    let align = cur.integer("an alignment")?;
    if !align.is_power_of_two() {
        return Err(Error::invalid("an alignment must be a power of two", &token));
    }
    let fits = u32::try_from(align).ok().filter(|_| align <= MAX_ALIGNMENT);
    fits.ok_or_else(|| Error::limit("MAX_ALIGNMENT", MAX_ALIGNMENT, &token))
}

/// The array dimensions after a name: `[2][3]`, `[]`, or none.
#[derive(Debug, Default)]
pub(crate) struct Dimensions {
    /// The dimensions, outermost first. A leading `[]` is left out.
    pub(crate) known: Vec<u64>,
    /// Whether the first dimension is `[]`.
    pub(crate) open: bool,
}

impl Dimensions {
    pub(crate) fn parse(cur: &mut Cursor<'_>) -> Result<Self, Error> {
        let mut dims = Self::default();
        while cur.peek().is_punct("[") {
            let token = cur.next();
            if dims.known.len() as u64 >= MAX_DIMENSIONS {
                return Err(Error::limit("MAX_DIMENSIONS", MAX_DIMENSIONS, &token));
            }
            if dims.known.is_empty() && !dims.open && cur.eat("]") {
                dims.open = true;
                continue;
            }
            dims.known.push(constant_integer(cur, "an array size")?);
            cur.expect("]", "`]`")?;
        }
        Ok(dims)
    }

    /// Returns the size of all known dimensions in bytes. An error points at `token`, the name of the variable.
    pub(crate) fn bytes(&self, ty: &DeclaredType, token: &Token<'_>) -> Result<u64, Error> {
        let element = if ty.opaque { 0 } else { u64::from(ty.ty.size()) * u64::from(ty.lanes) };
        let bytes = self.known.iter().try_fold(element, |size, n| size.checked_mul(*n));
        bytes
            .filter(|bytes| *bytes <= MAX_VARIABLE_BYTES)
            .ok_or_else(|| Error::limit("MAX_VARIABLE_BYTES", MAX_VARIABLE_BYTES, token))
    }
}

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
    /// Parses `{ .. }` with up to `length` items, each an array of `inner` dimensions. The recursion is limited by the
    /// number of dimensions.
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
            self.push(address.at, RawValue::Address { name, addend, generic, size: ADDRESS_BYTES });
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
fn address<'a>(cur: &mut Cursor<'a>) -> Result<Address<'a>, Error> {
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

/// The size of an address in bytes.
const ADDRESS_BYTES: u32 = 8;

/// An address: the name, the addend, and whether it is generic.
pub(crate) type Address<'a> = (Token<'a>, i64, bool);

/// An address in a packed structure, which is written byte by byte: `{0xFF(x), 0xFF00(x), ..}`.
struct MaskedAddress<'a> {
    /// The offset of the first byte in the variable.
    pub(crate) at: u64,
    pub(crate) address: Address<'a>,
    first: Token<'a>,
    written: u32,
}

impl<'a> MaskedAddress<'a> {
    /// Creates an address from its lowest byte.
    pub(crate) fn start(
        at: u64,
        first: Token<'a>,
        mask: u64,
        address: Address<'a>,
    ) -> Result<Self, Error> {
        Self { at, address, first, written: 0 }.extend(at, &first, mask, address)
    }

    /// Adds the next byte.
    pub(crate) fn extend(
        mut self,
        at: u64,
        token: &Token<'a>,
        mask: u64,
        (name, addend, generic): Address<'a>,
    ) -> Result<Self, Error> {
        let (first, first_addend, first_generic) = self.address;
        let same = (name.text, addend, generic) == (first.text, first_addend, first_generic);
        let next = self.at.saturating_add(u64::from(self.written));
        if !same || at != next || mask != 0xFF << (8 * self.written) {
            return Err(unsupported(token));
        }
        self.written += 1;
        Ok(self)
    }

    fn is_complete(&self) -> bool {
        self.written == ADDRESS_BYTES
    }

    /// Returns the error for an incomplete address.
    pub(crate) fn incomplete(&self) -> Error {
        unsupported(&self.first)
    }
}

fn unsupported(token: &Token<'_>) -> Error {
    Error::at(token, ErrorKind::Unsupported("masks other than the eight bytes of one address"))
}
