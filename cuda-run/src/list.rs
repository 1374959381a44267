//! `--list`: what there is in a module.

use std::fmt::Write;

use cuda_async::Module;
use cuda_core::EntryInfo;

use crate::{failure::Failure, stdout};

/// Prints every kernel with its parameters.
pub(crate) fn print(module: &Module) -> Result<(), Failure> {
    stdout::print(&module.entries().iter().map(kernel).collect::<String>())
}

/// A line for the kernel, and one for each parameter.
fn kernel(kernel: &EntryInfo) -> String {
    let mut text = format!("{}\n", kernel.name);
    for (index, param) in kernel.params.iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "    {index} {} {} bytes {}", param.ty, param.size, param.name);
    }
    text
}
