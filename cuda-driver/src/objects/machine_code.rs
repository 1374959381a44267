//! Machine code: loads a cubin or a fatbin, and asks the driver for its kernels.

use cuda_core::protocol::{EntryInfo, Error, Feature, ParamInfo, ParamType, Result};
use cuda_ptx::ScalarType;

use crate::{
    context::{Bound, Primary},
    driver::{
        api::{FunctionHandle, ModuleHandle},
        status::{self, Failed},
    },
};

/// Loads a cubin or a fatbin. The image is complete, as the caller of `Device::load_cubin` promises.
pub(super) fn load_machine_code(
    primary: &Primary,
    image: &[u8],
    _: &Bound,
) -> Result<ModuleHandle> {
    let mut raw = ModuleHandle::NULL;
    let none = std::ptr::null_mut();
    // SAFETY: the image is complete; there are no options; writes one handle.
    unsafe { primary.api.module_load(&mut raw, image.as_ptr().cast(), 0, none, none.cast()) }
        .map_err(|failed| refused(primary, failed))?;
    Ok(raw)
}

#[cold]
fn refused(primary: &Primary, failed: Failed) -> Error {
    let (major, minor) = primary.info.compute_capability;
    let log = match failed.code {
        status::NO_BINARY_FOR_GPU => format!(
            "the image has no code for this GPU (sm_{major}{minor}); compile its kernels with `-arch=sm_{major}{minor}`"
        ),
        status::INVALID_IMAGE | status::INVALID_SOURCE => {
            "the driver cannot read the image; make it with a toolkit that is no newer than the driver".into()
        }
        _ => return primary.error(failed),
    };
    Error::LoadFailed { log }
}

/// Returns the kernels of a module, with the offsets and sizes of their parameters.
///
/// # Errors
/// [`Error::Unsupported`] if the driver is older than CUDA 12.4.
pub(super) fn kernels_of(
    primary: &Primary,
    module: ModuleHandle,
    bound: &Bound,
) -> Result<Vec<(FunctionHandle, EntryInfo)>> {
    let failed = |failed| primary.error(failed);
    let too_old = || Error::unsupported(Feature::MachineCode, &primary.info.address);
    // SAFETY: the module is loaded.
    let functions = unsafe { primary.api.functions(module) }.map_err(failed)?;
    let describe = |raw: FunctionHandle| {
        // SAFETY: the kernel is one of the module's.
        let name = unsafe { primary.api.function_name(raw) }.map_err(failed)?;
        let (params, variables) = (params_of(primary, raw, bound)?, [].into());
        let name = name.ok_or_else(too_old)?;
        Ok((raw, EntryInfo { name, params, variables, max_threads: 0 }))
    };
    functions.ok_or_else(too_old)?.into_iter().map(describe).collect()
}

fn params_of(primary: &Primary, function: FunctionHandle, _: &Bound) -> Result<Vec<ParamInfo>> {
    let mut params = Vec::new();
    loop {
        let index = params.len();
        // SAFETY: the module of the kernel is loaded.
        let info = unsafe { primary.api.param_info(function, index) };
        let Some((offset, size)) = info.map_err(|failed| primary.error(failed))? else {
            return Ok(params);
        };
        let (Ok(offset), Ok(size)) = (u32::try_from(offset), u32::try_from(size)) else {
            let log = format!(
                "the driver states {size} bytes at byte {offset} for parameter {index} of a kernel"
            );
            return Err(Error::LoadFailed { log });
        };
        let ty = ParamType::Array { element: ScalarType::B8, count: size };
        params.push(ParamInfo { name: format!("p{index}"), ty, offset, size, align: 1 });
    }
}
