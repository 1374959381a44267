//! Locates and reads the PTX file.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use cuda_ptx::ModuleSignature;
use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, LitStr};

/// The prefix of a path to a file made by a build script.
const MADE_BY_BUILD_SCRIPT: &str = "$OUT_DIR/";

/// A PTX file that was read successfully.
pub(crate) struct PtxFile {
    /// An expression for the text, by `include_str!`, so that Cargo rebuilds when the file changes.
    pub(crate) text: TokenStream,
    pub(crate) module: ModuleSignature,
}

impl PtxFile {
    /// Reads the file at `path`: relative to the package's folder, absolute, or `$OUT_DIR/..`.
    ///
    /// # Errors
    /// If the file cannot be read or is not PTX. The error has the span of `path`.
    pub(crate) fn read(path: &LitStr) -> Result<Self, Error> {
        let written = path.value();
        let wrong = |why: &str| Error::new(path.span(), format!("`{written}` {why}"));
        let place = Place::of(&written, |name| env::var_os(name)).map_err(wrong)?;
        let ptx = fs::read_to_string(&place.file).map_err(|error| {
            wrong(&format!(
                "cannot be read: {error}; paths are relative to the folder of Cargo.toml"
            ))
        })?;
        let module = cuda_ptx::module_signature(&ptx)
            .map_err(|error| wrong(&format!("cannot be parsed: {error}")))?;
        let literal = place.literal;
        Ok(Self { text: quote!(::core::include_str!(#literal)), module })
    }
}

/// The location of a file.
struct Place {
    file: PathBuf,
    /// The location as an argument of `include_str!`.
    literal: TokenStream,
}

impl Place {
    /// Resolves `path`. `variable` returns the environment variables.
    fn of(path: &str, variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, &'static str> {
        if let Some(rest) = path.strip_prefix(MADE_BY_BUILD_SCRIPT) {
            let folder =
                variable("OUT_DIR").ok_or("requires a build script: OUT_DIR is not set")?;
            let tail = format!("/{rest}");
            let literal = quote!(::core::concat!(::core::env!("OUT_DIR"), #tail));
            return Ok(Self { file: PathBuf::from(folder).join(rest), literal });
        }
        let folder = variable("CARGO_MANIFEST_DIR").unwrap_or_default();
        let file = Path::new(&folder).join(path);
        let text = file.to_str().ok_or("resolves to a path that is not UTF-8")?;
        let literal = quote!(#text);
        Ok(Self { file, literal })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(path: &str) -> Result<Place, &'static str> {
        Place::of(path, |name| match name {
            "CARGO_MANIFEST_DIR" => Some("/package".into()),
            "OUT_DIR" => Some("/target/out".into()),
            _ => None,
        })
    }

    #[test]
    fn path_is_relative_to_the_package() {
        let place = place("kernels/a.ptx").unwrap();
        assert_eq!(place.file, Path::new("/package/kernels/a.ptx"));
        assert_eq!(place.literal.to_string(), "\"/package/kernels/a.ptx\"");
    }

    #[test]
    fn absolute_path_is_unchanged() {
        assert_eq!(place("/kernels/a.ptx").unwrap().file, Path::new("/kernels/a.ptx"));
    }

    #[test]
    fn out_dir_prefix_resolves_to_the_build_folder() {
        let place = place("$OUT_DIR/a.ptx").unwrap();
        assert_eq!(place.file, Path::new("/target/out/a.ptx"));
        assert!(place.literal.to_string().contains("env !"), "{}", place.literal);
        assert!(Place::of("$OUT_DIR/a.ptx", |_| None).is_err());
    }
}
