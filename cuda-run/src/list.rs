//! `--list`: prints the kernels of a module.

use std::fmt::Write;

use command_line::{Failure, stdout};
use cuda_async::Module;
use cuda_core::{ParamInfo, protocol::entries};

/// Prints every kernel with its parameters.
pub(crate) fn print(module: &Module) -> Result<(), Failure> {
    let kernels = module.entries().iter().map(|entry| kernel(&entry.name, &entry.params));
    stdout::print(&kernels.collect::<String>())
}

/// Prints every kernel of a PTX text that the device cannot load. Prints nothing if the text cannot be parsed.
pub(crate) fn print_text(ptx: &str) -> Result<(), Failure> {
    let found = entries(ptx).unwrap_or_default();
    let kernels = found.iter().map(|found| kernel(&found.name, &found.params));
    stdout::print(&kernels.collect::<String>())
}

/// Formats a kernel: a line for the name, and one for each parameter.
fn kernel(name: &str, params: &[ParamInfo]) -> String {
    let mut text = format!("{name}\n");
    for (index, param) in params.iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "    {index} {} {} bytes {}", param.ty, param.size, param.name);
    }
    text
}
