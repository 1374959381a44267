//! An error in a declaration that was parsed successfully.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Attribute, Error};

use crate::parse::attributes::conditions;

/// An error and the attributes of its kernel or variable. If a `#[cfg]` removes the item, the error is removed too.
pub(crate) struct Problem<'a> {
    pub(crate) error: Error,
    attrs: &'a [Attribute],
}

impl<'a> Problem<'a> {
    /// An error about the whole declaration.
    pub(crate) const fn of_all(error: Error) -> Self {
        Self { error, attrs: &[] }
    }

    /// An error about one kernel or variable, with its attributes.
    pub(crate) const fn of(attrs: &'a [Attribute], error: Error) -> Self {
        Self { error, attrs }
    }

    /// Generates a `compile_error!` under the `#[cfg]` conditions of the struct and the item.
    pub(crate) fn compile_error(&self, of_struct: &[Attribute]) -> TokenStream {
        let error = self.error.to_compile_error();
        let conditions = conditions(of_struct).chain(conditions(self.attrs));
        quote!(#(#conditions)* #error)
    }
}
