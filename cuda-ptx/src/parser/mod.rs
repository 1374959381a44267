//! The recursive-descent parser. `module` parses the module scope and `body` the bodies of functions. `names` has the
//! names of a text and resolves them. Each other file parses one construct.

mod body;
mod directive;
mod expression;
mod header;
mod module;
mod names;
mod variable;

pub(crate) use directive::{file, location, skip_attribute, skip_section, space};
pub(crate) use header::{Header, Unknown, bare};
pub(crate) use module::{Preamble, parse_module};
pub(crate) use variable::{Dimensions, declared_type, initializer};
