//! Parses the common parts of variables and parameters: type, alignment and array dimensions.

use crate::cursor::Cursor;
use crate::error::Error;
use crate::lexer::{Kind, Token};
use crate::limits::{MAX_ALIGNMENT, MAX_DIMENSIONS, MAX_VARIABLE_BYTES};
use crate::parser::expression::constant_integer;
use crate::types::ScalarType;

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
