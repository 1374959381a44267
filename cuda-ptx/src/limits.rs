//! The limits of the parser. Each is far above the output of compilers.

/// The maximum length of a PTX text in bytes. It keeps lines, columns and indices within 32 bits. The tokens of a text
/// take up to 32 times its length.
pub const MAX_SOURCE_BYTES: u64 = 128 << 20;

/// Returns a number of bytes or items of a text in 32 bits.
///
/// It fits, because the lexer refuses texts longer than [`MAX_SOURCE_BYTES`], and a byte declares at most
/// [`MAX_REGISTER_LANES`] items.
pub(crate) fn index(count: usize) -> u32 {
    const { assert!(MAX_SOURCE_BYTES * MAX_REGISTER_LANES as u64 <= u32::MAX as u64) };
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// The maximum nesting of blocks `{ .. }`.
pub const MAX_NESTING: u64 = 64;

/// The maximum nesting of parentheses and operators in a constant expression.
pub const MAX_EXPRESSION_DEPTH: u64 = 64;

/// The maximum number of modifiers of an instruction.
pub const MAX_MODIFIERS: u64 = 64;

/// The maximum number of registers in a range such as `.reg .b32 %r<n>;`.
pub const MAX_REGISTER_RANGE: u64 = 1 << 20;

/// The maximum number of elements of a vector register.
pub(crate) const MAX_REGISTER_LANES: u32 = 4;

/// The maximum number of dimensions of an array.
pub const MAX_DIMENSIONS: u64 = 16;

/// The maximum size of a variable in bytes.
pub const MAX_VARIABLE_BYTES: u64 = 1 << 40;

/// The maximum size of a parameter list in bytes.
pub const MAX_PARAMETER_BYTES: u64 = 1 << 20;

/// The maximum alignment of a declaration in bytes.
pub const MAX_ALIGNMENT: u64 = 1 << 20;

/// The maximum length of the token that an error quotes, in bytes.
pub(crate) const MAX_EXCERPT_BYTES: usize = 60;
