//! The PTX file: where it is and which kernels it has.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use cuda_ptx::Signature;
use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, LitStr, Result};

/// Begins a path to what a build script made.
const MADE_BY_BUILD_SCRIPT: &str = "$OUT_DIR/";

/// A PTX file that could be read.
pub(crate) struct PtxFile {
    /// An expression: the text. Cargo builds again when it changes.
    pub(crate) text: TokenStream,
    pub(crate) signatures: Vec<Signature>,
}

impl PtxFile {
    /// Reads the file at `path`: from the package's folder on, absolute, or `$OUT_DIR/..`.
    ///
    /// # Errors
    /// At `path`, if there is no such file or it is no PTX.
    pub(crate) fn read(path: &LitStr) -> Result<Self> {
        let written = path.value();
        let wrong = |why: String| Error::new(path.span(), format!("`{written}` {why}"));
        let (file, text) = match written.strip_prefix(MADE_BY_BUILD_SCRIPT) {
            Some(rest) => {
                let folder = env::var_os("OUT_DIR")
                    .ok_or_else(|| wrong("needs a build script: there is no OUT_DIR".into()))?;
                let rest = format!("/{rest}");
                let text = quote!(::core::concat!(::core::env!("OUT_DIR"), #rest));
                (PathBuf::from(folder).join(&rest[1..]), text)
            }
            None => {
                let file = from_package(&written);
                let shown = file.to_str().ok_or_else(|| wrong("is in a folder whose name is not UTF-8".into()))?;
                let text = quote!(#shown);
                (file, text)
            }
        };
        let ptx = fs::read_to_string(&file).map_err(|error| {
            wrong(format!("cannot be read: {error}; a path starts at the folder of Cargo.toml"))
        })?;
        let signatures = cuda_ptx::signatures(&ptx)
            .map_err(|error| wrong(format!("cannot be parsed: {error}")))?;
        Ok(Self { text: quote!(::core::include_str!(#text)), signatures })
    }
}

/// `path` from the folder of the Cargo.toml on, if it is not absolute.
fn from_package(path: &str) -> PathBuf {
    match env::var_os("CARGO_MANIFEST_DIR") {
        Some(folder) => Path::new(&folder).join(path),
        None => PathBuf::from(path),
    }
}
