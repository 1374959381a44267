//! Compares the declaration with the PTX.

use std::collections::HashSet;

use cuda_ptx::Signature;
use quote::ToTokens;
use syn::{Error, ext::IdentExt};

use super::{
    code::Contents,
    fit::{Written, mismatch},
};
use crate::{
    parse::{
        argument::Argument,
        attributes::conditions,
        declaration::{Declaration, Kernel, RESERVED, Safety},
        entries::Instance,
        quantity::is_integer,
    },
    problem::Problem,
    text::{listed_names, spaced},
};

/// The result of the checks.
pub(crate) struct Checked<'a> {
    /// The kernels with usable names.
    pub(crate) kernels: Vec<Found<'a>>,
    pub(crate) problems: Vec<Problem<'a>>,
}

/// A kernel, and the signatures of its entries in the PTX if they were found.
pub(crate) struct Found<'a> {
    pub(crate) kernel: &'a Kernel,
    /// One signature for each instance, in order.
    pub(crate) signatures: Vec<Option<&'a Signature>>,
    /// Whether derived values, conditions and the launch shape are valid. If not, no code is generated from them, so
    /// that a mistake causes one error.
    pub(crate) valid: bool,
}

/// Compares `declaration` with the kernels of its PTX. Without `contents`, makes only the checks that need no PTX.
pub(crate) fn check<'a>(
    declaration: &'a Declaration,
    contents: Option<&'a Contents>,
) -> Checked<'a> {
    let mut checked = Checked { kernels: Vec::new(), problems: Vec::new() };
    let mut names = HashSet::new();
    for kernel in &declaration.kernels {
        let mut report = |error| checked.problems.push(Problem::of(&kernel.attrs, error));
        missing_unsafe(declaration, kernel).into_iter().for_each(&mut report);
        let misused = expressions(kernel);
        let valid = misused.is_empty();
        misused.into_iter().for_each(&mut report);
        let mut found = Vec::new();
        for instance in kernel.instances() {
            let signature =
                contents.map(|contents| counterpart(declaration, &instance, &contents.entries));
            found.push(match signature.transpose() {
                Ok(signature) => {
                    if let (Some(contents), Some(signature)) = (contents, signature) {
                        mismatches(&instance, signature, contents)
                            .into_iter()
                            .for_each(&mut report);
                    }
                    signature
                }
                Err(error) => {
                    report(error);
                    None
                }
            });
        }
        match misnamed(kernel, &mut names) {
            Some(error) => report(error),
            None => checked.kernels.push(Found { kernel, signatures: found, valid }),
        }
    }
    checked
}

/// Returns an error if the kernel's name is reserved or already declared.
fn misnamed(kernel: &Kernel, names: &mut HashSet<String>) -> Option<Error> {
    let name = kernel.name.unraw().to_string();
    let why = if RESERVED.contains(&name.as_str()) {
        format!(
            "`{name}` is an item of the generated struct; choose another name and write `#[entry = \"{name}\"]` \
             before it"
        )
    } else if conditions(&kernel.attrs).next().is_none() && !names.insert(name) {
        format!("kernel `{}` is declared twice; remove or rename one declaration", kernel.name)
    } else {
        return None;
    };
    Some(Error::new(kernel.name.span(), why))
}

/// Returns an error for a `safe fn` in a struct that is not `unsafe`.
fn missing_unsafe(declaration: &Declaration, kernel: &Kernel) -> Option<Error> {
    let Safety::Safe(safe) = &kernel.safety else { return None };
    let name = &declaration.name;
    declaration.unsafe_token.is_none().then(|| {
        Error::new_spanned(
            safe,
            format!(
                "`safe fn` requires `unsafe struct {name};`: its author promises that every launch is sound, \
                 with any configuration and any arguments that the launcher accepts"
            ),
        )
    })
}

/// Returns the errors of derived values, conditions and the launch shape.
fn expressions(kernel: &Kernel) -> Vec<Error> {
    let all = &kernel.arguments;
    let mut errors = Vec::new();
    let mut known: Vec<_> = all.iter().filter(|argument| argument.derived.is_none()).collect();
    for argument in all {
        let Some(derived) = &argument.derived else { continue };
        if !is_integer(&argument.passed) {
            let why = format!(
                "a derived value is an integer; change the type of `{}` or remove `= {derived}`",
                argument.name,
            );
            errors.push(Error::new_spanned(&argument.ty, why));
        }
        errors.extend(derived.check(&known, all));
        known.push(argument);
    }
    errors.extend(kernel.conditions.iter().flat_map(|condition| condition.check(all)));
    errors.extend(kernel.geometry.check(all));
    errors.extend(kernel.launch.check(all));
    errors
}

/// Finds the signature of an instance in the PTX.
///
/// # Errors
/// If the PTX has no such kernel, or the numbers of parameters differ.
fn counterpart<'a>(
    declaration: &Declaration,
    instance: &Instance,
    signatures: &'a [Signature],
) -> Result<&'a Signature, Error> {
    let Instance { entry, place, arguments, .. } = instance;
    let found = signatures.iter().find(|signature| signature.name == *entry);
    let signature = found.ok_or_else(|| {
        let names = signatures.iter().map(|signature| signature.name.as_str());
        let (file, list) = (declaration.code.path().value(), listed_names(names));
        let why = format!(
            "`{file}` has no kernel `{entry}`; it has {list}. If the kernel has another name in the PTX, \
             write `#[entry = \"name\"]`"
        );
        Error::new_spanned(place, why)
    })?;
    let (want, have) = (signature.params.len(), arguments.len());
    if want == have {
        return Ok(signature);
    }
    let params: Vec<_> = signature.params.iter().map(|p| Written(p).to_string()).collect();
    let types = if params.is_empty() { String::new() } else { format!(" ({})", params.join(", ")) };
    let plural = if want == 1 { "" } else { "s" };
    let why = format!(
        "kernel `{entry}` has {want} parameter{plural} in the PTX{types}, the declaration has {have}"
    );
    let surplus = arguments.get(want).map(ToTokens::to_token_stream);
    Err(Error::new_spanned(surplus.unwrap_or_else(|| place.clone()), why))
}

/// Returns an error for each argument that does not match the parameter at its index.
fn mismatches(instance: &Instance, signature: &Signature, contents: &Contents) -> Vec<Error> {
    let types = contents.types.get(&signature.name);
    let pairs = instance.arguments.iter().zip(&signature.params).enumerate();
    pairs
        .filter_map(|(index, (argument, param))| {
            let Some(why) = mismatch(&argument.passed, param) else {
                let ty = types?.get(index)?;
                let why = ty.misfit(argument.passed.declared())?;
                let message = format!(
                    "parameter {index} of kernel `{}` is `{ty}` in the source, but `{}`{} {why}",
                    signature.name,
                    shown(argument),
                    instance.of_type,
                );
                return Some(Error::new_spanned(argument, message));
            };
            let message = format!(
                "parameter {index} of kernel `{}` is `{}` in the PTX ({} bytes), but `{}`{} {why}",
                signature.name,
                Written(param),
                param.size,
                shown(argument),
                instance.of_type,
            );
            Some(Error::new_spanned(argument, message))
        })
        .collect()
}

/// The text of an argument, close to how it was written.
fn shown(argument: &Argument) -> String {
    spaced(argument.to_token_stream())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = ".version 8.0\n.target sm_80\n.address_size 64
        .visible .entry add(.param .u64 a, .param .u64 b, .param .u32 n) { ret; }
        .visible .entry _Z5scalePff(.param .u64 x, .param .f32 a) { ret; }
        .visible .entry empty() { ret; }";

    /// The messages for a declaration of `kernels`.
    fn messages(head: &str, kernels: &str) -> Vec<String> {
        let contents = Contents::of(PTX).unwrap();
        let text = format!("#[ptx = \"k.ptx\"] {head} K; {kernels}");
        let declaration = syn::parse_str(&text).unwrap();
        let checked = check(&declaration, Some(&contents));
        checked.problems.iter().map(|problem| problem.error.to_string()).collect()
    }

    #[test]
    fn matching_declaration_has_no_problems() {
        let kernels = "unsafe fn add(a: &[f32], b: &mut [f32], n: u32);
            #[entry = \"_Z5scalePff\"] unsafe fn scale(x: &mut [f32], a: f32,);
            safe fn empty();";
        assert_eq!(messages("unsafe struct", kernels), [""; 0]);
    }

    #[test]
    fn unknown_kernel_lists_the_kernels_of_the_ptx() {
        let messages = messages("struct", "unsafe fn scale(x: &mut [f32], a: f32);");
        assert_eq!(
            messages,
            [
                "`k.ptx` has no kernel `scale`; it has `add`, `_Z5scalePff`, `empty`. If the kernel has \
              another name in the PTX, write `#[entry = \"name\"]`"
            ]
        );
    }

    #[test]
    fn parameter_counts_are_compared_before_types() {
        let few = messages("struct", "unsafe fn add(a: u8);");
        assert_eq!(
            few,
            ["kernel `add` has 3 parameters in the PTX (.u64, .u64, .u32), the declaration has 1"]
        );
        let many = messages("struct", "unsafe fn empty(a: u8);");
        assert_eq!(many, ["kernel `empty` has 0 parameters in the PTX, the declaration has 1"]);
    }

    #[test]
    fn each_mismatched_argument_gets_an_error() {
        let messages = messages("struct", "unsafe fn add(a: &[f32], b: f64, n: &mut [half::f16]);");
        assert_eq!(
            messages,
            [
                "parameter 1 of kernel `add` is `.u64` in the PTX (8 bytes), but `b: f64` is a float",
                "parameter 2 of kernel `add` is `.u32` in the PTX (4 bytes), but `n: &mut [half::f16]` is \
                 passed as an address (`.u64`)",
            ]
        );
    }

    #[test]
    fn duplicate_and_reserved_names_are_refused() {
        let twice = messages("struct", "unsafe fn empty(); unsafe fn empty();");
        assert_eq!(twice, ["kernel `empty` is declared twice; remove or rename one declaration"]);
        let own = messages("struct", "#[entry = \"empty\"] unsafe fn load();");
        assert_eq!(
            own,
            ["`load` is an item of the generated struct; choose another name and write \
              `#[entry = \"load\"]` before it"]
        );
    }

    #[test]
    fn safe_fn_requires_an_unsafe_struct() {
        assert_eq!(messages("struct", "safe fn empty();").len(), 1);
        assert!(messages("unsafe struct", "safe fn empty();").is_empty());
    }
}
