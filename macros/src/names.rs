//! Names for the type parameters of a launcher.

use std::collections::HashSet;

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;

use crate::{
    argument::{Argument, Passed},
    declaration::Kernel,
};

/// A type parameter for each buffer, named after its argument (`left_side`: `LeftSide`), and never like
/// a type that the signature speaks of. Type parameters are not hygienic.
pub(crate) fn type_parameters(kernel: &Kernel) -> Vec<Option<Ident>> {
    let mut taken = HashSet::new();
    for argument in &kernel.arguments {
        collect(argument.ty.to_token_stream(), &mut taken);
    }
    kernel.arguments.iter().map(|argument| type_parameter(argument, &mut taken)).collect()
}

fn type_parameter(argument: &Argument, taken: &mut HashSet<String>) -> Option<Ident> {
    if !matches!(argument.passed, Passed::Input(_) | Passed::Output(_)) {
        return None;
    }
    let mut name = camel(&argument.name.unraw().to_string());
    while !taken.insert(name.clone()) {
        name.push('_');
    }
    Some(Ident::new(&name, Span::mixed_site()))
}

/// `left_side` as `LeftSide`; `Buffer` where the result would be no name.
fn camel(name: &str) -> String {
    let words = name.split('_').filter(|word| !word.is_empty());
    let camel: String = words
        .flat_map(|word| {
            let mut chars = word.chars();
            chars.next().into_iter().flat_map(char::to_uppercase).chain(chars)
        })
        .collect();
    let usable = syn::parse_str::<syn::Ident>(&camel).is_ok();
    if usable { camel } else { "Buffer".to_owned() }
}

fn collect(tokens: TokenStream, names: &mut HashSet<String>) {
    for token in tokens {
        match token {
            TokenTree::Ident(name) => _ = names.insert(name.unraw().to_string()),
            TokenTree::Group(group) => collect(group.stream(), names),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(kernel: &str) -> Vec<String> {
        let kernel = syn::parse_str(kernel).unwrap();
        type_parameters(&kernel).into_iter().flatten().map(|name| name.to_string()).collect()
    }

    #[test]
    fn they_are_named_after_the_arguments() {
        let kernel = "unsafe fn k(a: &[f32], left_side: &[f32], n: u32, r#type: &mut [f32]);";
        assert_eq!(names(kernel), ["A", "LeftSide", "Type"]);
    }

    #[test]
    fn they_differ_from_each_other_and_from_every_type() {
        let kernel = "unsafe fn k(a: &[my::A], A: &[f32], _0: &[Buffer], a_: &[[A_; N]], s: Self);";
        assert_eq!(names(kernel), ["A__", "A___", "Buffer_", "A____"]);
        assert_eq!(
            names("unsafe fn k(own: &[Own], SELF: &mut [u8], self_: &[u8]);"),
            ["Own_", "SELF", "Buffer"]
        );
    }
}
