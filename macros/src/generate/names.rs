//! Chooses the names of a launcher's type parameters.

use std::collections::HashSet;

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;

use crate::parse::{argument::Argument, declaration::Kernel, entries::Entries};

/// Returns a type parameter for each buffer, named after its argument: `LeftSide` for `left_side`. The names differ from
/// every type in the signature and from `of_trait`, the trait of a generic kernel, because type parameters are not hygienic.
pub(crate) fn type_parameters(kernel: &Kernel, of_trait: Option<&Ident>) -> Vec<Option<Ident>> {
    let mut taken: HashSet<_> = of_trait.iter().map(|name| name.to_string()).collect();
    if let Entries::PerType(types) = &kernel.entries {
        taken.insert(types.parameter.to_string());
    }
    for argument in &kernel.arguments {
        collect(argument.ty.to_token_stream(), &mut taken);
    }
    kernel.arguments.iter().map(|argument| type_parameter(argument, &mut taken)).collect()
}

fn type_parameter(argument: &Argument, taken: &mut HashSet<String>) -> Option<Ident> {
    if !argument.is_buffer() {
        return None;
    }
    let mut name = camel(&argument.name.unraw().to_string());
    while !taken.insert(name.clone()) {
        name.push('_');
    }
    Some(Ident::new(&name, Span::mixed_site()))
}

/// Converts `left_side` to `LeftSide`. Returns `Buffer` if the result is not a valid identifier.
pub(crate) fn camel(name: &str) -> String {
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
        type_parameters(&kernel, None).into_iter().flatten().map(|name| name.to_string()).collect()
    }

    #[test]
    fn type_parameters_are_named_after_arguments() {
        let kernel = "unsafe fn k(a: &[f32], left_side: &[f32], n: u32, r#type: &mut [f32]);";
        assert_eq!(names(kernel), ["A", "LeftSide", "Type"]);
    }

    #[test]
    fn type_parameters_differ_from_the_trait() {
        let kernel =
            "#[entry(f32 = \"k\")] unsafe fn axpy<T: f32>(vectors_axpy: &[f32], t: &[f32]);";
        let kernel = syn::parse_str(kernel).unwrap();
        let of_trait = Ident::new("VectorsAxpy", Span::call_site());
        let names = type_parameters(&kernel, Some(&of_trait));
        let names: Vec<_> = names.iter().flatten().map(ToString::to_string).collect();
        assert_eq!(names, ["VectorsAxpy_", "T_"]);
    }

    #[test]
    fn type_parameters_are_unique_and_shadow_no_type() {
        let kernel = "unsafe fn k(a: &[my::A], A: &[f32], _0: &[Buffer], a_: &[[A_; N]], s: Self);";
        assert_eq!(names(kernel), ["A__", "A___", "Buffer_", "A____"]);
        assert_eq!(
            names("unsafe fn k(own: &[Own], SELF: &mut [u8], self_: &[u8]);"),
            ["Own_", "SELF", "Buffer"]
        );
    }
}
