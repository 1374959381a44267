//! Generates the code of a declaration that was checked. [`module::expand`] begins.

pub(crate) mod docs;
pub(crate) mod launcher;
pub(crate) mod module;
pub(crate) mod type_parameters;
