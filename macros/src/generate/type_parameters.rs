//! The type parameters of launchers: one for each buffer, and that of a generic kernel with its trait, which has the
//! types for which the PTX has an entry.

use std::collections::HashSet;

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote};
use syn::ext::IdentExt;

use crate::{
    check::kernels::Found,
    parse::{
        argument::{Argument, Passed},
        attributes::conditions,
        declaration::{Declaration, Kernel},
        entries::{Entries, PerType},
    },
    text,
};

/// The type parameter of a generic kernel.
pub(crate) fn parameter(kernel: &Kernel) -> Option<&Ident> {
    per_type(kernel).map(|types| &types.parameter)
}

/// The name of the trait of a generic kernel.
pub(crate) fn trait_name(declaration: &Declaration, kernel: &Kernel) -> Option<Ident> {
    parameter(kernel).map(|_| name(declaration, kernel))
}

/// The bound of the type parameter: `T: VectorsAxpy`.
pub(crate) fn bound(declaration: &Declaration, kernel: &Kernel) -> Option<TokenStream> {
    let (parameter, name) = (parameter(kernel)?, name(declaration, kernel));
    Some(quote!(#parameter: #name))
}

/// The type parameter as an implementor of the trait: `<T as VectorsAxpy>`.
pub(crate) fn selected(declaration: &Declaration, kernel: &Kernel) -> Option<TokenStream> {
    let (parameter, name) = (parameter(kernel)?, name(declaration, kernel));
    Some(quote!(<#parameter as #name>))
}

/// Generates the trait and its implementations.
///
/// A private module seals the trait: an implementation with a wrong index would select a kernel for another type. The
/// attribute `diagnostic` does not resolve in modules with `#![no_implicit_prelude]`, so these cannot declare generic
/// kernels.
pub(crate) fn type_trait(declaration: &Declaration, found: &Found<'_>) -> Option<TokenStream> {
    let kernel = found.kernel;
    let PerType { types, .. } = per_type(kernel)?;
    let (name, vis) = (name(declaration, kernel), &declaration.vis);
    let sealed = Ident::new(&format!("sealed_{name}"), Span::call_site());
    let list: Vec<_> = types.iter().map(|(ty, _)| format!("`{}`", text::of_type(ty))).collect();
    let list = list.join(", ");
    let doc = format!(
        "The types for which [`{}::{}`] has an entry: {list}.",
        declaration.name, kernel.name
    );
    let message = format!("kernel `{}` has no entry for `{{Self}}`", kernel.name);
    let note = format!("it has entries for {list}");
    let conditions: Vec<_> =
        conditions(&declaration.attrs).chain(conditions(&kernel.attrs)).collect();
    let instances = kernel.instances();
    let implementations = types.iter().zip(&found.signatures).enumerate();
    let implementations = implementations.map(|(index, ((ty, _), signature))| {
        let arguments =
            instances.get(index).map_or(&[][..], |instance| instance.arguments.as_slice());
        let aligns = arguments.iter().enumerate().map(|(index, argument)| {
            let param = signature.and_then(|signature| signature.params.get(index));
            match (param, &argument.passed) {
                (Some(param), _) => (param.align as usize).to_token_stream(),
                (None, Passed::Number(_) | Passed::Other) => {
                    let ty = &argument.ty;
                    quote!(::core::mem::align_of::<#ty>())
                }
                (None, _) => quote!(1),
            }
        });
        quote! {
            #(#conditions)*
            impl #sealed::Sealed for #ty {}
            #(#conditions)*
            impl #name for #ty {
                const ENTRY: ::core::primitive::usize = #index;
                const ALIGNS: &'static [::core::primitive::usize] = &[#(#aligns),*];
            }
        }
    });
    Some(quote! {
        #(#conditions)*
        #[doc = #doc]
        #[diagnostic::on_unimplemented(message = #message, label = "no entry for this type", note = #note)]
        #[allow(dead_code)]
        #vis trait #name: ::cuda_async::Element + #sealed::Sealed {
            /// The index of the entry.
            #[doc(hidden)]
            const ENTRY: ::core::primitive::usize;
            /// The alignments of the parameters in bytes.
            #[doc(hidden)]
            const ALIGNS: &'static [::core::primitive::usize];
        }

        #(#conditions)*
        #[allow(non_snake_case)]
        mod #sealed {
            pub trait Sealed {}
        }

        #(#implementations)*
    })
}

/// The name of the trait: `VectorsAxpy` for the kernel `axpy` of `Vectors`.
fn name(declaration: &Declaration, kernel: &Kernel) -> Ident {
    let of_kernel = camel(&kernel.name.unraw().to_string());
    format_ident!("{}{of_kernel}", declaration.name.unraw(), span = kernel.name.span())
}

fn per_type(kernel: &Kernel) -> Option<&PerType> {
    match &kernel.entries {
        Entries::One(_) => None,
        Entries::PerType(types) => Some(types),
    }
}

/// Returns a type parameter for each buffer, named after its argument: `LeftSide` for `left_side`. The names differ
/// from every type in the signature and from `of_trait`, the trait of a generic kernel, because type parameters are not
/// hygienic.
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
