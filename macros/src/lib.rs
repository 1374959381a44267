//! Procedural macros of `cuda-async`, which re-exports and documents them.
//!
//! Steps of [`kernels!`]: `declaration` parses the input, `code` reads the PTX or compiles the source, and `check` compares the
//! two by the rules of `fit`, as `check_variables` does for variables. Then `expand`, `launcher`, `getter` and `type_trait` generate
//! the struct, its methods and the traits of generic kernels. `quantity`, `condition` and `geometry` parse the expressions
//! that launchers compute. Problems are collected and the struct is generated anyway, so that one mistake does not cause
//! further errors in the code that uses it.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod argument;
mod attributes;
mod check;
mod check_variables;
mod code;
mod code_path;
mod condition;
mod contents;
mod declaration;
mod docs;
mod entries;
mod expand;
mod fit;
mod geometry;
mod getter;
mod images;
mod launch_attributes;
mod launcher;
mod names;
mod param_derive;
mod place;
mod problem;
mod quantity;
mod reserved;
mod text;
mod type_trait;
mod variable;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

use crate::{code::Code, declaration::Declaration, problem::Problem};

/// Declares the kernels of a PTX file or a CUDA source, and checks the declarations against the PTX at compile time.
///
/// The documentation is at `cuda_async::kernels!`.
#[proc_macro]
pub fn kernels(input: TokenStream) -> TokenStream {
    let declaration = parse_macro_input!(input as Declaration);
    let (code, errors) = Code::read(&declaration);
    let mut problems: Vec<_> = errors.into_iter().map(Problem::of_all).collect();
    let contents = code.contents.as_ref();
    let checked = check::check(&declaration, contents);
    problems.extend(checked.problems);
    let variables = contents.map(|contents| contents.variables.as_slice());
    let variables = check_variables::check_variables(&declaration, variables, &mut problems);
    let mut expansion = expand::expand(&declaration, &code, &checked.kernels, &variables);
    expansion.extend(problems.iter().map(|problem| problem.compile_error(&declaration.attrs)));
    expansion.into()
}

/// Derives `KernelParam` for a `#[repr(C)]` struct.
///
/// The documentation is at `cuda_async::kernel::KernelParam`.
#[proc_macro_derive(KernelParam)]
pub fn kernel_param(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    param_derive::derive(&input).unwrap_or_else(|error| error.to_compile_error()).into()
}
