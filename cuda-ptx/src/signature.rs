//! Reads the kernels of a PTX text, their parameters, and the memory that they declare or name. Instructions are not
//! interpreted.
//!
//! [`References`] finds the module variables that each kernel may use: in its own code, in the functions that it may
//! call, and in the initial values of variables. [`Storage`] sums the sizes of declared variables. A declaration that
//! cannot be parsed is not an error. It makes the size of its state space unknown.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use crate::ast::Param;
use crate::error::{Error, ErrorKind};
use crate::lexer::{Cursor, Kind, Token};
use crate::limits::index;
use crate::parser::{
    Dimensions, Header, Preamble, Unknown, bare, declared_type, file, initializer, location,
    skip_attribute, skip_section, space,
};
use crate::words::{ScalarType, Space};

/// The signature of a kernel: its parameters, launch limits and declared memory.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Signature {
    /// The (mangled) name.
    pub name: String,
    /// Parameters, in order, each with its offset in the parameter block.
    pub params: Vec<Param>,
    /// `.maxntid x,y,z`.
    pub max_threads: Option<[u32; 3]>,
    /// `.reqntid x,y,z`.
    pub required_threads: Option<[u32; 3]>,
    /// Upper bound of the static shared memory of a block, in bytes.
    ///
    /// It covers the `.shared` variables of the module, of the kernel and of every `.func` of the module, with
    /// padding for alignment. It does not cover dynamic shared memory (`.extern .shared`) or the bytes that the
    /// driver reserves. The sum saturates. `None` if the text declares a variable of an unknown type.
    pub static_shared_bytes: Option<u64>,
    /// Upper bound of the `.local` variables of a thread, in bytes, counted like
    /// [`static_shared_bytes`](Self::static_shared_bytes).
    ///
    /// Each function counts once, but a recursive function needs its variables for each active call. Registers spilled
    /// by the driver's compiler are not included.
    pub local_bytes: Option<u64>,
    /// The variables of the module that the kernel may use, as ascending indices of [`ModuleSignature::variables`].
    ///
    /// A kernel may use a variable if its code names it, or a function that it may call, or the initial value of a
    /// variable that it may use. It may use every variable if it calls through a pointer, if a declaration of the text
    /// cannot be parsed, or if the search takes too many steps.
    pub variables: Arc<[u32]>,
    /// The line of the declaration in the PTX text, from 1.
    pub line: u32,
}

/// A `.global` or `.const` variable that a module defines.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct VariableSignature {
    /// The (mangled) name.
    pub name: String,
    /// [`Space::Global`] or [`Space::Const`].
    pub space: Space,
    /// The size in bytes.
    pub bytes: u64,
    /// The alignment in bytes.
    pub align: u32,
    /// The declared type of the elements. Compilers declare arrays and structs as [`ScalarType::B8`].
    pub ty: ScalarType,
}

/// The kernels of a module and the memory of its variables.
///
/// Sizes are upper bounds in bytes, with padding for alignment. They saturate. A size is `None` if the text declares a
/// variable of an unknown type.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ModuleSignature {
    /// The kernels, in order.
    pub entries: Vec<Signature>,
    /// The `.global` and `.const` variables of module scope that the text defines with a known size, in the order of
    /// the text. `.extern` variables are not included.
    pub variables: Vec<VariableSignature>,
    /// The size of the `.global` variables: device memory that the module occupies while it is loaded.
    pub global_bytes: Option<u64>,
    /// The size of the `.const` variables.
    pub const_bytes: Option<u64>,
    /// The size of the `.local` variables of one thread: the largest [`Signature::local_bytes`].
    pub local_bytes: Option<u64>,
}

/// Lists the kernels (`.entry`) of a PTX text, in order.
///
/// Instructions and unknown directives are skipped, so the function accepts texts that are newer than this crate.
///
/// # Errors
/// If the text does not start with the directives of PTX, a kernel's parameter list cannot be parsed, or a block,
/// comment or string is not terminated.
pub fn signatures(text: &str) -> Result<Vec<Signature>, Error> {
    module_signature(text).map(|module| module.entries)
}

/// Lists the kernels of a PTX text and sums the memory that the text declares.
///
/// # Errors
/// The errors of [`signatures`].
///
/// # Examples
/// ```
/// let text = "
///     .version 8.0
///     .target sm_80
///     .address_size 64
///     .global .align 4 .b8 table[4096];
///     .entry k(.param .u64 p, .param .align 8 .b8 s[24]) {
///         .shared .align 4 .b8 tile[1024];
///         instruction.of.the.future %r1, table;
///     }";
/// let module = cuda_ptx::module_signature(text)?;
/// let kernel = &module.entries[0];
/// let types: Vec<String> = kernel.params.iter().map(|p| p.param_type.to_string()).collect();
/// assert_eq!(types, ["u64", "b8[24]"]);
/// assert_eq!((module.global_bytes, kernel.static_shared_bytes), (Some(4096), Some(1024)));
/// assert_eq!((module.variables[0].name.as_str(), &*kernel.variables), ("table", &[0][..]));
/// # Ok::<(), cuda_ptx::Error>(())
/// ```
pub fn module_signature(text: &str) -> Result<ModuleSignature, Error> {
    let mut cur = Cursor::new(text)?;
    Preamble::parse(&mut cur)?;
    let (common, kernels, references) = (Storage::EMPTY, Vec::new(), References::default());
    let mut reader = Reader { cur, kernels, common, references };
    reader.items()?;
    Ok(reader.finish())
}

struct Reader<'a> {
    cur: Cursor<'a>,
    kernels: Vec<Kernel>,
    /// Variables of module scope, and of functions that any kernel may call.
    common: Storage,
    references: References<'a>,
}

struct Kernel {
    signature: Signature,
    /// The variables that its body declares.
    storage: Storage,
    tokens: Range<usize>,
}

impl<'a> Reader<'a> {
    fn items(&mut self) -> Result<(), Error> {
        let mut external = false;
        while !self.cur.at_end() {
            let cur = &mut self.cur;
            match cur.peek().text {
                ".entry" => self.kernels.extend(kernel(cur)?),
                ".file" => {
                    cur.next();
                    file(cur)?;
                }
                ".section" => {
                    cur.next();
                    skip_section(cur)?;
                }
                ".loc" => {
                    cur.next();
                    // The rest of an unknown form is skipped as an unknown item.
                    _ = location(cur, 0);
                }
                ".visible" | ".weak" | ".common" | ".extern" => {
                    external |= cur.next().text == ".extern";
                    continue;
                }
                _ => self.item(external)?,
            }
            external = false;
        }
        Ok(())
    }

    /// Reads a variable, an alias or a function. Skips an unknown directive.
    fn item(&mut self, external: bool) -> Result<(), Error> {
        let (first, start) = (self.cur.peek(), self.cur.position());
        let (cur, references) = (&mut self.cur, &mut self.references);
        if let Some(space) = storage_space(&first) {
            cur.next();
            let mut names = Vec::new();
            let mut each = |variable: DefinedVariable<'a>| {
                names.push(variable.name);
                if matches!(space, Space::Global | Space::Const) {
                    references.variable(variable);
                }
            };
            let declared = declaration(cur, space, external, &mut self.common, &mut each)?;
            // The initial value may be the address of another variable.
            names.into_iter().for_each(|name| references.item(name, start..cur.position()));
            if declared {
                return Ok(());
            }
            references.unknown_item();
        }
        let function = first.is_dot(".func");
        skip_item(cur, function, &mut self.common)?;
        if function || first.is_dot(".alias") {
            let tokens = start..cur.position();
            references.item(defined_name(cur.tokens(tokens.clone())), tokens);
        }
        Ok(())
    }

    fn finish(self) -> ModuleSignature {
        let mut module = self.common.clone();
        let mut local = self.common.local();
        let mut entries = Vec::with_capacity(self.kernels.len());
        let tokens: Vec<_> = self.kernels.iter().map(|kernel| kernel.tokens.clone()).collect();
        let used = self.references.used(&self.cur, &tokens);
        for (Kernel { signature: mut kernel, storage: own, .. }, used) in
            self.kernels.into_iter().zip(used)
        {
            module.merge(&own);
            let mut storage = self.common.clone();
            storage.merge(&own);
            kernel.variables = used;
            kernel.static_shared_bytes = storage.shared();
            kernel.local_bytes = storage.local();
            local = local.zip(kernel.local_bytes).map(|(a, b)| a.max(b));
            entries.push(kernel);
        }
        let (global_bytes, const_bytes) = (module.global(), module.constant());
        let variable = |defined: DefinedVariable<'_>| VariableSignature {
            name: defined.name.to_owned(),
            space: defined.space,
            bytes: defined.bytes,
            align: defined.align,
            ty: defined.ty,
        };
        let variables = self.references.into_variables().into_iter().map(variable).collect();
        ModuleSignature { entries, variables, global_bytes, const_bytes, local_bytes: local }
    }
}

/// Reads a kernel. Returns `None` for a declaration without a body.
fn kernel(cur: &mut Cursor<'_>) -> Result<Option<Kernel>, Error> {
    let start = cur.position();
    let header = Header::parse(cur, Unknown::Skip)?;
    if cur.eat(";") {
        return Ok(None);
    }
    let mut storage = Storage::EMPTY;
    body_storage(cur, &mut storage)?;
    let signature = Signature {
        name: header.name.text.to_owned(),
        params: bare(header.params),
        max_threads: header.max_threads,
        required_threads: header.required_threads,
        static_shared_bytes: None,
        local_bytes: None,
        variables: [].into(),
        line: header.name.line,
    };
    Ok(Some(Kernel { signature, storage, tokens: start..cur.position() }))
}

/// Returns the name that the tokens of a function or an alias define: the first one outside of parentheses.
fn defined_name<'a>(tokens: &[Token<'a>]) -> &'a str {
    let mut depth = 0_usize;
    for token in tokens {
        match token.text {
            "(" => depth += 1,
            ")" => depth = depth.saturating_sub(1),
            name if depth == 0 && token.kind == Kind::Ident => return name,
            _ => {}
        }
    }
    ""
}

/// Steps behind a semicolon or a function's body, or to the next variable, linkage directive or kernel.
fn skip_item(cur: &mut Cursor<'_>, function: bool, storage: &mut Storage) -> Result<(), Error> {
    let first = cur.position();
    let mut initializer = false;
    let mut parentheses = 0_usize;
    loop {
        let token = cur.peek();
        let starts_item = |token: &Token<'_>| {
            matches!(token.text, ".func" | ".weak" | ".common" | ".alias")
                || storage_space(token).is_some()
        };
        let item = matches!(token.text, ".entry" | ".visible" | ".extern")
            || parentheses == 0 && cur.position() > first && starts_item(&token);
        if token.kind == Kind::End || item {
            return Ok(());
        } else if token.is_punct("{") {
            if function {
                return body_storage(cur, storage);
            }
            cur.skip_balanced("{", "}")?;
            if !initializer {
                return Ok(());
            }
        } else {
            initializer |= token.is_punct("=");
            parentheses += usize::from(token.is_punct("("));
            parentheses = parentheses.saturating_sub(usize::from(token.is_punct(")")));
            cur.next();
            if token.is_punct(";") {
                return Ok(());
            }
        }
    }
}

/// The items of a module: variables, functions and aliases.
#[derive(Default)]
struct References<'a> {
    /// The index of each item, by its name.
    items: HashMap<&'a str, usize>,
    /// The tokens of each item. A function may be declared before it is defined.
    tokens: Vec<Vec<Range<usize>>>,
    /// The index of each variable, by its name.
    variables: HashMap<&'a str, u32>,
    defined: Vec<DefinedVariable<'a>>,
    /// Whether an item could not be parsed. It may hold the address of any variable.
    incomplete: bool,
}

/// The limit of steps per token of the text, for the searches of all kernels together. Kernels that exceed the limit
/// count as using every variable. So time and memory are proportional to the text.
const STEPS_PER_TOKEN: usize = 16;

/// The names in some tokens.
#[derive(Default)]
struct Names {
    variables: BTreeSet<u32>,
    items: Vec<usize>,
    /// Whether there is a call through a pointer, which may reach every function.
    calls_pointer: bool,
}

impl<'a> References<'a> {
    /// Adds a variable.
    pub(crate) fn variable(&mut self, variable: DefinedVariable<'a>) {
        if let Entry::Vacant(entry) = self.variables.entry(variable.name) {
            entry.insert(index(self.defined.len()));
            self.defined.push(variable);
        }
    }

    /// Adds an item that defines `name`.
    pub(crate) fn item(&mut self, name: &'a str, tokens: Range<usize>) {
        let item = *self.items.entry(name).or_insert(self.tokens.len());
        if item == self.tokens.len() {
            self.tokens.push(Vec::new());
        }
        self.tokens[item].push(tokens);
    }

    /// Records that an item could not be parsed.
    fn unknown_item(&mut self) {
        self.incomplete = true;
    }

    /// Returns for each kernel the indices of the variables that it may use, in order.
    pub(crate) fn used(&self, cur: &Cursor<'a>, kernels: &[Range<usize>]) -> Vec<Arc<[u32]>> {
        let all: Arc<[u32]> = (0..index(self.defined.len())).collect();
        if all.is_empty() || self.incomplete {
            return vec![all; kernels.len()];
        }
        let mut steps = cur.position().saturating_mul(STEPS_PER_TOKEN);
        let items: Vec<_> = self.tokens.iter().map(|tokens| self.names(cur, tokens)).collect();
        let kernel = |tokens: &Range<usize>| {
            let names = self.names(cur, std::slice::from_ref(tokens));
            reached(names, &items, &mut steps).unwrap_or_else(|| all.clone())
        };
        kernels.iter().map(kernel).collect()
    }

    /// Returns the variables, in order.
    fn into_variables(self) -> Vec<DefinedVariable<'a>> {
        self.defined
    }

    fn names(&self, cur: &Cursor<'a>, ranges: &[Range<usize>]) -> Names {
        let (mut names, mut seen) = (Names::default(), HashSet::new());
        for token in ranges.iter().flat_map(|range| cur.tokens(range.clone())) {
            names.calls_pointer |= token.is_dot(".callprototype");
            if token.kind == Kind::Ident && seen.insert(token.text) {
                names.variables.extend(self.variables.get(token.text));
                names.items.extend(self.items.get(token.text));
            }
        }
        names
    }
}

/// Returns the variables that `names` reach through items. `None` if they may reach all, or if `steps` run out.
fn reached(names: Names, items: &[Names], steps: &mut usize) -> Option<Arc<[u32]>> {
    let Names { mut variables, items: mut left, mut calls_pointer } = names;
    let mut seen: HashSet<_> = left.iter().copied().collect();
    while let Some(names) = left.pop().map(|index| &items[index]) {
        *steps = steps.checked_sub(1 + names.variables.len() + names.items.len())?;
        calls_pointer |= names.calls_pointer;
        variables.extend(&names.variables);
        left.extend(names.items.iter().filter(|index| seen.insert(**index)));
    }
    *steps = steps.checked_sub(variables.len())?;
    (!calls_pointer).then(|| variables.into_iter().collect())
}

/// Returns the state space of a directive that declares sized variables. `.param` is not one of them.
fn storage_space(token: &Token<'_>) -> Option<Space> {
    let space = space(token).filter(|_| token.kind == Kind::Dot)?;
    (space != Space::Param).then_some(space)
}

/// A variable whose size is known, and which this text defines.
struct DefinedVariable<'a> {
    pub(crate) name: &'a str,
    pub(crate) space: Space,
    pub(crate) bytes: u64,
    pub(crate) align: u32,
    /// The type of the elements, or of their components.
    pub(crate) ty: ScalarType,
}

/// Adds the variables of a declaration, from after its state space to its semicolon, and calls `each` with them.
/// Returns `false` if the declaration cannot be parsed. The cursor is then at the token that is not understood, so
/// every token is read once.
///
/// # Errors
/// If a parenthesis is not closed.
fn declaration<'a>(
    cur: &mut Cursor<'a>,
    space: Space,
    external: bool,
    storage: &mut Storage,
    each: &mut dyn FnMut(DefinedVariable<'a>),
) -> Result<bool, Error> {
    match variables(cur, space, external, storage, each) {
        Ok(()) => Ok(true),
        Err(error) => match error.kind {
            ErrorKind::Unterminated(_) => Err(error),
            // References to textures, samplers and surfaces are handles of the driver, without a size.
            ErrorKind::Unsupported(_) => Ok(false),
            _ => {
                storage.add_unknown(space);
                Ok(false)
            }
        },
    }
}

fn variables<'a>(
    cur: &mut Cursor<'a>,
    space: Space,
    external: bool,
    storage: &mut Storage,
    each: &mut dyn FnMut(DefinedVariable<'a>),
) -> Result<(), Error> {
    let ty = declared_type(cur)?;
    loop {
        skip_attribute(cur)?;
        let token = cur.ident("the name of a variable")?;
        let dims = Dimensions::parse(cur)?;
        let declared = match dims.bytes(&ty, &token) {
            Err(Error { kind: ErrorKind::Limit { .. }, .. }) => u64::MAX,
            bytes => bytes?,
        };
        let mut bytes = Some(declared).filter(|_| !dims.open);
        if cur.eat("=") {
            match dims.open {
                true => bytes = Some(initializer(cur, &ty, &dims)?.bytes),
                false => skip_initializer(cur)?,
            }
        }
        // An external variable counts in the module that defines it. `.extern .shared` is dynamic.
        if let (Some(bytes), false) = (bytes, external) {
            storage.add(space, bytes, ty.align());
            each(DefinedVariable { name: token.text, space, bytes, align: ty.align(), ty: ty.ty });
        }
        if !cur.eat(",") {
            return cur.semicolon();
        }
    }
}

/// Skips to the `,` or `;` after an initializer.
fn skip_initializer(cur: &mut Cursor<'_>) -> Result<(), Error> {
    let start = cur.peek();
    let mut depth = 0_usize;
    loop {
        let token = cur.peek();
        match token.text {
            _ if token.kind == Kind::End => {
                return Err(Error::at(&start, ErrorKind::Unterminated("an initializer")));
            }
            "{" | "(" => depth += 1,
            "}" | ")" => depth = depth.saturating_sub(1),
            "," | ";" if depth == 0 => return Ok(()),
            _ => {}
        }
        cur.next();
    }
}

/// Adds the variables that a body declares, from its `{` to its `}`.
///
/// # Errors
/// If the body, or a parenthesis in a declaration, is not closed.
fn body_storage(cur: &mut Cursor<'_>, storage: &mut Storage) -> Result<(), Error> {
    cur.inside_block(|cur| {
        while !cur.at_end() {
            statement(cur, storage)?;
        }
        Ok(())
    })
}

/// Skips a label, a directive, or an instruction with its semicolon.
fn statement(cur: &mut Cursor<'_>, storage: &mut Storage) -> Result<(), Error> {
    let token = cur.next();
    match token.kind {
        Kind::Dot if token.text == ".loc" => _ = location(cur, 0),
        Kind::Dot => {
            let external = token.text == ".extern";
            let directive = if external { cur.peek() } else { token };
            if let Some(space) = storage_space(&directive) {
                if external {
                    cur.next();
                }
                declaration(cur, space, external, storage, &mut |_| {})?;
            }
        }
        Kind::Ident if cur.eat(":") => {}
        Kind::Ident => skip_instruction(cur, token),
        _ => {}
    }
    Ok(())
}

/// Skips past the `;` of an instruction, or to a declaration, or to the `}` of the block.
fn skip_instruction(cur: &mut Cursor<'_>, opcode: Token<'_>) {
    let mut depth = 0_usize;
    let mut before = opcode;
    loop {
        let token = cur.peek();
        match token.text {
            _ if token.kind == Kind::End => return,
            "{" => depth += 1,
            "}" if depth == 0 => return,
            "}" => depth -= 1,
            ";" => {
                cur.next();
                return;
            }
            // A modifier, as in `ld.shared`, follows without white space.
            _ if !before.touches(&token) && storage_space(&token).is_some() => return,
            _ => {}
        }
        before = cur.next();
    }
}

/// Alignments up to 2^20 bytes ([`limits::MAX_ALIGNMENT`](crate::limits::MAX_ALIGNMENT)).
const ALIGNMENTS: usize = 21;

/// The variables of one state space, with an upper bound of their bytes for every order of placement.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Footprint {
    /// Sum of the sizes, without padding; saturates.
    bytes: u64,
    /// Number of variables by the binary logarithm of their alignment.
    by_alignment: [u64; ALIGNMENTS],
    /// Every size is a multiple of 2^granule.
    granule: u32,
    /// Whether a variable was declared whose size cannot be determined.
    unknown: bool,
}

impl Footprint {
    const EMPTY: Self =
        Self { bytes: 0, by_alignment: [0; ALIGNMENTS], granule: u64::BITS, unknown: false };

    fn add(&mut self, bytes: u64, align: u32) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.granule = self.granule.min(bytes.trailing_zeros());
        if let Some(count) = self.by_alignment.get_mut(align.max(1).ilog2() as usize) {
            *count = count.saturating_add(1);
        }
    }

    fn merge(&mut self, other: &Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.granule = self.granule.min(other.granule);
        self.unknown |= other.unknown;
        for (count, more) in self.by_alignment.iter_mut().zip(&other.by_alignment) {
            *count = count.saturating_add(*more);
        }
    }

    /// Returns the bytes with the largest padding of any order, or `None` if a size is unknown.
    ///
    /// Each variable ends at a multiple of the granule, so a variable of alignment `a` is padded by at most
    /// `a - granule` bytes. The first variable of an order is not padded.
    fn upper_bound(&self) -> Option<u64> {
        let (mut total, mut least) = (self.bytes, u64::MAX);
        for (align, count) in self.by_alignment.iter().enumerate().filter(|(_, count)| **count > 0)
        {
            let granule = 1_u64.checked_shl(self.granule).unwrap_or(u64::MAX);
            let padding = (1_u64 << align).saturating_sub(granule);
            total = total.saturating_add(padding.saturating_mul(*count));
            least = least.min(padding);
        }
        let saved = if total == u64::MAX || least == u64::MAX { 0 } else { least };
        (!self.unknown).then_some(total.saturating_sub(saved))
    }
}

/// The variables of a function or module, by state space.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Storage {
    global: Footprint,
    constant: Footprint,
    shared: Footprint,
    local: Footprint,
}

impl Storage {
    const EMPTY: Self = Self {
        global: Footprint::EMPTY,
        constant: Footprint::EMPTY,
        shared: Footprint::EMPTY,
        local: Footprint::EMPTY,
    };

    /// Adds a variable.
    pub(crate) fn add(&mut self, space: Space, bytes: u64, align: u32) {
        if let Some(footprint) = self.space(space) {
            footprint.add(bytes, align);
        }
    }

    /// Records that a variable was declared whose size cannot be determined.
    fn add_unknown(&mut self, space: Space) {
        if let Some(footprint) = self.space(space) {
            footprint.unknown = true;
        }
    }

    fn merge(&mut self, other: &Self) {
        self.global.merge(&other.global);
        self.constant.merge(&other.constant);
        self.shared.merge(&other.shared);
        self.local.merge(&other.local);
    }

    pub(crate) fn global(&self) -> Option<u64> {
        self.global.upper_bound()
    }

    pub(crate) fn constant(&self) -> Option<u64> {
        self.constant.upper_bound()
    }

    pub(crate) fn shared(&self) -> Option<u64> {
        self.shared.upper_bound()
    }

    pub(crate) fn local(&self) -> Option<u64> {
        self.local.upper_bound()
    }

    fn space(&mut self, space: Space) -> Option<&mut Footprint> {
        match space {
            Space::Global => Some(&mut self.global),
            Space::Const => Some(&mut self.constant),
            Space::Shared => Some(&mut self.shared),
            Space::Local => Some(&mut self.local),
            Space::Param => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of the variables that each kernel of a text may use.
    fn used(items: &str) -> Vec<Vec<String>> {
        let text = format!(".version 8.0\n.target sm_80\n.address_size 64\n{items}");
        let module = module_signature(&text).unwrap();
        let name = |index: &u32| module.variables[*index as usize].name.clone();
        module.entries.iter().map(|entry| entry.variables.iter().map(name).collect()).collect()
    }

    #[test]
    fn variables_are_listed_with_space_size_and_alignment() {
        let text = ".version 8.0\n.target sm_80\n.address_size 64
            .visible .const .align 4 .b8 a[64];
            .extern .global .u32 elsewhere;
            .shared .align 16 .b8 tile[32];
            .global .f64 b = 0d3FF0000000000000, c[3];
            .global .align 2 .b8 open[] = {1, 2, 3};";
        let variables = module_signature(text).unwrap().variables;
        let found = variables
            .iter()
            .map(|own| (own.name.as_str(), own.space, own.bytes, own.align, own.ty));
        let found: Vec<_> = found.collect();
        let expected = [
            ("a", Space::Const, 64, 4, ScalarType::B8),
            ("b", Space::Global, 8, 8, ScalarType::F64),
            ("c", Space::Global, 24, 8, ScalarType::F64),
            ("open", Space::Global, 3, 2, ScalarType::B8),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn kernel_uses_what_it_its_functions_and_its_tables_name() {
        let items = ".global .u32 a; .global .u32 b; .global .u32 c; .const .u32 d;
            .global .u64 table[2] = {generic(c), 0};
            .func leaf();
            .func (.param .b32 r) twig(.param .b32 x) { call leaf; ret; }
            .func leaf() { st.global.u32 [b], 1; ret; }
            .alias other, leaf;
            .entry direct() { ld.global.u32 %r1, [a+4]; ret; }
            .entry through() { call (r), twig, (p); ret; }
            .entry by_table() { ld.global.u64 %rd1, [table]; ret; }
            .entry by_alias() { call other; ret; }
            .loc 1 2 3
            .func far() { st.const.u32 [d], 1; ret; }
            .unknown directive
            .weak .func farther() { call far; ret; }
            .entry none() { ret; }
            .entry through_two() { call farther; ret; }
            .entry pointer() { $proto: .callprototype _ (); call %rd1, (), $proto; ret; }";
        let used = used(items);
        assert_eq!(used[0], ["a"]);
        assert_eq!(used[1], ["b"]);
        assert_eq!(used[2], ["c", "table"]);
        assert_eq!(used[3], ["b"]);
        assert!(used[4].is_empty());
        assert_eq!(used[5], ["d"]);
        assert_eq!(used[6], ["a", "b", "c", "d", "table"]);
    }

    #[test]
    fn kernels_beside_an_unknown_declaration_may_use_everything() {
        let items = ".global .u32 a; .global .u8 t[] = {0xFF(a), 0xFF00(a)}; .entry k() { ret; }";
        assert_eq!(used(items), [["a"]]);
    }

    /// The search ends, with little memory, where many kernels reach many variables.
    #[test]
    fn search_is_bounded() {
        let count = 3000;
        let mut items = String::new();
        for i in 0..count {
            items +=
                &format!(".global .u32 v{i}; .func f{i}() {{ call f{}, (v{i}); ret; }}", i + 1);
        }
        for i in 0..count {
            items += &format!(".entry k{i}() {{ call f{i}; ret; }}");
        }
        let text = format!(".version 8.0\n.target sm_80\n{items}");
        let module = module_signature(&text).unwrap();
        let mut lists: Vec<_> =
            module.entries.iter().map(|entry| entry.variables.clone()).collect();
        assert!(lists.iter().enumerate().all(|(i, list)| list.contains(&(i as u32))));
        lists.sort_by_key(|list| list.as_ptr());
        lists.dedup_by_key(|list| list.as_ptr());
        let indices: usize = lists.iter().map(|list| list.len()).sum();
        assert!(indices < 32 * text.len(), "{indices} indices of {} bytes", text.len());
    }

    fn bound(variables: &[(u64, u32)]) -> Option<u64> {
        let mut footprint = Footprint::EMPTY;
        variables.iter().for_each(|(bytes, align)| footprint.add(*bytes, *align));
        footprint.upper_bound()
    }

    #[test]
    fn equal_alignments_need_no_padding() {
        assert_eq!(bound(&[]), Some(0));
        assert_eq!(bound(&[(10, 4)]), Some(10));
        assert_eq!(bound(&[(1024, 4), (128, 4), (8, 8)]), Some(1160));
        assert_eq!(bound(&[(0, 16), (16, 16)]), Some(16));
    }

    #[test]
    fn bound_holds_for_every_order() {
        let variables = [(3, 1), (8, 8), (12, 4), (20, 16)];
        let bound = bound(&variables).unwrap();
        let mut worst = 0;
        // All orders of four variables.
        for code in 0..256_usize {
            let order = [code & 3, code >> 2 & 3, code >> 4 & 3, code >> 6];
            if (0..4).all(|i| order.contains(&i)) {
                let end = order.iter().map(|i| variables[*i]).fold(0_u64, |at, (bytes, align)| {
                    at.next_multiple_of(u64::from(align)) + bytes
                });
                worst = worst.max(end);
            }
        }
        assert!(worst > 43 && worst <= bound, "{worst} {bound}");
    }

    #[test]
    fn sums_saturate() {
        assert_eq!(bound(&[(u64::MAX, 4), (u64::MAX, 16)]), Some(u64::MAX));
        assert_eq!(bound(&[(u64::MAX, 1)]), Some(u64::MAX));
    }
}
