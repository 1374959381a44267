//! Compares the declaration with the PTX.

use std::collections::HashSet;

use cuda_ptx::Signature;
use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::{Error, ext::IdentExt};

use crate::{
    argument::Argument,
    declaration::{Declaration, Kernel, Safety, conditions},
    fit::{Written, misfit},
    problem::Problem,
};

/// Kernels of a PTX that a message lists.
const MAX_LISTED: usize = 12;

/// Names that the generated struct uses itself.
const RESERVED: [&str; 2] = ["load", "PTX"];

/// The result of the checks.
pub(crate) struct Checked<'a> {
    /// The kernels whose names can be used, each with its counterpart in the PTX if it is known.
    pub(crate) kernels: Vec<(&'a Kernel, Option<&'a Signature>)>,
    pub(crate) problems: Vec<Problem<'a>>,
}

/// Compares `declaration` with the kernels of its PTX; with `None`, checks only what needs no PTX.
pub(crate) fn check<'a>(
    declaration: &'a Declaration,
    signatures: Option<&'a [Signature]>,
) -> Checked<'a> {
    let mut checked = Checked { kernels: Vec::new(), problems: Vec::new() };
    let mut names = HashSet::new();
    for kernel in &declaration.kernels {
        let mut tell = |error| checked.problems.push(Problem::of(kernel, error));
        unvouched(declaration, kernel).into_iter().for_each(&mut tell);
        let signature = match signatures.map(|list| counterpart(declaration, kernel, list)) {
            Some(Ok(signature)) => {
                misfits(kernel, signature).into_iter().for_each(&mut tell);
                Some(signature)
            }
            Some(Err(error)) => {
                tell(error);
                None
            }
            None => None,
        };
        match misnamed(kernel, &mut names) {
            Some(error) => tell(error),
            None => checked.kernels.push((kernel, signature)),
        }
    }
    checked
}

/// A name that is taken.
fn misnamed(kernel: &Kernel, names: &mut HashSet<String>) -> Option<Error> {
    let name = kernel.name.unraw().to_string();
    let why = if RESERVED.contains(&name.as_str()) {
        format!(
            "the struct has a `{name}` of its own; write `#[entry = \"{name}\"]` before another name"
        )
    } else if conditions(&kernel.attrs).next().is_none() && !names.insert(name) {
        format!("`{}` is declared twice", kernel.name)
    } else {
        return None;
    };
    Some(Error::new(kernel.name.span(), why))
}

/// A `safe fn` in a struct that is not `unsafe`.
fn unvouched(declaration: &Declaration, kernel: &Kernel) -> Option<Error> {
    let Safety::Safe(safe) = &kernel.safety else { return None };
    let name = &declaration.name;
    declaration.vouched.is_none().then(|| {
        Error::new_spanned(
            safe,
            format!(
                "`safe fn` is for `unsafe struct {name};`, whose author vouches that no launch with any \
                 arguments does harm"
            ),
        )
    })
}

/// The kernel of the PTX that `kernel` declares, if it has as many parameters.
fn counterpart<'a>(
    declaration: &Declaration,
    kernel: &Kernel,
    signatures: &'a [Signature],
) -> Result<&'a Signature, Error> {
    let entry = kernel.entry_name();
    let place = match &kernel.entry {
        Some(entry) => entry.to_token_stream(),
        None => kernel.name.to_token_stream(),
    };
    let found = signatures.iter().find(|signature| signature.name == entry);
    let signature = found.ok_or_else(|| {
        let (file, list) = (declaration.ptx.value(), listed(signatures));
        let why = format!(
            "`{file}` has no kernel `{entry}`; it has {list}. For one that is called otherwise in the \
             PTX, write `#[entry = \"..\"]`"
        );
        Error::new_spanned(&place, why)
    })?;
    let (want, have) = (signature.params.len(), kernel.arguments.len());
    if want == have {
        return Ok(signature);
    }
    let params: Vec<_> = signature.params.iter().map(|p| Written(p).to_string()).collect();
    let types = if params.is_empty() { String::new() } else { format!(" ({})", params.join(", ")) };
    let plural = if want == 1 { "" } else { "s" };
    let why = format!(
        "`{entry}` has {want} parameter{plural} in the PTX{types}, and {have} declared here"
    );
    let surplus = kernel.arguments.get(want).map(ToTokens::to_token_stream);
    Err(Error::new_spanned(surplus.unwrap_or(place), why))
}

/// The kernels' names in words.
fn listed(signatures: &[Signature]) -> String {
    if signatures.is_empty() {
        return "none".to_owned();
    }
    let names: Vec<_> =
        signatures.iter().take(MAX_LISTED).map(|s| format!("`{}`", s.name)).collect();
    match signatures.len() - names.len() {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

/// Arguments that do not fit the parameters in their places.
fn misfits(kernel: &Kernel, signature: &Signature) -> Vec<Error> {
    let pairs = kernel.arguments.iter().zip(&signature.params).enumerate();
    pairs
        .filter_map(|(index, (argument, param))| {
            let why = misfit(&argument.passed, param)?;
            let message = format!(
                "parameter {index} of `{}` is `{}` in the PTX ({} bytes), and `{}` {why}",
                signature.name,
                Written(param),
                param.size,
                shown(argument),
            );
            Some(Error::new_spanned(argument, message))
        })
        .collect()
}

/// An argument as it was written, more or less.
fn shown(argument: &Argument) -> String {
    spaced(argument.to_token_stream())
}

/// Tokens in the spacing people use for types.
pub(crate) fn spaced(tokens: TokenStream) -> String {
    tokens
        .to_string()
        .replace(" :: ", "::")
        .replace(" : ", ": ")
        .replace("& ", "&")
        .replace(" < ", "<")
        .replace(" >", ">")
        .replace(" ;", ";")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = ".version 8.0\n.target sm_80\n.address_size 64
        .visible .entry add(.param .u64 a, .param .u64 b, .param .u32 n) { ret; }
        .visible .entry _Z5scalePff(.param .u64 x, .param .f32 a) { ret; }
        .visible .entry empty() { ret; }";

    /// The messages about these kernels.
    fn said(head: &str, kernels: &str) -> Vec<String> {
        let signatures = cuda_ptx::signatures(PTX).unwrap();
        let text = format!("#[ptx = \"k.ptx\"] {head} K; {kernels}");
        let declaration = syn::parse_str(&text).unwrap();
        let checked = check(&declaration, Some(&signatures));
        checked.problems.iter().map(|problem| problem.error.to_string()).collect()
    }

    #[test]
    fn what_fits_is_quiet() {
        let kernels = "unsafe fn add(a: &[f32], b: &mut [f32], n: u32);
            #[entry = \"_Z5scalePff\"] unsafe fn scale(x: &mut [f32], a: f32,);
            safe fn empty();";
        assert_eq!(said("unsafe struct", kernels), [""; 0]);
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let said = said("struct", "unsafe fn scale(x: &mut [f32], a: f32);");
        assert_eq!(
            said,
            [
                "`k.ptx` has no kernel `scale`; it has `add`, `_Z5scalePff`, `empty`. For one that is \
              called otherwise in the PTX, write `#[entry = \"..\"]`"
            ]
        );
    }

    #[test]
    fn counts_are_compared_before_types() {
        let few = said("struct", "unsafe fn add(a: u8);");
        assert_eq!(
            few,
            ["`add` has 3 parameters in the PTX (.u64, .u64, .u32), and 1 declared here"]
        );
        let many = said("struct", "unsafe fn empty(a: u8);");
        assert_eq!(many, ["`empty` has 0 parameters in the PTX, and 1 declared here"]);
    }

    #[test]
    fn every_misfit_is_told() {
        let said = said("struct", "unsafe fn add(a: &[f32], b: f64, n: &mut [half::f16]);");
        assert_eq!(
            said,
            [
                "parameter 1 of `add` is `.u64` in the PTX (8 bytes), and `b: f64` is a float",
                "parameter 2 of `add` is `.u32` in the PTX (4 bytes), and `n: &mut [half::f16]` is the \
                 address of a buffer, a `.u64`",
            ]
        );
    }

    #[test]
    fn names_are_unique_and_not_the_struct_s_own() {
        let twice = said("struct", "unsafe fn empty(); unsafe fn empty();");
        assert_eq!(twice, ["`empty` is declared twice"]);
        let own = said("struct", "#[entry = \"empty\"] unsafe fn load();");
        assert_eq!(
            own,
            ["the struct has a `load` of its own; write `#[entry = \"load\"]` before another name"]
        );
    }

    #[test]
    fn safe_needs_a_vouching_struct() {
        assert_eq!(said("struct", "safe fn empty();").len(), 1);
        assert!(said("unsafe struct", "safe fn empty();").is_empty());
    }

    #[test]
    fn long_lists_are_cut() {
        let body: String = (0..20).map(|i| format!(".entry k{i}() {{ ret; }}\n")).collect();
        let text = format!(".version 8.0\n.target sm_80\n.address_size 64\n{body}");
        let list = listed(&cuda_ptx::signatures(&text).unwrap());
        assert!(list.ends_with("`k11` and 8 more"), "{list}");
        assert_eq!(listed(&[]), "none");
    }
}
