//! Machine code beside PTX: `#[cubin(sm_90 = "..")]` and `#[fatbin = ".."]`.

use std::{env, fs};

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{
    Attribute, Error, LitStr, Result, Token,
    parse::{Parse, ParseStream},
    punctuated::Punctuated,
};

use super::{attributes::take, place::Place};

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
pub(crate) fn tokens(images: &[ImageFile], unsafe_token: Option<Token![unsafe]>) -> TokenStream {
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
}
