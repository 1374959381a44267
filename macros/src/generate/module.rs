//! The generated struct and its own methods, also those that return variables.

use cuda_nvrtc::signature::{self, Declared};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{Visibility, ext::IdentExt, spanned::Spanned};

use super::{docs, launcher::launcher, type_parameters};
use crate::{
    check::{
        code::{Code, Cuda, Text},
        kernels::Found,
        variables::FoundVariable,
    },
    parse::{
        argument::Argument,
        attributes::conditions,
        declaration::{Declaration, Kernel, MODULE_FIELD, Variable},
        entries::Entries,
        files::image_tokens,
    },
    text,
};

/// Generates the struct and its methods. It does so without the contents of the code too, so that a declaration with
/// errors causes no further errors in the code that uses it.
pub(crate) fn expand(
    declaration: &Declaration,
    code: &Code,
    kernels: &[Found<'_>],
    variables: &[FoundVariable<'_>],
) -> TokenStream {
    let Declaration { attrs, vis, name, .. } = declaration;
    let doc = docs::of_struct(declaration).map(|doc| quote!(#[doc = #doc]));
    let device = Ident::new("device", Span::mixed_site());
    let constants = constants(declaration, code, kernels);
    let cache = match &code.text {
        Text::Ptx(_) => quote!(::cuda_async::kernel::ModuleCache::new(#name::PTX)),
        Text::Cuda(_) => quote!(::cuda_async::kernel::ModuleCache::of_source(#name::SOURCE)),
    };
    let loaded_by = format!("{}::loaded()", name.unraw());
    let images = image_tokens(&code.images, declaration.unsafe_token);
    let fields = kernels.iter().map(|found| field(found.kernel));
    let of_variables = (!variables.is_empty()).then(|| Ident::new(MODULE_FIELD, Span::call_site()));
    let of_variables: Vec<_> = of_variables.into_iter().collect();
    let module = Ident::new("module", Span::mixed_site());
    let devices = Ident::new("devices", Span::mixed_site());
    let modules = Ident::new("MODULES", Span::mixed_site());
    let initial = kernels.iter().map(|found| initial(found.kernel, &module));
    let launchers = kernels.iter().map(|found| launcher(declaration, found));
    let getters = variables.iter().map(getter);
    let traits = kernels.iter().filter_map(|found| type_parameters::type_trait(declaration, found));
    let conditions = conditions(attrs);
    quote! {
        #(#attrs)*
        #doc
        #[derive(::core::clone::Clone, ::core::fmt::Debug)]
        #vis struct #name {
            #(#fields,)*
            #(#[allow(dead_code)] #of_variables: ::cuda_async::Module,)*
        }

        #(#conditions)*
        impl #name {
            #constants

            /// Loads the module on `device` and looks up its kernels. Blocks while it is compiled, which can
            /// take 100 ms on a GPU.
            ///
            /// # Errors
            /// The errors of [`load_ptx`](::cuda_async::Device::load_ptx_blocking).
            pub fn load(#device: &::cuda_async::Device) -> ::cuda_async::Result<Self> {
                Self::of_module(&::cuda_async::kernel::ModuleCache::load(Self::modules(), #device)?)
            }

            /// Returns the kernels on `device`. The first call for a device loads them, as [`load`](Self::load) does.
            /// They stay loaded until the device is closed.
            ///
            /// # Errors
            /// The errors of [`load`](Self::load).
            pub fn for_device(#device: &::cuda_async::Device) -> ::cuda_async::Result<Self> {
                Self::of_module(&::cuda_async::kernel::ModuleCache::get(Self::modules(), #device)?)
            }

            /// Returns an operation that gives the kernels on its device. The first run on a device loads them on a
            /// thread of the device, so no executor thread waits. They stay loaded until the device is closed.
            ///
            /// # Errors
            /// The errors of [`load`](Self::load).
            pub fn loaded() -> impl ::cuda_async::DeviceOp<Output = Self> + use<> {
                ::cuda_async::DeviceOp::try_map(
                    ::cuda_async::kernel::ModuleCache::module(Self::modules()),
                    |#module| Self::of_module(&#module),
                )
            }

            /// Loads the kernels on each of the devices, all at the same time, and blocks until they are loaded on all.
            /// Later calls of [`for_device`](Self::for_device) and [`loaded`](Self::loaded) do not wait.
            ///
            /// # Errors
            /// The errors of [`load`](Self::load).
            pub fn warm_up(#devices: &[::cuda_async::Device]) -> ::cuda_async::Result<()> {
                ::cuda_async::kernel::ModuleCache::warm_up(Self::modules(), #devices)
            }

            #[allow(unused_variables)]
            fn of_module(#module: &::cuda_async::Module) -> ::cuda_async::Result<Self> {
                ::core::result::Result::Ok(Self {
                    #(#initial,)*
                    #(#of_variables: ::core::clone::Clone::clone(#module),)*
                })
            }

            fn modules() -> &'static ::cuda_async::kernel::ModuleCache {
                static #modules: ::cuda_async::kernel::ModuleCache = #cache.loaded_by(#loaded_by) #images;
                &#modules
            }

            #(#launchers)*

            #(#getters)*
        }

        #(#traits)*
    }
}

/// Generates the constant with the code: `PTX` or `SOURCE`.
fn constants(declaration: &Declaration, code: &Code, kernels: &[Found<'_>]) -> TokenStream {
    let cuda = match &code.text {
        Text::Ptx(text) => {
            let doc = format!("The PTX of `{}`.", declaration.code.path().value());
            return quote! {
                #[doc = #doc]
                pub const PTX: &'static ::core::primitive::str = #text;
            };
        }
        Text::Cuda(cuda) => cuda,
    };
    let Cuda { name, text, headers, flags, ptx } = cuda;
    let doc = format!("The CUDA source `{}`.", declaration.code.path().value());
    // With PTX at build time, the macro has checked the declaration. Otherwise the program checks it when it compiles.
    let expected = ptx.is_none().then(|| kernels.iter().map(|found| expected(found.kernel)));
    let expected = expected.into_iter().flatten();
    let ptx = match ptx {
        Some(ptx) => quote!(::core::option::Option::Some(#ptx)),
        None => quote!(::core::option::Option::None),
    };
    // Another compiler may be found when one of these changes.
    let variables = cuda_nvrtc::VARIABLES;
    quote! {
        #[doc = #doc]
        pub const SOURCE: ::cuda_async::kernel::CudaSource = {
            #(const _: ::core::option::Option<&::core::primitive::str> = ::core::option_env!(#variables);)*
            ::cuda_async::kernel::CudaSource::new(#name, #text)
                .headers(&[#(#headers),*])
                .flags(&[#(#flags),*])
                .declared(#ptx, &[#(#expected),*])
        };
    }
}

/// Generates the entries of a kernel with the types of their arguments, for the check after the program has compiled
/// them.
fn expected(kernel: &Kernel) -> TokenStream {
    let conditions: Vec<_> = conditions(&kernel.attrs).collect();
    let instances = kernel.instances();
    let instances = instances.iter().map(|instance| {
        let entry = &instance.entry;
        let arguments = instance.arguments.iter().map(|argument| {
            let shown = text::spaced(quote!(#argument));
            let declared = declared(argument);
            quote!((#shown, #declared))
        });
        quote! {
            #(#conditions)*
            ::cuda_async::kernel::declared::Kernel { entry: #entry, arguments: &[#(#arguments),*] }
        }
    });
    quote!(#(#instances),*)
}

/// Generates a `Declared`.
fn declared(argument: &Argument) -> TokenStream {
    let module = quote!(::cuda_async::kernel::declared);
    let number = |number: signature::Scalar| {
        let (kind, size) =
            (Ident::new(&format!("{:?}", number.kind), Span::call_site()), number.size);
        quote!(#module::Scalar { kind: #module::NumberKind::#kind, size: #size })
    };
    match argument.passed.declared() {
        Declared::Buffer { element, written } => {
            let element = match element.map(number) {
                Some(element) => quote!(::core::option::Option::Some(#element)),
                None => quote!(::core::option::Option::None),
            };
            quote!(#module::Declared::Buffer { element: #element, written: #written })
        }
        Declared::Scalar(scalar) => {
            let number = number(scalar);
            quote!(#module::Declared::Scalar(#number))
        }
        Declared::Value(_) => {
            let ty = &argument.ty;
            quote!(#module::Declared::Value(#module::size_of_value::<#ty>()))
        }
    }
}

/// The field of a kernel. A generic kernel has an array, with one function for each type.
fn field(kernel: &Kernel) -> TokenStream {
    let (name, conditions) = (&kernel.name, conditions(&kernel.attrs));
    let ty = match &kernel.entries {
        Entries::One(_) => quote!(::cuda_async::Function),
        Entries::PerType(types) => {
            let count = types.types.len();
            quote!([::cuda_async::Function; #count])
        }
    };
    quote!(#(#conditions)* #[allow(dead_code)] #name: #ty)
}

/// The initializer of a field: `vecadd: module.function("vecadd")?`.
fn initial(kernel: &Kernel, module: &Ident) -> TokenStream {
    let (name, conditions) = (&kernel.name, conditions(&kernel.attrs));
    let functions = kernel.instances().into_iter().map(|instance| {
        let entry = instance.entry;
        quote!(::cuda_async::Module::function(#module, #entry)?)
    });
    let functions = match &kernel.entries {
        Entries::One(_) => quote!(#(#functions)*),
        Entries::PerType(_) => quote!([#(#functions),*]),
    };
    quote!(#(#conditions)* #name: #functions)
}

/// Generates the method that returns the variable, with assertions of its size and alignment.
fn getter(found: &FoundVariable<'_>) -> TokenStream {
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
