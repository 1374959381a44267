//! Instructions and their operands, as the parser makes them.

/// Index into [`Body::registers`](crate::Body::registers).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegId(pub u32);

/// Index into [`Body::labels`](crate::Body::labels).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LabelId(pub u32);

/// What a name that is neither register nor label stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Symbol {
    /// Index into [`Module::variables`](crate::Module::variables).
    Module(u32),
    /// Index into [`Body::variables`](crate::Body::variables) of the function it is used in.
    Body(u32),
    /// Index into [`Function::params`](crate::Function::params) of the function it is used in.
    Param(u32),
    /// Index into [`Function::returns`](crate::Function::returns) of the function it is used in.
    Return(u32),
    /// Index into [`Module::functions`](crate::Module::functions).
    Function(u32),
}

/// One instruction: `@p ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1+16];`
#[derive(Debug, Clone, PartialEq)]
pub struct Instruction {
    /// `@p` or `@!p`.
    pub guard: Option<Guard>,
    /// `ld`: what stands before the first dot.
    pub opcode: String,
    /// `["global", "v4", "f32"]`: what stands after, without the dots; `::` stays inside
    /// (`"shared::cta"`).
    pub modifiers: Vec<String>,
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
    /// `@!p`.
    pub negated: bool,
}

/// An operand of an instruction.
#[derive(Debug, Clone, PartialEq)]
pub enum Operand {
    /// `%r1`.
    Reg(RegId),
    /// `!%p1`.
    NotReg(RegId),
    /// `%r1.b0`, `%r1.h10`, `-%r1.h0`, `-%r1`: a part of a register, or its negative, in video instructions.
    Part(RegPart),
    /// `%p1|%p2`: two destinations.
    Pair(Box<Operand>, Box<Operand>),
    /// An integer constant, as its two's complement bits; negative ones sign-extended to 64 bits.
    Int(u64),
    /// `0f3F800000`: bits of an f32.
    F32(u32),
    /// `0d3FF0000000000000` or a decimal: bits of an f64.
    F64(u64),
    /// `%tid.x`, `%laneid`, `%clock64`, `WARP_SZ`: a special register, without the `%`.
    Special(String),
    /// A variable, parameter or function by name: its address (plus the offset in `x+8`).
    Symbol(Symbol, i64),
    /// A label, as a branch target.
    Label(LabelId),
    /// `{a, b, c, d}`.
    Vector(Vec<Operand>),
    /// `[base+offset]`.
    Address(Address),
    /// `_`: a result or element nobody wants.
    Discard,
    /// `(a, b)`: the return or argument list of a `call`. Also `[a, {x, y}]`, the operand of texture and
    /// tensor instructions, as its address and what follows it.
    List(Vec<Operand>),
    /// A `.branchtargets` or `.calltargets` list by name: index into [`Body::target_lists`](crate::Body::target_lists).
    Targets(u32),
    /// A `.callprototype` by name: index into [`Body::prototypes`](crate::Body::prototypes).
    Prototype(u32),
}

/// See [`Operand::Part`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegPart {
    /// The register.
    pub register: RegId,
    /// Which bytes or halfwords, without the dot: `b3210`; empty for the whole register.
    pub part: String,
    /// `-` stands before it.
    pub negated: bool,
}

/// `[base+offset]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// What the offset is added to.
    pub base: AddressBase,
    /// Bytes.
    pub offset: i64,
}

/// See [`Address`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressBase {
    /// A register.
    Reg(RegId),
    /// A variable or parameter.
    Symbol(Symbol),
    /// Nothing: the offset is the address.
    Absolute,
}
