//! Checks the arguments against the kernel's parameters, before any file is read.

use command_line::{Failure, parameter};
use cuda_core::{ArgumentKind, EntryInfo};

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
        parameter::has_size(param, size)
            .and_then(|()| parameter::has_kind(param, kind))
            .map_err(|wrong| wrong.at(format_args!("argument {index} `{}`", arg.text)))?;
    }
    Ok(())
}
