//! The attributes that name the code: `#[ptx = ".."]`, or `#[cuda = ".."]` with `#[nvrtc(..)]`.

use proc_macro2::Ident;
use syn::{Attribute, Error, LitStr, Result, Token, punctuated::Punctuated};

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
