//! The generated struct and its own methods.

use cuda_ptx::Signature;
use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;

use crate::{
    declaration::{Declaration, Kernel, conditions},
    docs,
    launcher::launcher,
    ptx_file::PtxFile,
};

/// Generates the struct and its methods. It does so without a `file` or a signature too, so that a declaration with
/// errors causes no further errors in the code that uses it.
pub(crate) fn expand(
    declaration: &Declaration,
    file: Option<&PtxFile>,
    kernels: &[(&Kernel, Option<&Signature>)],
) -> TokenStream {
    let Declaration { attrs, vis, name, unsafe_token, .. } = declaration;
    let doc = docs::of_struct(declaration).map(|doc| quote!(#[doc = #doc]));
    let text = file.map_or_else(|| quote!(""), |file| file.text.clone());
    let ptx_doc = format!("The PTX of `{}`.", declaration.ptx.value());
    let fields = kernels.iter().map(|(kernel, _)| {
        let (name, conditions) = (&kernel.name, conditions(&kernel.attrs));
        quote!(#(#conditions)* #[allow(dead_code)] #name: ::cuda_async::Function)
    });
    let module = Ident::new("module", Span::mixed_site());
    let device = Ident::new("device", Span::mixed_site());
    let modules = Ident::new("MODULES", Span::mixed_site());
    let found = kernels.iter().map(|(kernel, _)| field(kernel, &module));
    let launchers =
        kernels.iter().map(|(kernel, signature)| launcher(kernel, *signature, *unsafe_token));
    let conditions = conditions(attrs);
    quote! {
        #(#attrs)*
        #doc
        #[derive(::core::clone::Clone, ::core::fmt::Debug)]
        #vis struct #name {
            #(#fields,)*
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
                ::core::result::Result::Ok(Self { #(#found,)* })
            }

            fn modules() -> &'static ::cuda_async::kernel::ModuleCache {
                static #modules: ::cuda_async::kernel::ModuleCache =
                    ::cuda_async::kernel::ModuleCache::new(#name::PTX);
                &#modules
            }

            #(#launchers)*
        }
    }
}

/// The initializer of a field: `vecadd: module.function("vecadd")?`.
fn field(kernel: &Kernel, module: &Ident) -> TokenStream {
    let (name, entry, conditions) = (&kernel.name, kernel.entry_name(), conditions(&kernel.attrs));
    quote!(#(#conditions)* #name: ::cuda_async::Module::function(#module, #entry)?)
}
