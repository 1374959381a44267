//! Every limit of the parser, by name. Each is far above what compilers emit.

/// Bytes of PTX text; it also keeps lines, columns and indices within 32 bits.
pub const MAX_SOURCE_BYTES: u64 = 128 << 20;

/// Blocks `{ .. }` inside one another.
pub const MAX_NESTING: u64 = 64;

/// Levels of parentheses and operators in a constant expression.
pub const MAX_EXPRESSION_DEPTH: u64 = 64;

/// Modifiers of one instruction.
pub const MAX_MODIFIERS: u64 = 64;

/// Registers that one `.reg .b32 %r<n>;` may declare.
pub const MAX_REGISTER_RANGE: u64 = 1 << 20;

/// Elements of one vector register.
pub(crate) const MAX_REGISTER_LANES: u32 = 4;

/// Dimensions of an array.
pub const MAX_DIMENSIONS: u64 = 16;

/// Bytes of one variable.
pub const MAX_VARIABLE_BYTES: u64 = 1 << 40;

/// Bytes of one parameter list.
pub const MAX_PARAMETER_BYTES: u64 = 1 << 20;

/// Alignment in bytes that a declaration may ask for.
pub const MAX_ALIGNMENT: u64 = 1 << 20;

/// Bytes of the offending text that an error repeats.
pub(crate) const MAX_EXCERPT_BYTES: usize = 60;
