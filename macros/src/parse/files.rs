//! The files that a declaration names: the code (`#[ptx = ".."]`, or `#[cuda = ".."]` with `#[nvrtc(..)]`), machine
//! code beside PTX (`#[cubin(sm_90 = "..")]` and `#[fatbin = ".."]`), and their locations.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{
    Attribute, Error, LitStr, Result, Token,
    parse::{Parse, ParseStream},
    punctuated::Punctuated,
};

use super::attributes::take;

/// The file of the kernels, as written.
pub(crate) enum CodePath {
    /// `#[ptx = "path"]`
    Ptx(LitStr),
    /// `#[cuda = "path"]` and the options of `#[nvrtc("--fmad=false", ..)]`.
    Cuda(LitStr, Vec<LitStr>),
}

impl CodePath {
    /// Removes the attributes of the struct `name` from `attrs`.
    pub(crate) fn take(attrs: &mut Vec<Attribute>, name: &Ident) -> Result<Self> {
        let (ptx, cuda) = (take(attrs, "ptx")?, take(attrs, "cuda")?);
        let flags = flags(attrs)?;
        match (ptx, cuda, flags) {
            (Some(ptx), None, None) => Ok(Self::Ptx(ptx)),
            (None, Some(cuda), flags) => {
                Ok(Self::Cuda(cuda, flags.map_or_else(Vec::new, |(_, flags)| flags)))
            }
            (Some(_), Some(cuda), _) => {
                let why =
                    "the struct has a PTX file already; remove `#[ptx = ..]` or `#[cuda = ..]`";
                Err(Error::new_spanned(cuda, why))
            }
            (Some(_), None, Some((attr, _))) => {
                let why = "options of NVRTC belong to a source; write `#[cuda = \"path\"]` instead of `#[ptx = ..]`";
                Err(Error::new_spanned(attr, why))
            }
            (None, None, _) => {
                let why = "missing path of the kernels; write `#[ptx = \"path\"]` or `#[cuda = \"path\"]` before the struct";
                Err(Error::new(name.span(), why))
            }
        }
    }

    /// The path, as written.
    pub(crate) fn path(&self) -> &LitStr {
        match self {
            Self::Ptx(path) | Self::Cuda(path, _) => path,
        }
    }
}

/// Removes `#[nvrtc("..", ..)]` and returns it with its options.
fn flags(attrs: &mut Vec<Attribute>) -> Result<Option<(Attribute, Vec<LitStr>)>> {
    let mut found = None;
    for attr in attrs.extract_if(.., |attr| attr.path().is_ident("nvrtc")) {
        if found.is_some() {
            return Err(Error::new_spanned(attr, "attribute `nvrtc` is given twice"));
        }
        let flags = attr.parse_args_with(Punctuated::<LitStr, Token![,]>::parse_terminated)?;
        found = Some((attr, flags.into_iter().collect()));
    }
    Ok(found)
}

/// An image, as written.
pub(crate) struct ImagePath {
    target: Target,
    path: LitStr,
}

/// The GPUs that run an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Cubin(u32, u32),
    /// An architecture with a suffix, such as `sm_90a`.
    Specific(u32, u32),
    Fatbin,
}

/// An image whose file was found.
pub(crate) struct ImageFile {
    target: Target,
    /// An expression for the bytes.
    bytes: TokenStream,
}

/// An item of `#[cubin(..)]`: `sm_90 = "kernel.cubin"`.
struct Pair(ImagePath);

impl Parse for Pair {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let name: Ident = input.parse()?;
        let why = "expected an architecture of GPUs, such as `sm_90` or `sm_90a`";
        let target = architecture(&name.to_string()).ok_or_else(|| Error::new(name.span(), why))?;
        input.parse::<Token![=]>()?;
        Ok(Self(ImagePath { target, path: input.parse()? }))
    }
}

/// Parses `sm_90` or `sm_100a`: the last digit is the minor number.
fn architecture(name: &str) -> Option<Target> {
    let number = name.strip_prefix("sm_")?;
    let digits = number.trim_end_matches(['a', 'f']);
    let number_of = |text: &str| text.parse::<u32>().ok();
    let value = number_of(digits).filter(|value| *value >= 10)?;
    let (major, minor) = (value / 10, value % 10);
    match &number[digits.len()..] {
        "" => Some(Target::Cubin(major, minor)),
        // With the suffix `f`, the driver may refuse other GPUs of the family, so only the exact one is certain.
        "a" | "f" => Some(Target::Specific(major, minor)),
        _ => None,
    }
}

impl ImagePath {
    /// Removes the attributes from `attrs`.
    pub(crate) fn take(attrs: &mut Vec<Attribute>) -> Result<Vec<Self>> {
        let mut images = Vec::new();
        for attr in attrs.extract_if(.., |attr| attr.path().is_ident("cubin")) {
            let pairs = attr.parse_args_with(Punctuated::<Pair, Token![,]>::parse_terminated)?;
            images.extend(pairs.into_iter().map(|Pair(image)| image));
        }
        let fatbin = take(attrs, "fatbin")?;
        images.extend(fatbin.map(|path| Self { target: Target::Fatbin, path }));
        Ok(images)
    }

    /// Finds the file.
    ///
    /// # Errors
    /// If the struct is not `unsafe`, or the file cannot be read or is not machine code.
    pub(crate) fn read(&self, is_unsafe: bool) -> Result<ImageFile> {
        let path = &self.path;
        let wrong = |why: &str| Error::new(path.span(), format!("`{}` {why}", path.value()));
        if !is_unsafe {
            return Err(wrong(
                "requires `unsafe struct`: its author promises that the image is complete, and was made from the source of the PTX by NVIDIA's tools",
            ));
        }
        let place = Place::of(&path.value(), |name| env::var_os(name)).map_err(wrong)?;
        let bytes = fs::read(&place.file).map_err(|error| {
            wrong(&format!(
                "cannot be read: {error}; paths are relative to the folder of Cargo.toml"
            ))
        })?;
        let is_cubin = bytes.starts_with(b"\x7fELF");
        let is_fatbin = bytes.starts_with(&0xBA55_ED50_u32.to_le_bytes());
        match self.target {
            Target::Fatbin if !is_fatbin => {
                return Err(wrong("is not a fatbin; make one with `nvcc -fatbin`"));
            }
            Target::Cubin(..) | Target::Specific(..) if !is_cubin => {
                return Err(wrong("is not a cubin; make one with `nvcc -cubin`"));
            }
            _ => {}
        }
        let literal = place.literal;
        Ok(ImageFile { target: self.target, bytes: quote!(::core::include_bytes!(#literal)) })
    }
}

/// Generates the call that adds the images to a `ModuleCache`. The keyword has the span of the struct's `unsafe`.
pub(crate) fn image_tokens(
    images: &[ImageFile],
    unsafe_token: Option<Token![unsafe]>,
) -> TokenStream {
    if images.is_empty() {
        return TokenStream::new();
    }
    let span = unsafe_token.map_or_else(Span::mixed_site, |keyword| keyword.span);
    let image = quote!(::cuda_async::kernel::Image);
    let images = images.iter().map(|ImageFile { target, bytes }| {
        let call = match target {
            Target::Cubin(major, minor) => quote!(#image::cubin((#major, #minor), #bytes)),
            Target::Specific(major, minor) => {
                quote!(#image::specific_cubin((#major, #minor), #bytes))
            }
            Target::Fatbin => quote!(#image::fatbin(#bytes)),
        };
        quote_spanned!(span=> unsafe { #call })
    });
    quote! {
        .with_images({
            #[allow(clippy::undocumented_unsafe_blocks)]
            const IMAGES: &[#image] = &[#(#images),*];
            IMAGES
        })
    }
}

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
    ) -> std::result::Result<Self, &'static str> {
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

    #[test]
    fn architectures_are_parsed() {
        for (name, target) in [
            ("sm_90", Some(Target::Cubin(9, 0))),
            ("sm_86", Some(Target::Cubin(8, 6))),
            ("sm_120", Some(Target::Cubin(12, 0))),
            ("sm_90a", Some(Target::Specific(9, 0))),
            ("sm_100f", Some(Target::Specific(10, 0))),
            ("sm_9", None),
            ("sm_", None),
            ("sm_a", None),
            ("compute_90", None),
            ("sm_99999999999", None),
        ] {
            assert_eq!(architecture(name), target, "{name}");
        }
    }

    fn place(path: &str) -> std::result::Result<Place, &'static str> {
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
