//! Locates the files that a declaration names.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use proc_macro2::TokenStream;
use quote::quote;

/// The prefix of a path to a file made by a build script.
const MADE_BY_BUILD_SCRIPT: &str = "$OUT_DIR/";

/// The location of a file.
pub(crate) struct Place {
    pub(crate) file: PathBuf,
    /// The location as an argument of `include_str!`.
    pub(crate) literal: TokenStream,
}

impl Place {
    /// Resolves `path`. `variable` returns the environment variables.
    pub(crate) fn of(
        path: &str,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, &'static str> {
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
