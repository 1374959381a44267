//! Reads the kernels of a PTX text, their parameters and the memory they declare. Instructions are skipped.

use crate::ast::Param;
use crate::cursor::Cursor;
use crate::error::Error;
use crate::footprint::Storage;
use crate::lexer::Kind;
use crate::parser::{
    Header, Preamble, Unknown, bare, body_storage, declaration, file, skip_section, storage_space,
};

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
    /// The line of the declaration in the PTX text, from 1.
    pub line: u32,
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
///         instruction.of.the.future %r1;
///     }";
/// let module = cuda_ptx::module_signature(text)?;
/// let kernel = &module.entries[0];
/// let types: Vec<String> = kernel.params.iter().map(|p| p.param_type.to_string()).collect();
/// assert_eq!(types, ["u64", "b8[24]"]);
/// assert_eq!((module.global_bytes, kernel.static_shared_bytes), (Some(4096), Some(1024)));
/// # Ok::<(), cuda_ptx::Error>(())
/// ```
pub fn module_signature(text: &str) -> Result<ModuleSignature, Error> {
    let mut cur = Cursor::new(text)?;
    Preamble::parse(&mut cur)?;
    let mut reader = Reader { cur, kernels: Vec::new(), common: Storage::EMPTY };
    reader.items()?;
    Ok(reader.finish())
}

struct Reader<'a> {
    cur: Cursor<'a>,
    /// Each kernel with the variables that its body declares.
    kernels: Vec<(Signature, Storage)>,
    /// Variables of module scope, and of functions that any kernel may call.
    common: Storage,
}

impl Reader<'_> {
    fn items(&mut self) -> Result<(), Error> {
        let cur = &mut self.cur;
        let mut external = false;
        while !cur.at_end() {
            let token = cur.peek();
            match token.text {
                ".entry" => self.kernels.extend(kernel(cur)?),
                ".file" => {
                    cur.next();
                    file(cur)?;
                }
                ".section" => {
                    cur.next();
                    skip_section(cur)?;
                }
                ".visible" | ".weak" | ".common" | ".extern" => {
                    external |= cur.next().text == ".extern";
                    continue;
                }
                _ => item(cur, external, &mut self.common)?,
            }
            external = false;
        }
        Ok(())
    }

    fn finish(self) -> ModuleSignature {
        let mut module = self.common.clone();
        let mut local = self.common.local();
        let mut entries = Vec::with_capacity(self.kernels.len());
        for (mut kernel, own) in self.kernels {
            module.merge(&own);
            let mut storage = self.common.clone();
            storage.merge(&own);
            kernel.static_shared_bytes = storage.shared();
            kernel.local_bytes = storage.local();
            local = local.zip(kernel.local_bytes).map(|(a, b)| a.max(b));
            entries.push(kernel);
        }
        let (global_bytes, const_bytes) = (module.global(), module.constant());
        ModuleSignature { entries, global_bytes, const_bytes, local_bytes: local }
    }
}

/// Reads a kernel. Returns `None` for a declaration without a body.
fn kernel(cur: &mut Cursor<'_>) -> Result<Option<(Signature, Storage)>, Error> {
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
        line: header.name.line,
    };
    Ok(Some((signature, storage)))
}

/// Reads a variable or a function's body; skips an unknown directive.
fn item(cur: &mut Cursor<'_>, external: bool, storage: &mut Storage) -> Result<(), Error> {
    let token = cur.peek();
    if let Some(space) = storage_space(&token) {
        cur.next();
        if declaration(cur, space, external, storage)? {
            return Ok(());
        }
    }
    skip_item(cur, token.is_dot(".func"), storage)
}

/// Steps behind a semicolon or a function's body, or to the next variable, linkage directive or kernel.
fn skip_item(cur: &mut Cursor<'_>, function: bool, storage: &mut Storage) -> Result<(), Error> {
    let first = cur.position();
    let mut initialiser = false;
    let mut parentheses = 0_usize;
    loop {
        let token = cur.peek();
        let item = matches!(token.text, ".entry" | ".visible" | ".extern")
            || parentheses == 0 && cur.position() > first && storage_space(&token).is_some();
        if token.kind == Kind::End || item {
            return Ok(());
        } else if token.is_punct("{") {
            if function {
                return body_storage(cur, storage);
            }
            cur.skip_balanced("{", "}")?;
            if !initialiser {
                return Ok(());
            }
        } else {
            initialiser |= token.is_punct("=");
            parentheses += usize::from(token.is_punct("("));
            parentheses = parentheses.saturating_sub(usize::from(token.is_punct(")")));
            cur.next();
            if token.is_punct(";") {
                return Ok(());
            }
        }
    }
}
