//! An error about a declaration that could be read.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Attribute, Error};

use crate::declaration::{Kernel, conditions};

/// An error, and the kernel that it is about: where a `#[cfg]` removes that, there is none.
pub(crate) struct Problem<'a> {
    pub(crate) error: Error,
    attrs: &'a [Attribute],
}

impl<'a> Problem<'a> {
    /// About everything.
    pub(crate) const fn of_all(error: Error) -> Self {
        Self { error, attrs: &[] }
    }

    /// About one kernel.
    pub(crate) const fn of(kernel: &'a Kernel, error: Error) -> Self {
        Self { error, attrs: kernel.attrs.as_slice() }
    }

    /// As a compile error, under the conditions of the struct and the kernel.
    pub(crate) fn told(&self, of_struct: &[Attribute]) -> TokenStream {
        let error = self.error.to_compile_error();
        let conditions = conditions(of_struct).chain(conditions(self.attrs));
        quote!(#(#conditions)* #error)
    }
}
