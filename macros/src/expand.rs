//! The generated struct and its own methods.

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;

use crate::{
    attributes::conditions,
    check::Found,
    check_variables::FoundVariable,
    declaration::{Declaration, Kernel},
    docs,
    entries::Entries,
    getter::getter,
    launcher::launcher,
    ptx_file::PtxFile,
    reserved::MODULE_FIELD,
    type_trait,
};

/// Generates the struct and its methods. It does so without a `file` or a signature too, so that a declaration with
/// errors causes no further errors in the code that uses it.
pub(crate) fn expand(
    declaration: &Declaration,
    file: Option<&PtxFile>,
    kernels: &[Found<'_>],
    variables: &[FoundVariable<'_>],
) -> TokenStream {
    let Declaration { attrs, vis, name, .. } = declaration;
    let doc = docs::of_struct(declaration).map(|doc| quote!(#[doc = #doc]));
    let text = file.map_or_else(|| quote!(""), |file| file.text.clone());
    let ptx_doc = format!("The PTX of `{}`.", declaration.ptx.value());
    let fields = kernels.iter().map(|found| field(found.kernel));
    let of_variables = (!variables.is_empty()).then(|| Ident::new(MODULE_FIELD, Span::call_site()));
    let of_variables: Vec<_> = of_variables.into_iter().collect();
    let module = Ident::new("module", Span::mixed_site());
    let device = Ident::new("device", Span::mixed_site());
    let modules = Ident::new("MODULES", Span::mixed_site());
    let initial = kernels.iter().map(|found| initial(found.kernel, &module));
    let launchers = kernels.iter().map(|found| launcher(declaration, found));
    let getters = variables.iter().map(getter);
    let traits = kernels.iter().filter_map(|found| type_trait::declared(declaration, found));
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
            #[doc = #ptx_doc]
            pub const PTX: &'static ::core::primitive::str = #text;

            /// Loads the PTX on `device` and looks up its kernels. Blocks while the device compiles the PTX, which
            /// can take 100 ms on a GPU.
            ///
            /// # Errors
            /// The errors of [`load_ptx`](::cuda_async::Device::load_ptx).
            pub fn load(#device: &::cuda_async::Device) -> ::cuda_async::Result<Self> {
                Self::of_module(&::cuda_async::Device::load_ptx(#device, Self::PTX)?)
            }

            /// Returns the kernels on `device`. The first call for a device loads them, as [`load`](Self::load) does. They
            /// stay loaded until the device is closed.
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

            #[allow(unused_variables)]
            fn of_module(#module: &::cuda_async::Module) -> ::cuda_async::Result<Self> {
                ::core::result::Result::Ok(Self {
                    #(#initial,)*
                    #(#of_variables: ::core::clone::Clone::clone(#module),)*
                })
            }

            fn modules() -> &'static ::cuda_async::kernel::ModuleCache {
                static #modules: ::cuda_async::kernel::ModuleCache =
                    ::cuda_async::kernel::ModuleCache::new(#name::PTX);
                &#modules
            }

            #(#launchers)*

            #(#getters)*
        }

        #(#traits)*
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
