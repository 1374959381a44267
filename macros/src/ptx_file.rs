//! The PTX file: where it is and which kernels it has.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use cuda_ptx::Signature;
use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, LitStr};

/// Begins a path to a file that a build script made.
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
    pub(crate) fn read(path: &LitStr) -> Result<Self, Error> {
        let written = path.value();
        let wrong = |why: &str| Error::new(path.span(), format!("`{written}` {why}"));
        let place = Place::of(&written, |name| env::var_os(name)).map_err(wrong)?;
        let ptx = fs::read_to_string(&place.file).map_err(|error| {
            wrong(&format!("cannot be read: {error}; a path starts at the folder of Cargo.toml"))
        })?;
        let signatures = cuda_ptx::signatures(&ptx)
            .map_err(|error| wrong(&format!("cannot be parsed: {error}")))?;
        let literal = place.literal;
        Ok(Self { text: quote!(::core::include_str!(#literal)), signatures })
    }
}

/// Where a file is.
struct Place {
    file: PathBuf,
    /// The same for `include_str!`.
    literal: TokenStream,
}

impl Place {
    /// The place of `path` where the variables of the environment are those of `variable`.
    fn of(path: &str, variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, &'static str> {
        if let Some(rest) = path.strip_prefix(MADE_BY_BUILD_SCRIPT) {
            let folder = variable("OUT_DIR").ok_or("needs a build script: there is no OUT_DIR")?;
            let tail = format!("/{rest}");
            let literal = quote!(::core::concat!(::core::env!("OUT_DIR"), #tail));
            return Ok(Self { file: PathBuf::from(folder).join(rest), literal });
        }
        let folder = variable("CARGO_MANIFEST_DIR").unwrap_or_default();
        let file = Path::new(&folder).join(path);
        let text = file.to_str().ok_or("is in a folder whose name is not UTF-8")?;
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
    fn a_path_starts_at_the_package() {
        let place = place("kernels/a.ptx").unwrap();
        assert_eq!(place.file, Path::new("/package/kernels/a.ptx"));
        assert_eq!(place.literal.to_string(), "\"/package/kernels/a.ptx\"");
    }

    #[test]
    fn an_absolute_path_is_taken_as_it_is() {
        assert_eq!(place("/kernels/a.ptx").unwrap().file, Path::new("/kernels/a.ptx"));
    }

    #[test]
    fn what_a_build_script_made_is_found() {
        let place = place("$OUT_DIR/a.ptx").unwrap();
        assert_eq!(place.file, Path::new("/target/out/a.ptx"));
        assert!(place.literal.to_string().contains("env !"), "{}", place.literal);
        assert!(Place::of("$OUT_DIR/a.ptx", |_| None).is_err());
    }
}
