//! Generates the method that launches a kernel.

use cuda_ptx::{Param, Signature};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{Token, Visibility, spanned::Spanned};

use crate::{
    argument::{Argument, Passed},
    check::spaced,
    declaration::{Kernel, Safety},
    docs,
    fit::Written,
    names,
};

/// The maximum number of arguments in one tuple. More arguments are grouped into nested tuples.
const TUPLE: usize = 16;

/// The maximum number of buffers in a flat tuple of an output.
const BUFFERS: usize = 32;

/// The parts of a launcher that one argument generates.
struct Part<'a> {
    argument: &'a Argument,
    /// The matching parameter in the PTX, if the signature was found.
    param: Option<&'a Param>,
    /// The type parameter, if the argument is a buffer.
    generic: Option<Ident>,
}

/// Generates `pub unsafe fn vecadd<A: KernelInput<f32>, ..>(&self, config: LaunchConfig, a: A, ..) -> ..`
pub(crate) fn launcher(
    kernel: &Kernel,
    signature: Option<&Signature>,
    unsafe_token: Option<Token![unsafe]>,
) -> TokenStream {
    let parts: Vec<_> = kernel
        .arguments
        .iter()
        .zip(names::type_parameters(kernel))
        .enumerate()
        .map(|(index, (argument, generic))| {
            let param = signature.and_then(|signature| signature.params.get(index));
            Part { argument, param, generic }
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
    let call = unsafe_block(&call, &kernel.safety, unsafe_token);
    let output = output_type(&generics);
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
            #call
        }
    }
}

/// The visibility as written, or `pub` if it was omitted.
fn visibility(written: &Visibility) -> TokenStream {
    match written {
        Visibility::Inherited => quote!(pub),
        written => quote!(#written),
    }
}

/// Generates the block that calls `launch`. In a safe method, the keyword has the span of the struct's `unsafe`, so that
/// a crate that forbids unsafe code cannot declare such a method.
fn unsafe_block(
    call: &TokenStream,
    safety: &Safety,
    unsafe_token: Option<Token![unsafe]>,
) -> TokenStream {
    let span = match (safety, unsafe_token) {
        (Safety::Safe(_), Some(keyword)) => keyword.span,
        _ => Span::mixed_site(),
    };
    quote_spanned!(span=> unsafe { #call })
}

impl Part<'_> {
    /// The bound of the type parameter: `A: KernelInput<f32>`.
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

    /// The parameter of the method: `a: A`.
    fn taken(&self) -> TokenStream {
        let Argument { name, ty, .. } = self.argument;
        match &self.generic {
            Some(generic) => quote!(#name: #generic),
            None => quote!(#name: #ty),
        }
    }

    /// The value that `launch` takes: `Reads::new(a)`.
    fn passed(&self) -> TokenStream {
        let Argument { name, ty, passed } = self.argument;
        let align = self.param.map_or(1, |param| param.align) as usize;
        match passed {
            Passed::Input(_) => quote!(::cuda_async::kernel::Reads::new(#name)),
            Passed::Output(_) => quote!(::cuda_async::kernel::Returned(#name)),
            Passed::Bool => {
                quote!(::cuda_async::kernel::Aligned::<#align, _>(::core::primitive::u8::from(#name)))
            }
            // The span of the type, so that "the trait `Pod` is not implemented" points at it.
            Passed::Number(_) | Passed::Other => {
                quote_spanned!(ty.span()=> ::cuda_async::kernel::Aligned::<#align, #ty>(#name))
            }
        }
    }

    /// A constant assertion of the size, for types that the macro does not know.
    fn size_check(&self, kernel: &Kernel) -> Option<TokenStream> {
        let (Argument { name, ty, passed: Passed::Other }, Some(param)) =
            (self.argument, self.param)
        else {
            return None;
        };
        let message = format!(
            "argument `{name}` of kernel `{}`: `{}` must have {} bytes, the size of the parameter in the PTX (`{}`)",
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

/// Generates a tuple of the parts, nested if there are more than `TUPLE`.
fn nested(parts: Vec<TokenStream>) -> TokenStream {
    if parts.len() <= TUPLE {
        return quote!((#(#parts,)*));
    }
    let groups =
        parts.chunks(TUPLE).map(|group| quote!(::cuda_async::kernel::Group((#(#group,)*))));
    quote!((#(#groups,)*))
}

/// Generates the type of the output: the only buffer, or a tuple. As in the library's `BufferTuple`, a tuple of
/// `BUFFERS` goes into the second place of a pair.
fn output_type(buffers: &[&Ident]) -> TokenStream {
    if let [one] = buffers {
        return quote!(#one);
    }
    let mut tuple = Vec::new();
    for buffer in buffers.iter().rev() {
        if tuple.len() == BUFFERS {
            tuple = vec![quote!((#(#tuple,)*))];
        }
        tuple.insert(0, quote!(#buffer));
    }
    quote!((#(#tuple,)*))
}
