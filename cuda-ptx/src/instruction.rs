//! Instructions and their operands.

use crate::modifier::Modifier;
use crate::opcode::Opcode;
use crate::special::Special;

/// Index into [`Body::registers`](crate::Body::registers).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegId(pub u32);

/// Index into [`Body::labels`](crate::Body::labels).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LabelId(pub u32);

/// The meaning of a name that is neither a register nor a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Symbol {
    /// Index into [`Module::variables`](crate::Module::variables).
    Module(u32),
    /// Index into [`Body::variables`](crate::Body::variables) of the function that uses the name.
    Body(u32),
    /// Index into [`Function::params`](crate::Function::params) of the function that uses the name.
    Param(u32),
    /// Index into [`Function::returns`](crate::Function::returns) of the function that uses the name.
    Return(u32),
    /// Index into [`Module::functions`](crate::Module::functions).
    Function(u32),
}

/// One instruction: `@p ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1+16];`
#[derive(Debug, Clone, PartialEq)]
pub struct Instruction {
    /// The guard: `@p` or `@!p`.
    pub guard: Option<Guard>,
    /// The opcode, or the name of an instruction with a word that this crate does not know.
    pub opcode: Result<Opcode, Box<str>>,
    /// The modifiers in order, without the second of two such as `.sat.sat`. Empty if the instruction has a word that this crate does not know.
    pub modifiers: Vec<Modifier>,
    /// The operands in order.
    pub operands: Vec<Operand>,
    /// Line in the PTX text, from 1.
    pub line: u32,
    /// Column in that line, from 1.
    pub column: u32,
}

/// A predicate guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guard {
    /// The predicate register.
    pub register: RegId,
    /// Whether the guard is negated: `@!p`.
    pub negated: bool,
}

/// An operand of an instruction.
#[derive(Debug, Clone, PartialEq)]
pub enum Operand {
    /// A register: `%r1`.
    Reg(RegId),
    /// A negated predicate: `!%p1`.
    NotReg(RegId),
    /// A register plus a constant: `%r1+4`.
    RegPlus(RegId, i64),
    /// A part of a register, or its negative, in video instructions: `%r1.b0`, `%r1.h10`, `-%r1.h0`, `-%r1`.
    Part(RegPart),
    /// Two destinations: `%p1|%p2`.
    Pair(Box<Operand>, Box<Operand>),
    /// An integer constant in two's complement, sign-extended to 64 bits.
    Int(u64),
    /// The bits of an f32: `0f3F800000`.
    F32(u32),
    /// The bits of an f64: `0d3FF0000000000000` or a decimal.
    F64(u64),
    /// A special register: `%tid.x`, `%laneid`, `%clock64`.
    Special(Special),
    /// The address of a variable, parameter or function, plus an offset: `x+8`.
    Symbol(Symbol, i64),
    /// A label, as a branch target.
    Label(LabelId),
    /// A vector: `{a, b, c, d}`.
    Vector(Vec<Operand>),
    /// A memory operand: `[base+offset]`.
    Address(Address),
    /// `_`: a discarded result or element.
    Discard,
    /// The return or argument list of a `call`: `(a, b)`. Also the operand `[a, {x, y}]` of texture and tensor
    /// instructions, as the address and the operands after it.
    List(Vec<Operand>),
    /// A `.branchtargets` or `.calltargets` list by name: index into [`Body::target_lists`](crate::Body::target_lists).
    Targets(u32),
    /// A `.callprototype` by name: index into [`Body::prototypes`](crate::Body::prototypes).
    Prototype(u32),
}

/// A part of a register ([`Operand::Part`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegPart {
    /// The register.
    pub register: RegId,
    /// The selected bytes or halfwords, without the dot: `b3210`. Empty for the whole register.
    pub part: String,
    /// Whether the value is negated.
    pub negated: bool,
}

/// The address of a memory operand: `[base+offset]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// The base, to which the offset is added.
    pub base: AddressBase,
    /// The offset in bytes.
    pub offset: i64,
}

/// The base of an [`Address`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressBase {
    /// A register.
    Reg(RegId),
    /// A variable or parameter.
    Symbol(Symbol),
    /// An element of a variable: `x[%r1]`.
    Element {
        /// The variable.
        symbol: Symbol,
        /// The register with the index.
        index: RegId,
        /// The size of an element in bytes.
        size: u32,
    },
    /// No base: the offset is the address.
    Absolute,
}
