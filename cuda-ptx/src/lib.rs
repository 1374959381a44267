//! Parses PTX text to a module whose names are resolved. [`Checker`] compares its instructions with the table of PTX.
//!
//! [`parse`] reads the whole text. [`signatures`] and [`module_signature`] read only the kernels, their parameters and
//! the sizes of variables. These functions never panic. Errors name the line and the column.
//!
//! # Memory
//! Memory use is proportional to the length of the text. While a text is read, each of its tokens takes 32 bytes. A
//! token can be one byte long, so the tokens of a hostile text of 64 MiB take 2 GiB, and those of one with
//! [`MAX_SOURCE_BYTES`](limits::MAX_SOURCE_BYTES) take 4 GiB. In the output of compilers a token has about four bytes,
//! with the white space around it, so its tokens take about eight times the length of the text. A process that reads
//! untrusted texts should limit their length.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod ast;
mod check;
mod effects;
mod error;
mod lexer;
pub mod limits;
mod parser;
mod signature;
mod special;
pub mod table;
mod words;

pub use ast::*;
pub use check::{Checked, Checker, Mismatch, Role};
pub use error::{Error, ErrorKind};
pub use signature::{ModuleSignature, Signature, VariableSignature, module_signature, signatures};
pub use special::{Special, SpecialName};
pub use words::{Modifier, Opcode, ParamType, ScalarKind, ScalarType, Space, Word};

/// Parses a PTX text. NUL bytes at the end are ignored.
///
/// All names are resolved: registers, labels, variables, parameters and functions are indices in the result.
/// Instructions are not compared with the table, so unknown ones are accepted: see [`Checker`].
///
/// # Errors
/// If the text is not PTX, a name is undefined or declared twice, or one of the [`limits`] is
/// exceeded.
///
/// # Examples
/// ```
/// let text = "
///     .version 8.0
///     .target sm_80
///     .address_size 64
///     .visible .entry twice(.param .u64 p) {
///         .reg .b64 %rd<2>;
///         .reg .f32 %f<2>;
///         ld.param.u64 %rd1, [p];
///         ld.global.f32 %f1, [%rd1];
///         add.f32 %f1, %f1, %f1;
///         st.global.f32 [%rd1], %f1;
///         ret;
///     }";
/// let module = cuda_ptx::parse(text)?;
/// let kernel = module.entry("twice").unwrap();
/// assert_eq!(kernel.params[0].size, 8);
/// let body = kernel.body.as_ref().unwrap();
/// assert_eq!(body.instructions[1].name().to_string(), "ld.global.f32");
///
/// let error = cuda_ptx::parse(&text.replace("add.f32", "add.f32 %f9,")).unwrap_err();
/// assert_eq!(error.line, 10);
/// # Ok::<(), cuda_ptx::Error>(())
/// ```
pub fn parse(text: &str) -> Result<Module, Error> {
    parser::parse_module(text)
}
