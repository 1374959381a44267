//! Compares arguments with the parameters of a kernel.

use cuda_core::{ArgumentKind, ParamInfo};

use crate::failure::Failure;

/// Compares the kind of an argument with that of its parameter.
///
/// # Errors
/// A failure of bad input with both.
pub fn has_kind(param: &ParamInfo, kind: ArgumentKind) -> Result<(), Failure> {
    if kind.fits(param.ty) {
        return Ok(());
    }
    let given = if kind == ArgumentKind::Float { "a float" } else { "an integer" };
    let (name, ty) = (&param.name, &param.ty);
    Err(Failure::bad_input(format_args!("is {given}, parameter `{name}` takes {ty}")))
}

/// Compares the size of an argument with that of its parameter.
///
/// # Errors
/// A failure of bad input with both.
pub fn has_size(param: &ParamInfo, size: usize) -> Result<(), Failure> {
    if size == param.size as usize {
        return Ok(());
    }
    Err(Failure::bad_input(format_args!(
        "has {size} bytes, parameter `{}` takes {} ({})",
        param.name, param.size, param.ty
    )))
}
