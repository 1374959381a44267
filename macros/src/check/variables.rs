//! Compares the declared variables with those of the PTX.

use std::collections::HashSet;

use cuda_ptx::{Space, VariableSignature};
use syn::{Error, LitStr, ext::IdentExt};

use super::fit::scalar_mismatch;
use crate::{
    parse::{
        argument::Passed,
        attributes::conditions,
        declaration::{Declaration, RESERVED, Variable},
    },
    problem::Problem,
    text::{listed_names, of_type},
};

/// A variable, and its signature in the PTX if it was found.
pub(crate) struct FoundVariable<'a> {
    pub(crate) variable: &'a Variable,
    pub(crate) signature: Option<&'a VariableSignature>,
}

/// Compares the declared variables with those of the PTX, and returns those with usable names. Without `signatures`,
/// makes only the checks that need no PTX.
pub(crate) fn check_variables<'a>(
    declaration: &'a Declaration,
    signatures: Option<&'a [VariableSignature]>,
    problems: &mut Vec<Problem<'a>>,
) -> Vec<FoundVariable<'a>> {
    let kernels = declaration.kernels.iter().map(|kernel| kernel.name.unraw().to_string());
    let mut names: HashSet<_> = kernels.collect();
    let mut checked = Vec::new();
    for variable in &declaration.variables {
        let mut report = |error| problems.push(Problem::of(&variable.attrs, error));
        let method = variable.method().unraw().to_string();
        let reserved = RESERVED.contains(&method.as_str());
        if reserved || conditions(&variable.attrs).next().is_none() && !names.insert(method.clone())
        {
            let why = format!(
                "`{method}` is also another item of the struct; choose another name and write `#[symbol = \"{}\"]` before it",
                variable.symbol()
            );
            report(Error::new(variable.name.span(), why));
            continue;
        }
        let symbol = variable.symbol();
        let signature =
            signatures.and_then(|list| list.iter().find(|variable| variable.name == symbol));
        match (signatures, signature) {
            (_, Some(signature)) => mismatch(variable, signature).into_iter().for_each(&mut report),
            (Some(list), None) => {
                let why = format!(
                    "`{}` has no variable `{symbol}`; it has {}. If the variable has another name in the PTX, write \
                     `#[symbol = \"name\"]`; compilers remove unused variables",
                    declaration.code.path().value(),
                    listed_names(list.iter().map(|variable| variable.name.as_str())),
                );
                let span = variable.symbol.as_ref().map_or(variable.name.span(), LitStr::span);
                report(Error::new(span, why));
            }
            (None, None) => {}
        }
        checked.push(FoundVariable { variable, signature });
    }
    checked
}

/// Returns the reason why the declaration does not match the variable in the PTX.
fn mismatch(variable: &Variable, signature: &VariableSignature) -> Option<Error> {
    let (name, constant) = (&signature.name, signature.space == Space::Const);
    match (&variable.mutable, constant) {
        (Some(token), true) => {
            let why =
                format!("variable `{name}` is `.const` in the PTX; write `static` without `mut`");
            return Some(Error::new_spanned(token, why));
        }
        (None, false) => {
            let why = format!(
                "variable `{name}` is `.global` in the PTX, so kernels may write it; write `static mut`"
            );
            return Some(Error::new_spanned(&variable.name, why));
        }
        _ => {}
    }
    let why = match Passed::of(&variable.element) {
        Ok(Passed::Number(number)) => scalar_mismatch(number, signature.ty)?,
        Ok(Passed::Bool) => "is `bool`, which not every byte is; write `u8`".to_owned(),
        Ok(_) => return None,
        Err(error) => return Some(error),
    };
    let ty = format!("{:?}", signature.ty).to_lowercase();
    let element = of_type(&variable.element);
    let why = format!("variable `{name}` is `.{ty}` in the PTX, but the element `{element}` {why}");
    Some(Error::new_spanned(&variable.element, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = ".version 8.0\n.target sm_80\n.address_size 64
        .const .align 4 .b8 taps[20]; .global .u32 limited; .global .f32 sums[4];
        .visible .entry k() { ret; }";

    fn messages(items: &str) -> Vec<String> {
        let module = cuda_ptx::module_signature(PTX).unwrap();
        let text = format!("#[ptx = \"k.ptx\"] struct K; unsafe fn k(); {items}");
        let declaration: Declaration = syn::parse_str(&text).unwrap();
        let mut problems = Vec::new();
        check_variables(&declaration, Some(&module.variables), &mut problems);
        problems.iter().map(|problem| problem.error.to_string()).collect()
    }

    #[test]
    fn matching_variables_have_no_problems() {
        let items = "static taps: [f32; 5]; #[symbol = \"limited\"] static mut COUNTER: i32; \
                     pub(crate) static mut sums: [f32; 4];";
        assert_eq!(messages(items), [""; 0]);
    }

    #[test]
    fn mismatches_are_reported() {
        for (item, message) in [
            (
                "static mut taps: [f32; 5];",
                "variable `taps` is `.const` in the PTX; write `static` without `mut`",
            ),
            (
                "static limited: u32;",
                "variable `limited` is `.global` in the PTX, so kernels may write it; write `static mut`",
            ),
            (
                "static mut limited: f32;",
                "variable `limited` is `.u32` in the PTX, but the element `f32` is a float",
            ),
            (
                "static mut sums: [u8; 16];",
                "variable `sums` is `.f32` in the PTX, but the element `u8` has 1 byte",
            ),
            (
                "static mut k: u32;",
                "`k` is also another item of the struct; choose another name and write `#[symbol = \"k\"]` before it",
            ),
            (
                "static mut LOAD: u32;",
                "`load` is also another item of the struct; choose another name and write `#[symbol = \"LOAD\"]` before it",
            ),
            (
                "static mut sum: u32;",
                "`k.ptx` has no variable `sum`; it has `taps`, `limited`, `sums`. If the variable has another \
              name in the PTX, write `#[symbol = \"name\"]`; compilers remove unused variables",
            ),
        ] {
            assert_eq!(messages(item), [message]);
        }
    }

    #[test]
    fn malformed_variables_are_refused() {
        for item in ["static taps: &[f32];", "static taps: u32 = 1;", "static taps;"] {
            let text = format!("#[ptx = \"k.ptx\"] struct K; {item}");
            assert!(syn::parse_str::<Declaration>(&text).is_err(), "{item}");
        }
    }
}
