//! Generates the method that launches a kernel.

use cuda_ptx::Param;
use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::{Token, Type, Visibility, ext::IdentExt, spanned::Spanned};

use super::{docs, type_parameters};
use crate::{
    check::{fit::Written, kernels::Found},
    parse::{
        argument::{Argument, Passed},
        declaration::{Declaration, Safety},
        launch::Geometry,
    },
    text::spaced,
};

/// The maximum number of arguments in one tuple. More arguments are grouped into nested tuples.
const TUPLE: usize = 16;

/// The maximum number of buffers in a flat tuple of an output.
const BUFFERS: usize = 32;

/// The parts of a launcher that one argument generates.
struct Part<'a> {
    argument: &'a Argument,
    index: usize,
    /// The matching parameter in the PTX, if the signature was found. For a generic kernel, the one of the first type.
    param: Option<&'a Param>,
    /// The type parameter, if the argument is a buffer.
    generic: Option<Ident>,
    /// The type that selects the entry of a generic kernel, as an implementor of its trait: `<T as VectorsAxpy>`.
    selected: Option<TokenStream>,
}

/// Generates the launcher of a kernel:
/// `pub unsafe fn vecadd<A: LazyArg<Ready: KernelInput<f32>>, ..>(&self, config: LaunchConfig, a: A, ..) -> ..`
pub(crate) fn launcher(declaration: &Declaration, found: &Found<'_>) -> TokenStream {
    let kernel = found.kernel;
    let selected = type_parameters::selected(declaration, kernel);
    let of_trait = type_parameters::trait_name(declaration, kernel);
    let first = found.signatures.first().copied().flatten();
    let parts: Vec<_> = kernel
        .arguments
        .iter()
        .zip(type_parameters::type_parameters(kernel, of_trait.as_ref()))
        .enumerate()
        .map(|(index, (argument, generic))| {
            let param = first.and_then(|signature| signature.params.get(index));
            Part { argument, index, param, generic, selected: selected.clone() }
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
    let of_caller = matches!(kernel.geometry, Geometry::Caller);
    let config_taken = of_caller.then(|| quote!(#config: ::cuda_async::LaunchConfig,));
    let bound = type_parameters::bound(declaration, kernel);
    let bounds = bound.into_iter().chain(parts.iter().filter_map(Part::bound));
    let generics: Vec<_> = parts.iter().filter_map(|part| part.generic.as_ref()).collect();
    let parameter = type_parameters::parameter(kernel);
    let captured = parameter.iter().copied().chain(generics.iter().copied());
    let taken = parts.iter().filter_map(Part::taken);
    let sizes = size_checks(found);
    let body = body(declaration, found, &parts, &config);
    let output = output_type(&generics, |lazy| quote!(<#lazy as ::cuda_async::op::LazyArg>::Ready));
    quote! {
        #(#attrs)*
        #doc
        #[allow(clippy::undocumented_unsafe_blocks, clippy::too_many_arguments, clippy::type_complexity)]
        #vis #declared fn #name<#(#bounds),*>(
            &self,
            #config_taken
            #(#taken),*
        ) -> impl ::cuda_async::DeviceOp<Output = #output> + use<#(#captured),*> {
            #(#sizes)*
            #body
        }
    }
}

/// Generates the operation: the buffers become ready, and the launch follows.
///
/// The launch is a function, not a closure. The type of a closure would contain the types of the arguments, which are
/// operations. The types of calls in calls, as in `k.scale(k.scale(x))`, would then grow exponentially.
fn body(
    declaration: &Declaration,
    found: &Found<'_>,
    parts: &[Part<'_>],
    config: &Ident,
) -> TokenStream {
    let kernel = found.kernel;
    let name = &kernel.name;
    let function = Ident::new("function", Span::mixed_site());
    // Names a local, too: the names of items are not hygienic, so an argument of this name would be shadowed.
    let launch_ready = Ident::new("launch_ready", Span::mixed_site());
    let selected = type_parameters::selected(declaration, kernel);
    let entry = selected.map(|selected| quote!([#selected::ENTRY]));
    let buffers: Vec<_> = parts
        .iter()
        .filter(|part| part.generic.is_some())
        .map(|part| &part.argument.name)
        .collect();
    let lazy: Vec<_> =
        buffers.iter().map(|buffer| quote!(::cuda_async::ops::Arg(#buffer))).collect();
    let lazy = tree(&lazy);
    let ready = tree(&buffers);
    let passed = nested(parts.iter().map(Part::passed).collect());
    let launch = |launcher: TokenStream, config: TokenStream| {
        let call = quote!(::cuda_async::kernel::#launcher(#function, #config, #passed));
        unsafe_block(&call, &kernel.safety, declaration.unsafe_token)
    };
    let launch = if kernel.has_checks() {
        let checks = checks(found, parts, config);
        let launch = launch(quote!(launch_unless_empty), quote!(#config));
        quote! {
            #checks
            ::core::result::Result::<_, ::cuda_async::Error>::Ok(#launch)
        }
    } else {
        launch(quote!(launch_given), quote!(#config))
    };
    // Without `#[dependent]`, neither the author nor the caller of a safe launcher has promised `griddepcontrol.wait`.
    let is_safe = matches!(kernel.safety, Safety::Safe(_));
    let of_caller = matches!(kernel.geometry, Geometry::Caller);
    let config_cleared = (is_safe && of_caller)
        .then(|| quote!(let #config = ::cuda_async::kernel::checks::not_dependent(#config);));
    let bound = type_parameters::bound(declaration, kernel);
    let bounds = bound.into_iter().chain(parts.iter().filter_map(Part::ready_bound));
    let generics: Vec<_> = parts.iter().filter_map(|part| part.generic.as_ref()).collect();
    let output = output_type(&generics, |buffer| quote!(#buffer));
    let forms = tree(&generics);
    let config_type = of_caller.then(|| quote!(::cuda_async::LaunchConfig,));
    let config = of_caller.then(|| quote!(#config,));
    let (values, types): (Vec<_>, Vec<_>) = parts.iter().filter_map(Part::value).unzip();
    quote! {
        let #launch_ready = {
            fn #launch_ready<#(#bounds),*>(
                #ready: #forms,
                (#function, #config #(#values,)*): (::cuda_async::Function, #config_type #(#types,)*),
            ) -> impl ::cuda_async::IntoDeviceOp<Output = #output> {
                #launch
            }
            #launch_ready
        };
        #config_cleared
        let #function = ::core::clone::Clone::clone(&self.#name #entry);
        ::cuda_async::DeviceOp::then(
            ::cuda_async::ops::ready_args(#lazy),
            ::cuda_async::ops::bind(#launch_ready, (#function, #config #(#values,)*)),
        )
    }
}

/// Generates the statements that compute derived values, check the conditions and bind `config` to an
/// `Option<LaunchConfig>`.
fn checks(found: &Found<'_>, parts: &[Part<'_>], config: &Ident) -> TokenStream {
    let name = found.kernel.name.unraw().to_string();
    let kernel = quote!(::cuda_async::kernel::checks::Kernel(#name));
    if !found.valid {
        let placeholders =
            parts.iter().filter(|part| part.argument.derived.is_some()).map(|part| {
                let Argument { name, ty, .. } = part.argument;
                quote!(let #name = <#ty as ::core::default::Default>::default();)
            });
        return quote!(#(#placeholders)* let #config = ::core::option::Option::None;);
    }
    let derived = parts.iter().filter_map(|part| part.derivation(&kernel));
    let conditions = found.kernel.conditions.iter().map(|condition| condition.tokens(&kernel));
    let geometry = found.kernel.geometry.tokens(&kernel);
    let geometry = geometry.unwrap_or_else(|| quote!(::core::option::Option::Some(#config)));
    let launch = &found.kernel.launch;
    // Kernels with a shape of elements or of a plane check their index, so the grid may grow to whole clusters.
    let rounds = matches!(found.kernel.geometry, Geometry::Elements(_) | Geometry::Plane(..));
    let attributes = launch.tokens(config, &kernel, rounds);
    let dependent = launch
        .dependent
        .then(|| quote!(let #config = ::cuda_async::kernel::checks::dependent(#config);));
    quote! {
        #(#derived)*
        #(#conditions)*
        let #config = #geometry;
        #attributes
        #dependent
    }
}

/// Generates constant assertions of the sizes, for types that the macro does not know.
fn size_checks(found: &Found<'_>) -> Vec<TokenStream> {
    let kernel = found.kernel;
    let mut checks = Vec::new();
    for (instance, signature) in kernel.instances().iter().zip(&found.signatures) {
        let Some(signature) = signature else { continue };
        for (argument, param) in instance.arguments.iter().zip(&signature.params) {
            let Argument { name, ty, passed: Passed::Other, .. } = argument else { continue };
            let message = format!(
                "argument `{name}` of kernel `{}`: `{}` must have {} bytes, the size of the parameter in the PTX (`{}`)",
                kernel.name,
                spaced(quote!(#ty)),
                param.size,
                Written(param),
            );
            let size = param.size as usize;
            checks.push(quote_spanned! {ty.span()=>
                const _: () = ::core::assert!(::core::mem::size_of::<#ty>() == #size, #message);
            });
        }
    }
    checks
}

/// The visibility as written, or `pub` if it was omitted.
fn visibility(written: &Visibility) -> TokenStream {
    match written {
        Visibility::Inherited => quote!(pub),
        written => quote!(#written),
    }
}

/// Generates the block that calls `launch`. In a safe method, the keyword has the span of the struct's `unsafe`, so
/// that a crate that forbids unsafe code cannot declare such a method.
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
    /// The bound of the type parameter: `A: LazyArg<Ready: KernelInput<f32>>`.
    // The opaque type of the output inherits the bound. The compiler checks it again, with another span, at each method
    // that is called on the output. So a wrong argument of a chain is reported at the argument and at each method. An
    // output type without bounds would have to be written out, which is impossible for closures.
    fn bound(&self) -> Option<TokenStream> {
        let (generic, form) = (self.generic.as_ref()?, self.form()?);
        Some(quote!(#generic: ::cuda_async::op::LazyArg<Ready: #form>))
    }

    /// The bound of the buffer that is ready: `A: KernelInput<f32>`.
    fn ready_bound(&self) -> Option<TokenStream> {
        let (generic, form) = (self.generic.as_ref()?, self.form()?);
        Some(quote!(#generic: #form))
    }

    /// The trait of the buffer: `KernelInput<f32>`.
    fn form(&self) -> Option<TokenStream> {
        let (form, element) = match &self.argument.passed {
            Passed::Input(element) => (quote!(KernelInput), element),
            Passed::Output(element) => (quote!(KernelOutput), element),
            _ => return None,
        };
        Some(quote!(::cuda_async::kernel::#form<#element>))
    }

    /// The name and the type of an argument that the caller passes by value.
    fn value(&self) -> Option<(&Ident, &Type)> {
        let Argument { name, ty, derived, .. } = self.argument;
        (self.generic.is_none() && derived.is_none()).then_some((name, ty))
    }

    /// The parameter of the method: `a: A`. `None` if the launcher computes the value.
    fn taken(&self) -> Option<TokenStream> {
        let Argument { name, ty, derived, .. } = self.argument;
        match (&self.generic, derived) {
            (_, Some(_)) => None,
            (Some(generic), None) => Some(quote!(#name: #generic)),
            (None, None) => Some(quote!(#name: #ty)),
        }
    }

    /// The statement that computes a derived value.
    fn derivation(&self, kernel: &TokenStream) -> Option<TokenStream> {
        let Argument { name, ty, derived, .. } = self.argument;
        let (text, side) = (name.unraw().to_string(), derived.as_ref()?.side());
        Some(quote!(let #name = #kernel.derived::<#ty>(#text, #side)?;))
    }

    /// The value that the launch takes: `Reads::new(a)` or `writes(a)`.
    fn passed(&self) -> TokenStream {
        let Argument { name, ty, passed, .. } = self.argument;
        let (value, of) = match passed {
            Passed::Input(_) => return quote!(::cuda_async::kernel::Reads::new(#name)),
            Passed::Output(_) => return quote!(::cuda_async::kernel::writes(#name)),
            Passed::Bool => (quote!(::core::primitive::u8::from(#name)), quote!(_)),
            Passed::Number(_) | Passed::Other => (quote!(#name), quote!(#ty)),
        };
        // The span of the type, so that "cannot be passed by value" points at it.
        if let Some(selected) = &self.selected {
            let index = self.index;
            return quote_spanned! {ty.span()=>
                ::cuda_async::kernel::aligned_at::<#of>(#value, #selected::ALIGNS[#index])
            };
        }
        // If the program compiles the source when it runs, only the alignment of the type is known here.
        let align = match (self.param, passed) {
            (Some(param), _) => (param.align as usize).to_token_stream(),
            (None, Passed::Bool) => quote!(1),
            (None, _) => quote!({ ::core::mem::align_of::<#ty>() }),
        };
        quote_spanned!(ty.span()=> ::cuda_async::kernel::aligned::<#align, #of>(#value))
    }
}

/// Generates a balanced tree of pairs, as the library's `LazyArgs` requires.
fn tree(parts: &[impl ToTokens]) -> TokenStream {
    match parts {
        [] => quote!(()),
        [one] => one.to_token_stream(),
        parts => {
            let (left, right) = parts.split_at(parts.len() / 2);
            let (left, right) = (tree(left), tree(right));
            quote!((#left, #right))
        }
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

/// Generates the type of the output: the only buffer, or a tuple. `ready` returns the type of one buffer. As in the
/// library's `BufferTuple`, a full tuple of `BUFFERS` becomes the last element of the tuple before it.
fn output_type(buffers: &[&Ident], ready: impl Fn(&Ident) -> TokenStream) -> TokenStream {
    if let [one] = buffers {
        return ready(one);
    }
    let mut tuple = Vec::new();
    for buffer in buffers.iter().rev() {
        if tuple.len() == BUFFERS {
            tuple = vec![quote!((#(#tuple,)*))];
        }
        tuple.insert(0, ready(buffer));
    }
    quote!((#(#tuple,)*))
}
