//! Procedural macros of `cuda-async`, which re-exports and documents them.
//!
//! Steps of [`kernels!`], each in a folder:
//! 1. `parse`: `declaration` parses the input. `quantity`, `condition` and `launch` parse the expressions that
//!    launchers compute.
//! 2. `check`: `code` reads the PTX or compiles the source. `kernels` compares declaration and PTX by the rules of
//!    `fit`, as `variables` does for variables.
//! 3. `generate`: the struct with the methods that return variables (`module`), the methods that launch (`launcher`),
//!    and the traits of generic kernels (`type_parameters`).
//!
//! Problems are collected and the struct is generated anyway, so that one mistake does not cause further errors in the
//! code that uses it.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod check;
mod generate;
mod param_derive;
mod parse;
mod problem;
mod text;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

use crate::{check::code::Code, parse::declaration::Declaration, problem::Problem};

/// Declares the kernels of a PTX file or a CUDA source, and checks the declarations against the PTX at compile time.
///
/// The documentation is at `cuda_async::kernels!`.
#[proc_macro]
pub fn kernels(input: TokenStream) -> TokenStream {
    let declaration = parse_macro_input!(input as Declaration);
    let (code, errors) = Code::read(&declaration);
    let mut problems: Vec<_> = errors.into_iter().map(Problem::of_all).collect();
    let contents = code.contents.as_ref();
    let checked = check::kernels::check(&declaration, contents);
    problems.extend(checked.problems);
    let variables = contents.map(|contents| contents.variables.as_slice());
    let variables = check::variables::check_variables(&declaration, variables, &mut problems);
    let mut expansion = generate::module::expand(&declaration, &code, &checked.kernels, &variables);
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
