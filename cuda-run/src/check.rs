//! Checks the arguments against the kernel's parameters, before any file is read.

use command_line::Failure;
use cuda_core::{ArgumentKind, EntryInfo, ParamInfo};

use crate::arg::{Arg, Value};

/// The size of a device address in bytes.
const ADDRESS: usize = 8;

/// Compares the number, sizes and kinds of the arguments with the parameters. The length of a `bytes=` file is compared
/// when the file is read.
pub(crate) fn check(kernel: &EntryInfo, args: &[Arg]) -> Result<(), Failure> {
    let (takes, given) = (kernel.params.len(), args.len());
    if takes != given {
        let params: Vec<_> = kernel.params.iter().map(|param| param.ty.to_string()).collect();
        return Err(Failure::bad_input(format_args!(
            "kernel `{}` takes {takes} arguments ({}), the command line has {given}",
            kernel.name,
            params.join(", "),
        )));
    }
    for (index, (param, arg)) in kernel.params.iter().zip(args).enumerate() {
        let size = match &arg.value {
            Value::Scalar(bytes) => bytes.len(),
            Value::In(_) | Value::Out(..) | Value::Uninit(..) | Value::InOut(..) => ADDRESS,
            Value::Bytes(_) => continue,
        };
        let kind = if arg.is_float() { ArgumentKind::Float } else { ArgumentKind::Integer };
        fits(param, size)
            .and_then(|()| is_kind(param, kind))
            .map_err(|wrong| wrong.at(format_args!("argument {index} `{}`", arg.text)))?;
    }
    Ok(())
}

/// Compares the kind of one argument.
fn is_kind(param: &ParamInfo, kind: ArgumentKind) -> Result<(), Failure> {
    if kind.fits(param.ty) {
        return Ok(());
    }
    let given = if kind == ArgumentKind::Float { "a float" } else { "an integer" };
    let (name, ty) = (&param.name, &param.ty);
    Err(Failure::bad_input(format_args!("is {given}, parameter `{name}` takes {ty}")))
}

/// Compares the size of one argument.
pub(crate) fn fits(param: &ParamInfo, size: usize) -> Result<(), Failure> {
    if size == param.size as usize {
        return Ok(());
    }
    Err(Failure::bad_input(format_args!(
        "has {size} bytes, parameter `{}` takes {} ({})",
        param.name, param.size, param.ty
    )))
}
