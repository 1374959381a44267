//! The method that launches a kernel.

use cuda_ptx::{Param, Signature};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::{Token, Visibility, spanned::Spanned};

use crate::{
    argument::{Argument, Passed},
    check::spaced,
    declaration::{Kernel, Safety},
    docs,
    fit::Written,
    names,
};

/// Arguments in one tuple; more are tuples in a tuple.
const TUPLE: usize = 16;

/// The contribution of one argument to a launcher.
struct Part<'a> {
    argument: &'a Argument,
    /// Its parameter in the PTX, if the declaration fits.
    param: Option<&'a Param>,
    /// A buffer's type parameter.
    generic: Option<Ident>,
    /// Its name when the launch gives it back.
    back: Ident,
}

/// `pub unsafe fn vecadd<A: KernelInput<f32>, ..>(&self, config: LaunchConfig, a: A, ..) -> ..`
pub(crate) fn launcher(
    kernel: &Kernel,
    signature: Option<&Signature>,
    vouched: Option<Token![unsafe]>,
) -> TokenStream {
    let parts: Vec<_> = kernel
        .arguments
        .iter()
        .zip(names::type_parameters(kernel))
        .enumerate()
        .map(|(index, (argument, generic))| Part {
            argument,
            param: signature.and_then(|signature| signature.params.get(index)),
            generic,
            back: format_ident!("argument_{index}", span = Span::mixed_site()),
        })
        .collect();
    let (name, attrs, doc) = (&kernel.name, &kernel.attrs, docs::of_launcher(kernel));
    let doc = (!doc.is_empty()).then(|| quote!(#[doc = #doc]));
    let vis = visibility(&kernel.vis);
    let declared = match &kernel.safety {
        Safety::Unsafe(keyword) => Some(keyword),
        Safety::Safe(_) => None,
    };
    let config = Ident::new("config", Span::mixed_site());
    let bounds = parts.iter().filter_map(Part::bound);
    let generics: Vec<_> = parts.iter().filter_map(|part| part.generic.as_ref()).collect();
    let taken = parts.iter().map(Part::taken);
    let sizes = parts.iter().filter_map(|part| part.size_check(kernel));
    let passed = nested(parts.iter().map(Part::passed).collect());
    let call = quote!(::cuda_async::launch(&self.#name, #config, #passed));
    let call = unsafe_block(&call, &kernel.safety, vouched);
    let back = nested(parts.iter().map(Part::pattern).collect());
    let output = bare_if_one(&generics.iter().map(|name| quote!(#name)).collect::<Vec<_>>());
    let given = bare_if_one(&parts.iter().filter_map(Part::given).collect::<Vec<_>>());
    quote! {
        #(#attrs)*
        #doc
        #[allow(clippy::undocumented_unsafe_blocks, clippy::too_many_arguments)]
        #vis #declared fn #name<#(#bounds),*>(
            &self,
            #config: ::cuda_async::LaunchConfig,
            #(#taken),*
        ) -> impl ::cuda_async::DeviceOp<Output = #output> + use<#(#generics),*> {
            #(#sizes)*
            ::cuda_async::DeviceOp::map(#call, |#back| #given)
        }
    }
}

/// `pub`, unless something narrower was written.
fn visibility(written: &Visibility) -> TokenStream {
    match written {
        Visibility::Inherited => quote!(pub),
        written => quote!(#written),
    }
}

/// The block that calls `launch`. That of a safe method is the struct's own `unsafe`, so that a crate that
/// forbids unsafe code cannot declare one.
fn unsafe_block(
    call: &TokenStream,
    safety: &Safety,
    vouched: Option<Token![unsafe]>,
) -> TokenStream {
    let span = match (safety, vouched) {
        (Safety::Safe(_), Some(keyword)) => keyword.span,
        _ => Span::mixed_site(),
    };
    quote_spanned!(span=> unsafe { #call })
}

impl Part<'_> {
    /// `A: KernelInput<f32>`.
    fn bound(&self) -> Option<TokenStream> {
        let generic = self.generic.as_ref()?;
        match &self.argument.passed {
            Passed::Input(element) => {
                Some(quote!(#generic: ::cuda_async::kernel::KernelInput<#element>))
            }
            Passed::Output(element) => {
                Some(quote!(#generic: ::cuda_async::kernel::KernelOutput<#element>))
            }
            _ => None,
        }
    }

    /// `a: A`.
    fn taken(&self) -> TokenStream {
        let Argument { name, ty, .. } = self.argument;
        match &self.generic {
            Some(generic) => quote!(#name: #generic),
            None => quote!(#name: #ty),
        }
    }

    /// `In::new(a)`: the value that `launch` takes.
    fn passed(&self) -> TokenStream {
        let Argument { name, ty, passed } = self.argument;
        let align = self.param.map_or(1, |param| param.align) as usize;
        match passed {
            Passed::Input(_) => quote!(::cuda_async::kernel::Reads::new(#name)),
            Passed::Output(_) => quote!(#name),
            Passed::Bool => {
                quote!(::cuda_async::kernel::Aligned::<#align, _>(::core::primitive::u8::from(#name)))
            }
            // Its span is the type's, for "the trait `Pod` is not implemented".
            Passed::Number(_) | Passed::Other => {
                quote_spanned!(ty.span()=> ::cuda_async::kernel::Aligned::<#align, #ty>(#name))
            }
        }
    }

    /// The pattern that takes it apart when it comes back.
    fn pattern(&self) -> TokenStream {
        let back = &self.back;
        match &self.generic {
            Some(_) => quote!(#back),
            None => quote!(_),
        }
    }

    /// The value that the caller gets.
    fn given(&self) -> Option<TokenStream> {
        let back = &self.back;
        match &self.argument.passed {
            Passed::Input(_) => Some(quote!(::cuda_async::kernel::Reads::into_inner(#back))),
            Passed::Output(_) => Some(quote!(#back)),
            _ => None,
        }
    }

    /// A check by the compiler, for types that only it knows.
    fn size_check(&self, kernel: &Kernel) -> Option<TokenStream> {
        let (Argument { name, ty, passed: Passed::Other }, Some(param)) =
            (self.argument, self.param)
        else {
            return None;
        };
        let message = format!(
            "argument `{name}` of `{}`: `{}` must have {} bytes, the size of its parameter in the PTX (`{}`)",
            kernel.name,
            spaced(quote!(#ty)),
            param.size,
            Written(param),
        );
        let size = param.size as usize;
        Some(quote_spanned! {ty.span()=>
            const _: () = ::core::assert!(::core::mem::size_of::<#ty>() == #size, #message);
        })
    }
}

/// A tuple, or tuples in a tuple.
fn nested(parts: Vec<TokenStream>) -> TokenStream {
    if parts.len() <= TUPLE {
        return quote!((#(#parts,)*));
    }
    let groups =
        parts.chunks(TUPLE).map(|group| quote!(::cuda_async::kernel::Group((#(#group,)*))));
    quote!((#(#groups,)*))
}

/// A tuple, but the part itself if there is one.
fn bare_if_one(parts: &[TokenStream]) -> TokenStream {
    match parts {
        [one] => one.clone(),
        parts => quote!((#(#parts),*)),
    }
}
