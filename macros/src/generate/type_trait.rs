//! The trait of a generic kernel: the types for which the PTX has an entry.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote};
use syn::ext::IdentExt;

use super::names::camel;
use crate::{
    check::kernels::Found,
    parse::{
        argument::Passed,
        attributes::conditions,
        declaration::{Declaration, Kernel},
        entries::{Entries, PerType},
    },
    text,
};

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
pub(crate) fn declared(declaration: &Declaration, found: &Found<'_>) -> Option<TokenStream> {
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
