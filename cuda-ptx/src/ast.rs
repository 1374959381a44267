//! The checked module, which the parser builds and the CPU device decodes.
//!
//! The parser resolves all names. Registers, labels and symbols are indices. Their names are kept in tables for messages.

use crate::instruction::{Instruction, LabelId, RegId, Symbol};
use crate::param_type::ParamType;
use crate::types::{ScalarType, Space};

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
    /// The register of a `.reg` parameter of a `.func`, the first of a vector; `None` for `.param`. Numbered through returns
    /// and parameters.
    pub register: Option<RegId>,
}

/// The body of a function.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Body {
    /// The registers of all scopes. Register parameters come first. Of a range such as `.reg .b32 %r<100>`, only the
    /// registers that occur are listed. The type of an access is that of the instruction, not the declared type.
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
