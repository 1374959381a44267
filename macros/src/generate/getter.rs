//! Generates the method that returns a variable.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{Visibility, spanned::Spanned};

use crate::{
    check::variables::FoundVariable,
    parse::{reserved::MODULE_FIELD, variable::Variable},
    text,
};

/// Generates the method that returns the variable, with assertions of its size and alignment.
pub(crate) fn getter(found: &FoundVariable<'_>) -> TokenStream {
    let Variable { attrs, vis, mutable, ty, element, name, .. } = found.variable;
    let (method, symbol) = (found.variable.method(), found.variable.symbol());
    let vis = match vis {
        Visibility::Inherited => quote!(pub),
        vis => quote!(#vis),
    };
    let doc = format!(
        "\n\n Returns the variable `{symbol}` of the module, which kernels {}. Every call returns the same memory.\n\n \
         # Errors\n The errors of [`Module::variable`](::cuda_async::Module::variable).",
        if mutable.is_some() { "may write" } else { "read" },
    );
    let asserts = found.signature.map(|signature| {
        let (bytes, align) = (signature.bytes as usize, signature.align as usize);
        let size = format!(
            "variable `{name}`: `{}` must have {bytes} bytes, the size in the PTX",
            text::of_type(ty)
        );
        let aligned = format!(
            "variable `{name}`: `{}` needs a larger alignment than the {align} bytes of the PTX",
            text::of_type(element)
        );
        quote_spanned! {ty.span()=>
            const _: () = ::core::assert!(::core::mem::size_of::<#ty>() == #bytes, #size);
            const _: () = ::core::assert!(::core::mem::align_of::<#element>() <= #align, #aligned);
        }
    });
    let field = Ident::new(MODULE_FIELD, Span::call_site());
    quote! {
        #(#attrs)*
        #[doc = #doc]
        #vis fn #method(&self) -> ::cuda_async::Result<::cuda_async::DeviceBuffer<#element>> {
            #asserts
            ::cuda_async::Module::variable(&self.#field, #symbol)
        }
    }
}
