//! The derive of `KernelParam`.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::{Data, DeriveInput, Error, Index, Member, Result, spanned::Spanned};

/// Generates the implementations of `KernelParam` and `KernelArg` for a struct.
pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    let name = &input.ident;
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(name, "a kernel parameter is a struct"));
    };
    if !input.generics.params.is_empty() {
        let why = "a kernel parameter has no type parameters: its layout must be known";
        return Err(Error::new_spanned(&input.generics, why));
    }
    if !has_layout_of_c(input)? {
        let why = format!(
            "add `#[repr(C)]` to `{name}`, so that its layout is that of the kernel's parameter"
        );
        return Err(Error::new_spanned(name, why));
    }
    let members = data.fields.iter().enumerate().map(|(index, field)| match &field.ident {
        Some(name) => Member::Named(name.clone()),
        None => Member::Unnamed(Index::from(index)),
    });
    let writes = data.fields.iter().zip(members).map(|(field, member)| {
        // The span of the type, so that "cannot be passed by value" points at it. The field is copied, so a packed
        // struct works too.
        quote_spanned! {field.ty.span()=>
            ::cuda_async::kernel::put_field(&mut bytes, ::core::mem::offset_of!(Self, #member), self.#member);
        }
    });
    Ok(quote! {
        impl ::cuda_async::kernel::KernelParam for #name {
            #[inline]
            fn with_bytes<R>(&self, pass: impl ::core::ops::FnOnce(&[::core::primitive::u8]) -> R) -> R {
                let mut bytes = [0; ::core::mem::size_of::<Self>()];
                #(#writes)*
                pass(&bytes)
            }
        }

        impl ::cuda_async::kernel::KernelArg for #name {
            type GivenBack<Rest: ::cuda_async::kernel::BufferTuple> = Rest;

            #[inline]
            fn push<'a>(&'a self, arguments: &mut ::cuda_async::cuda_core::Arguments<'a>) {
                ::cuda_async::kernel::push_param(self, arguments);
            }

            #[inline]
            fn give_back<Rest: ::cuda_async::kernel::BufferTuple>(self, rest: Rest) -> Rest {
                rest
            }
        }
    })
}

/// Whether the struct is `#[repr(C)]` or `#[repr(transparent)]`.
fn has_layout_of_c(input: &DeriveInput) -> Result<bool> {
    let mut found = false;
    for attr in input.attrs.iter().filter(|attr| attr.path().is_ident("repr")) {
        attr.parse_nested_meta(|meta| {
            found |= meta.path.is_ident("C") || meta.path.is_ident("transparent");
            if meta.input.peek(syn::token::Paren) {
                // The number of `align(8)` or `packed(4)`.
                let inside;
                syn::parenthesized!(inside in meta.input);
                inside.parse::<TokenStream>()?;
            }
            Ok(())
        })?;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(item: &str) -> Option<String> {
        derive(&syn::parse_str(item).unwrap()).err().map(|error| error.to_string())
    }

    #[test]
    fn structs_with_the_layout_of_c_are_accepted() {
        for item in [
            "#[repr(C)] struct S { a: u8, b: f64 }",
            "#[repr(C, align(16))] struct S(u8, f64);",
            "#[repr(align(16))] #[repr(C)] struct S;",
            "#[repr(C, packed(2))] struct S(u8, f64);",
            "#[repr(transparent)] struct S(u8);",
        ] {
            assert_eq!(error(item), None, "{item}");
        }
    }

    #[test]
    fn other_items_are_refused() {
        assert!(error("#[repr(C)] enum E { A }").unwrap().contains("is a struct"));
        assert!(error("#[repr(C)] struct S<T>(T);").unwrap().contains("no type parameters"));
        assert!(error("#[repr(align(8))] struct S(u8);").unwrap().starts_with("add `#[repr(C)]`"));
        assert!(error("struct S(u8);").unwrap().starts_with("add `#[repr(C)]`"));
    }
}
