//! The checked module: what the parser makes and the CPU device decodes.
//!
//! Names are resolved while parsing. Registers, labels and symbols are indices here, so nothing has
//! to be looked up by name later; their names stay in tables for messages.

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

/// A variable of any state space but registers.
#[derive(Debug, Clone, PartialEq)]
pub struct Variable {
    /// The name in the source. Local and shared variables of nested scopes may repeat a name.
    pub name: String,
    /// Where it lives.
    pub space: Space,
    /// Element type.
    pub ty: ScalarType,
    /// Alignment in bytes: the declared one, else the natural one of the type.
    pub align: u32,
    /// Size in bytes; `None` for an unsized `.extern .shared x[]`.
    pub size: Option<u64>,
    /// Initialiser: the bytes that are not zero and the addresses to be filled in at load time.
    pub init: Vec<Init>,
    /// `.extern`: defined elsewhere.
    pub external: bool,
    /// Where it was declared.
    pub line: u32,
}

/// One piece of an initialiser, at a byte offset into its variable.
#[derive(Debug, Clone, PartialEq)]
pub struct Init {
    /// Byte offset into the variable.
    pub at: u64,
    /// What stands there.
    pub value: InitValue,
}

/// See [`Init`].
#[derive(Debug, Clone, PartialEq)]
pub enum InitValue {
    /// Little-endian bytes.
    Bytes(Vec<u8>),
    /// The address of a symbol, `size` bytes wide (4 or 8).
    Address {
        /// Whose address.
        symbol: Symbol,
        /// Added to it.
        addend: i64,
        /// `generic(x)` was written: a generic address, not one within the symbol's space.
        generic: bool,
        /// Bytes it takes.
        size: u32,
    },
}

/// A kernel (`.entry`) or a device function (`.func`).
#[derive(Debug, Clone, PartialEq)]
pub struct Function {
    /// The (mangled) name.
    pub name: String,
    /// `.entry` and not `.func`.
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
    /// Where it was declared.
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
    /// Alignment in bytes: the declared one, else the natural one.
    pub align: u32,
    /// Size in bytes.
    pub size: u32,
    /// Byte offset from the start of the parameter block: each parameter follows the last at its
    /// own alignment.
    pub offset: u32,
    /// A `.ptr` attribute or none; informative.
    pub pointer: bool,
    /// `.reg` parameter of a `.func` rather than `.param`; numbered through returns and parameters.
    pub register: Option<RegId>,
}

/// The inside of a function.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Body {
    /// Every register of every scope that is declared alone or used, with its declared type: of
    /// `.reg .b32 %r<100>` only those that occur. Type by instruction, not by this. Register
    /// parameters come first.
    pub registers: Vec<Register>,
    /// `.local`, `.shared`, `.param` (call argument) and `.const`/`.global` variables declared inside.
    pub variables: Vec<Variable>,
    /// The instructions in order.
    pub instructions: Vec<Instruction>,
    /// Labels: each the index of the instruction it stands before (`instructions.len()` at the end).
    pub labels: Vec<Label>,
    /// `.branchtargets` and `.calltargets` lists, which `brx.idx` and indirect calls name.
    pub target_lists: Vec<TargetList>,
    /// `.callprototype` directives, which indirect calls name.
    pub prototypes: Vec<Prototype>,
    /// `.loc` directives: from instruction index on, the source position.
    pub locations: Vec<Location>,
    /// `.pragma "used_bytes_mask ..";` directives: (index of the load that follows, which of its bytes are
    /// used).
    pub used_bytes: Vec<(u32, u64)>,
}

/// A declared register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Register {
    /// Its name, with the `%`.
    pub name: String,
    /// The declared type.
    pub ty: ScalarType,
}

/// See [`Body::labels`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// The name in the source.
    pub name: String,
    /// Index into [`Body::instructions`].
    pub target: u32,
}

/// See [`Body::target_lists`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetList {
    /// The label of the directive.
    pub name: String,
    /// Labels (`.branchtargets`), else empty.
    pub labels: Vec<LabelId>,
    /// Functions (`.calltargets`), indices into [`Module::functions`], else empty.
    pub functions: Vec<u32>,
}

/// See [`Body::prototypes`].
#[derive(Debug, Clone, PartialEq)]
pub struct Prototype {
    /// The label of the directive.
    pub name: String,
    /// Return parameters.
    pub returns: Vec<Param>,
    /// Parameters.
    pub params: Vec<Param>,
}

/// See [`Body::locations`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Location {
    /// First instruction it holds for.
    pub instruction: u32,
    /// Index of a `.file`.
    pub file: u32,
    /// Line in that file.
    pub line: u32,
    /// Column in that line.
    pub column: u32,
    /// `inlined_at`: the call, where this is code of a function that was inlined. A call inside of another
    /// inlined function has a `.loc` of its own, earlier, with its own `inlined_at`.
    pub inlined_at: Option<Position>,
}

/// A place in a source file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    /// Index of a `.file`.
    pub file: u32,
    /// Line in that file.
    pub line: u32,
    /// Column in that line.
    pub column: u32,
}
