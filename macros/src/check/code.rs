//! Reads the code of a declaration: a PTX file, or CUDA C and its PTX. Lists the kernels and the variables of the PTX.

use std::{
    collections::HashMap,
    env, fs,
    path::{Path, PathBuf},
};

use cuda_nvrtc::{
    Options, Origin, Resolved,
    signature::{self, CType},
};
use cuda_ptx::{Signature, VariableSignature};
use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{Error, LitStr, Result};

use crate::parse::{
    declaration::Declaration,
    files::{CodePath, ImageFile, Place},
};

/// The code of a declaration.
pub(crate) struct Code {
    pub(crate) text: Text,
    /// The kernels and variables. `None` if the code could not be read, or if the program compiles it when it runs.
    pub(crate) contents: Option<Contents>,
    /// Machine code beside the PTX.
    pub(crate) images: Vec<ImageFile>,
}

/// Expressions of the code, by `include_str!`, so that Cargo rebuilds when a file changes.
pub(crate) enum Text {
    /// The PTX.
    Ptx(TokenStream),
    Cuda(Cuda),
}

/// Expressions of a CUDA source.
#[derive(Default)]
pub(crate) struct Cuda {
    pub(crate) name: String,
    pub(crate) text: TokenStream,
    /// The headers: name and text.
    pub(crate) headers: Vec<TokenStream>,
    pub(crate) flags: Vec<String>,
    /// The PTX, if there is one while the program is built.
    pub(crate) ptx: Option<TokenStream>,
}

impl Code {
    /// Reads the files. Returns the code without the parts that could not be read, and the errors.
    pub(crate) fn read(declaration: &Declaration) -> (Self, Vec<Error>) {
        let (mut code, error) = Self::of(&declaration.code);
        let mut errors: Vec<_> = error.into_iter().collect();
        for image in &declaration.images {
            match image.read(declaration.unsafe_token.is_some()) {
                Ok(image) => code.images.push(image),
                Err(error) => errors.push(error),
            }
        }
        (code, errors)
    }

    const fn new(text: Text, contents: Option<Contents>) -> Self {
        Self { text, contents, images: Vec::new() }
    }

    fn of(path: &CodePath) -> (Self, Option<Error>) {
        let (read, text) = match path {
            CodePath::Ptx(path) => (ptx(path), Text::Ptx(quote!(""))),
            CodePath::Cuda(path, flags) => {
                let text = Cuda { name: path.value(), text: quote!(""), ..Cuda::default() };
                (cuda(path, flags), Text::Cuda(text))
            }
        };
        match read {
            Ok(code) => (code, None),
            Err(error) => (Self::new(text, None), Some(error)),
        }
    }
}

/// Reads the PTX file at `path`: relative to the package's folder, absolute, or `$OUT_DIR/..`.
///
/// # Errors
/// If the file cannot be read or is not PTX. The error has the span of `path`.
fn ptx(path: &LitStr) -> Result<Code> {
    let (place, wrong) = located(path)?;
    let text = fs::read_to_string(&place.file).map_err(|error| {
        wrong(&format!("cannot be read: {error}; paths are relative to the folder of Cargo.toml"))
    })?;
    let contents =
        Contents::of(&text).map_err(|error| wrong(&format!("cannot be parsed: {error}")))?;
    let literal = place.literal;
    let text = Text::Ptx(quote!(::core::include_str!(#literal)));
    Ok(Code::new(text, Some(contents)))
}

/// Reads the CUDA source at `path` and compiles it, or takes the PTX beside it.
///
/// # Errors
/// If a file cannot be read, the source does not compile, or the PTX beside it is stale. The error has the span of
/// `path`.
fn cuda(path: &LitStr, flags: &[LitStr]) -> Result<Code> {
    let (place, wrong) = located(path)?;
    let (options, written) = options(flags);
    // Messages use the name relative to the package, which is the same on every machine.
    let resolved = cuda_nvrtc::resolve(&path.value(), &place.file, &options)
        .map_err(|error| Error::new(path.span(), error))?;
    let Resolved { source, ptx, .. } = resolved;
    let include = |file: &Path| match file.to_str() {
        Some(file) => Ok(quote!(::core::include_str!(#file))),
        None => Err(wrong("includes a file whose path is not UTF-8")),
    };
    let mut headers = Vec::new();
    for header in source.headers() {
        let (name, text) = (&header.name, header.file.as_deref().map(include).transpose()?);
        headers.push(quote!((#name, #text)));
    }
    let mut text =
        Cuda { name: path.value(), text: literal(&place), headers, flags: written, ptx: None };
    let Some((ptx, origin)) = ptx else {
        return Ok(Code::new(Text::Cuda(text), None));
    };
    let contents = Contents::of(&ptx.text)
        .map_err(|error| wrong(&format!("has PTX that cannot be parsed: {error}")))?;
    text.ptx = Some(match origin {
        Origin::Compiled => ptx.text.to_token_stream(),
        Origin::File => include(&place.file.with_extension("ptx"))?,
    });
    Ok(Code::new(Text::Cuda(text), Some(contents)))
}

fn literal(place: &Place) -> TokenStream {
    let literal = &place.literal;
    quote!(::core::include_str!(#literal))
}

/// Returns the location of a path, and a function that makes its errors.
fn located(path: &LitStr) -> Result<(Place, impl Fn(&str) -> Error)> {
    let (written, span) = (path.value(), path.span());
    let wrong = move |why: &str| Error::new(span, format!("`{written}` {why}"));
    let place = Place::of(&path.value(), |name| env::var_os(name)).map_err(&wrong)?;
    Ok((place, wrong))
}

/// Returns the options of the compiler, and those that apply at run time too. Folders of headers are relative to the
/// package.
fn options(flags: &[LitStr]) -> (Options, Vec<String>) {
    let package = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let mut options = Options::new();
    let mut kept = Vec::new();
    for flag in flags.iter().map(LitStr::value) {
        let folder = ["--include-path=", "-I"].iter().find_map(|option| flag.strip_prefix(option));
        match folder {
            Some(folder) => options = options.include(package.join(folder.trim())),
            None => {
                options = options.flag(&flag);
                kept.push(flag);
            }
        }
    }
    (options, kept)
}

/// The kernels and the variables of a PTX text.
pub(crate) struct Contents {
    pub(crate) entries: Vec<Signature>,
    pub(crate) variables: Vec<VariableSignature>,
    /// The C types of the parameters, for the kernels for which the text states them.
    pub(crate) types: HashMap<String, Vec<CType>>,
}

impl Contents {
    /// Reads a PTX text.
    pub(crate) fn of(ptx: &str) -> std::result::Result<Self, cuda_ptx::Error> {
        let module = cuda_ptx::module_signature(ptx)?;
        let types = |entry: &Signature| {
            let types = signature::of_entry(ptx, &entry.name)?;
            // With another number of parameters, the stated types are not those of this kernel.
            (types.len() == entry.params.len()).then(|| (entry.name.clone(), types))
        };
        let types = module.entries.iter().filter_map(types).collect();
        Ok(Self { entries: module.entries, variables: module.variables, types })
    }
}
