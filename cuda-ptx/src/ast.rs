//! The checked module, which the parser builds and the CPU device decodes: functions, variables, instructions and
//! operands.
//!
//! The parser resolves all names. Registers, labels and symbols are indices. Their names are kept in tables for
//! messages.

use std::fmt;

use crate::special::Special;
use crate::words::{Modifier, Opcode, ParamType, ScalarType, Space, Word};

/// One PTX file, parsed and checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Module {
    /// `.version major.minor`.
    pub version: (u32, u32),
    /// `.target`: the architecture first (`sm_90a`), then options such as `debug`.
    pub target: Vec<String>,
    /// `.address_size` in bits: 64, or 32.
    pub address_size: u32,
    /// Module-scope variables (`.global`, `.const`, `.shared`, ..) in order.
    pub variables: Vec<Variable>,
    /// Kernels and device functions in order. A function that is declared first and defined later
    /// appears once, with its body.
    pub functions: Vec<Function>,
    /// `.file` directives: (index, path).
    pub files: Vec<(u32, String)>,
}

impl Module {
    /// Returns the kernel with this name, if the module defines it.
    pub fn entry(&self, name: &str) -> Option<&Function> {
        self.entries().find(|function| function.name == name)
    }

    /// Iterates over the kernels that the module defines, in order.
    pub fn entries(&self) -> impl Iterator<Item = &Function> {
        self.functions.iter().filter(|function| function.is_entry && function.body.is_some())
    }

    /// Returns the kernel or function with this name, defined or only declared.
    pub fn function(&self, name: &str) -> Option<&Function> {
        self.functions.iter().find(|function| function.name == name)
    }

    /// Returns the module-scope variable with this name.
    pub fn variable(&self, name: &str) -> Option<&Variable> {
        self.variables.iter().find(|variable| variable.name == name)
    }

    /// Returns the number in the architecture of `.target`, such as 90 for `sm_90a`. `None` if there is none.
    pub fn architecture(&self) -> Option<u32> {
        let number = self.target.first()?.strip_prefix("sm_")?;
        number.trim_end_matches(|letter: char| letter.is_ascii_lowercase()).parse().ok()
    }
}

/// A variable of any state space except registers.
#[derive(Debug, Clone, PartialEq)]
pub struct Variable {
    /// The name in the source. Local and shared variables of nested scopes may repeat a name.
    pub name: String,
    /// The state space.
    pub space: Space,
    /// Element type.
    pub ty: ScalarType,
    /// Alignment in bytes: the declared one, else the natural one of the type.
    pub align: u32,
    /// Size in bytes; `None` for an unsized `.extern .shared x[]`.
    pub size: Option<u64>,
    /// The initializer: the bytes that are not zero, and the addresses to be filled in at load time.
    pub init: Vec<Init>,
    /// Whether the variable is `.extern`: another module defines it.
    pub external: bool,
    /// The line of the declaration in the PTX text, from 1.
    pub line: u32,
}

/// One piece of an initializer, at a byte offset into its variable.
#[derive(Debug, Clone, PartialEq)]
pub struct Init {
    /// Byte offset into the variable.
    pub at: u64,
    /// The value at the offset.
    pub value: InitValue,
}

/// The value of one piece of an initializer ([`Init`]).
#[derive(Debug, Clone, PartialEq)]
pub enum InitValue {
    /// Little-endian bytes.
    Bytes(Vec<u8>),
    /// The address of a symbol, `size` bytes wide (4 or 8).
    Address {
        /// The symbol whose address is stored.
        symbol: Symbol,
        /// The number added to the address.
        addend: i64,
        /// Whether it is written `generic(x)`: a generic address, not an address in the symbol's space.
        generic: bool,
        /// The size of the address in bytes.
        size: u32,
    },
}

/// A kernel (`.entry`) or a device function (`.func`).
#[derive(Debug, Clone, PartialEq)]
pub struct Function {
    /// The (mangled) name.
    pub name: String,
    /// Whether the function is an `.entry`, not a `.func`.
    pub is_entry: bool,
    /// Return parameters of a `.func`.
    pub returns: Vec<Param>,
    /// Parameters, in order.
    pub params: Vec<Param>,
    /// `.maxntid x,y,z`.
    pub max_threads: Option<[u32; 3]>,
    /// `.reqntid x,y,z`.
    pub required_threads: Option<[u32; 3]>,
    /// `.reqnctapercluster x,y,z`.
    pub required_cluster: Option<[u32; 3]>,
    /// The body; `None` for a declaration without definition (`vprintf`, `malloc`, ..).
    pub body: Option<Body>,
    /// The line of the declaration in the PTX text, from 1.
    pub line: u32,
}

impl Function {
    /// Returns the size of the parameter block in bytes, up to the end of the last parameter.
    pub fn parameter_bytes(&self) -> u32 {
        self.params.last().map_or(0, |last| last.offset + last.size)
    }
}

/// A parameter of a function.
#[derive(Debug, Clone, PartialEq)]
pub struct Param {
    /// The name in the source.
    pub name: String,
    /// Element type (`b8` for structs).
    pub ty: ScalarType,
    /// Type: one value, or an array of values.
    pub param_type: ParamType,
    /// Alignment in bytes: the declared one, else the natural one of the type.
    pub align: u32,
    /// Size in bytes.
    pub size: u32,
    /// Byte offset in the parameter block. Each parameter follows the previous one at its own alignment.
    pub offset: u32,
    /// The number of elements of a vector, 1 otherwise.
    pub lanes: u32,
    /// Whether the parameter has a `.ptr` attribute, which is only informative.
    pub pointer: bool,
    /// The register of a `.reg` parameter of a `.func`, the first of a vector; `None` for `.param`. Numbered through
    /// returns and parameters.
    pub register: Option<RegId>,
}

/// The body of a function.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Body {
    /// The registers of all scopes. Register parameters come first. Of a range such as `.reg .b32 %r<100>`, and of
    /// module scope, only the registers that occur are listed. The type of an access is that of the instruction, not
    /// the declared type.
    pub registers: Vec<Register>,
    /// `.local`, `.shared`, `.param` (call argument) and `.const`/`.global` variables declared inside.
    pub variables: Vec<Variable>,
    /// The instructions in order.
    pub instructions: Vec<Instruction>,
    /// Labels, each with the index of the instruction that follows it (`instructions.len()` at the end).
    pub labels: Vec<Label>,
    /// `.branchtargets` and `.calltargets` lists, which `brx.idx` and indirect calls name.
    pub target_lists: Vec<TargetList>,
    /// `.callprototype` directives, which indirect calls name.
    pub prototypes: Vec<Prototype>,
    /// `.loc` directives: source positions, each valid from an instruction on.
    pub locations: Vec<Location>,
    /// `.pragma "used_bytes_mask ..";` directives: (index of the load that follows, mask of its bytes that are used).
    pub used_bytes: Vec<(u32, u64)>,
}

/// A declared register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Register {
    /// The name, with the `%`.
    pub name: String,
    /// The declared type.
    pub ty: ScalarType,
}

/// A label of a body ([`Body::labels`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// The name in the source.
    pub name: String,
    /// Index into [`Body::instructions`].
    pub target: u32,
}

/// A list of targets of indirect branches or calls ([`Body::target_lists`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetList {
    /// The label of the directive.
    pub name: String,
    /// The labels of `.branchtargets`, else empty.
    pub labels: Vec<LabelId>,
    /// The functions of `.calltargets` as indices into [`Module::functions`], else empty.
    pub functions: Vec<u32>,
}

/// The signature of an indirect call ([`Body::prototypes`]).
#[derive(Debug, Clone, PartialEq)]
pub struct Prototype {
    /// The label of the directive.
    pub name: String,
    /// Return parameters.
    pub returns: Vec<Param>,
    /// Parameters.
    pub params: Vec<Param>,
}

/// A source position of instructions ([`Body::locations`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Location {
    /// The first instruction at this position.
    pub instruction: u32,
    /// Index of a `.file`.
    pub file: u32,
    /// Line in that file.
    pub line: u32,
    /// Column in that line.
    pub column: u32,
    /// The position of the call (`inlined_at`), if the code is that of an inlined function. If the call itself is in an
    /// inlined function, an earlier `.loc` names its `inlined_at`.
    pub inlined_at: Option<Position>,
}

/// A position in a source file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    /// Index of a `.file`.
    pub file: u32,
    /// Line in that file.
    pub line: u32,
    /// Column in that line.
    pub column: u32,
}

/// Index into [`Body::registers`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegId(pub u32);

/// Index into [`Body::labels`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LabelId(pub u32);

/// The meaning of a name that is neither a register nor a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Symbol {
    /// Index into [`Module::variables`].
    Module(u32),
    /// Index into [`Body::variables`] of the function that uses the name.
    Body(u32),
    /// Index into [`Function::params`] of the function that uses the name.
    Param(u32),
    /// Index into [`Function::returns`] of the function that uses the name.
    Return(u32),
    /// Index into [`Module::functions`].
    Function(u32),
}

/// One instruction: `@p ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1+16];`
#[derive(Debug, Clone, PartialEq)]
pub struct Instruction {
    /// The guard: `@p` or `@!p`.
    pub guard: Option<Guard>,
    /// The opcode, or the name of an instruction with a word that this crate does not know.
    pub opcode: Result<Opcode, Box<str>>,
    /// The modifiers in order, without the second of two such as `.sat.sat`. Empty if the instruction has a word that
    /// this crate does not know.
    pub modifiers: Vec<Modifier>,
    /// The operands in order.
    pub operands: Vec<Operand>,
    /// Line in the PTX text, from 1.
    pub line: u32,
    /// Column in that line, from 1.
    pub column: u32,
}

impl Instruction {
    /// Returns the full name for messages, such as `ld.global.v4.f32`.
    pub fn name(&self) -> InstructionName<'_> {
        InstructionName(self)
    }

    /// Returns whether the instruction has this modifier.
    pub fn has(&self, word: Word) -> bool {
        self.modifiers.contains(&Modifier::Word(word))
    }
}

/// The full name of an instruction, for display ([`Instruction::name`]).
#[derive(Debug, Clone, Copy)]
pub struct InstructionName<'a>(&'a Instruction);

impl fmt::Display for InstructionName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.opcode {
            Ok(opcode) => f.write_str(opcode.name())?,
            Err(name) => f.write_str(name)?,
        }
        self.0.modifiers.iter().try_for_each(|modifier| write!(f, ".{modifier}"))
    }
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
    /// A `.branchtargets` or `.calltargets` list by name: index into [`Body::target_lists`].
    Targets(u32),
    /// A `.callprototype` by name: index into [`Body::prototypes`].
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
