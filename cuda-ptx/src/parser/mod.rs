//! The recursive-descent parser. `module` parses the module scope and `body` the bodies of functions. Each other file parses
//! one construct.

mod alias;
mod body;
mod debug;
mod declared;
mod directive;
mod expression;
mod globals;
mod header;
mod initializer;
mod instruction;
mod labels;
mod mask;
mod module;
mod operand;
mod params;
mod preamble;
mod storage;
mod variable;

pub(crate) use debug::{file, location, skip_section};
pub(crate) use header::{Header, Unknown};
pub(crate) use module::parse_module;
pub(crate) use params::bare;
pub(crate) use preamble::Preamble;
pub(crate) use storage::{DefinedVariable, body as body_storage, declaration, storage_space};
