//! The input of `kernels!`: [`declaration::Declaration`] and its parts.
//!
//! Of files it reads only the machine code that an attribute names. `check` compares its data with the PTX, and
//! `generate` makes code of it.

pub(crate) mod argument;
pub(crate) mod attributes;
pub(crate) mod condition;
pub(crate) mod declaration;
pub(crate) mod entries;
pub(crate) mod files;
pub(crate) mod launch;
pub(crate) mod quantity;
