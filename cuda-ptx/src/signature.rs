//! Reads the kernels of a PTX text, their parameters, and the memory that they declare or name. Instructions are not
//! interpreted.

use std::ops::Range;
use std::sync::Arc;

use crate::ast::Param;
use crate::cursor::Cursor;
use crate::error::Error;
use crate::footprint::Storage;
use crate::lexer::{Kind, Token};
use crate::parser::{
    DefinedVariable, Header, Preamble, Unknown, bare, body_storage, declaration, file, location,
    skip_section, storage_space,
};
use crate::references::References;
use crate::types::{ScalarType, Space};

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
    /// Each function counts once, but a recursive function needs its variables for each active call. Registers spilled by
    /// the driver's compiler are not included.
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
    /// The `.global` and `.const` variables of module scope that the text defines with a known size, in the order of the
    /// text. `.extern` variables are not included.
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
/// If the text does not start with the directives of PTX, a kernel's parameter list cannot be parsed, or a block, comment
/// or string is not terminated.
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
}
