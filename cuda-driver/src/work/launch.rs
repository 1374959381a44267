//! Launching kernels: the hot path. It takes no lock and patches parameters on the stack.

use std::{ffi::c_void, sync::atomic::Ordering};

use cuda_core::protocol::{Error, Launch, LaunchConfig, Relocation, Result};

use super::{
    attributes,
    place::{Names, Place},
};
use crate::{
    context::{Bound, Primary},
    driver::{
        api::{LAUNCH_PARAM, function_attribute},
        library::Limits,
        status::{INVALID_VALUE, LAUNCH_OUT_OF_RESOURCES},
    },
    objects::{DriverFunction, Memory},
};

/// Parameters of up to this many words of eight bytes stay on the stack.
const INLINE_WORDS: usize = 16;

/// Launches a kernel. `Function::launch` has checked the limits that every backend has, and the driver checks the rest
/// of the shape: another check here would cost time in every launch. If the driver refuses the launch, [`misfit`] finds
/// the number that is too large.
///
/// # Safety
/// No thread unloads the kernel's module or retires the stream before this returns. The kernel stays inside the memory
/// of its relocations.
#[inline]
pub(super) unsafe fn launch(place: Place<'_>, launch: &Launch<'_>, _: &Bound) -> Result<()> {
    // SAFETY: no thread unloads the kernel's module before this returns.
    let function = unsafe { function(place.names, launch) }?;
    let words = launch.params.len().div_ceil(8);
    let (mut inline, mut spilled);
    let params: &mut [u64] = if words <= INLINE_WORDS {
        inline = [0; INLINE_WORDS];
        &mut inline[..words]
    } else {
        spilled = vec![0; words];
        &mut spilled
    };
    write_params(params, launch, place.names.memory, function)?;
    let mut size = function.param_bytes as usize;
    let size_at = (&raw mut size).cast::<c_void>();
    let [end, pointer, length] = LAUNCH_PARAM;
    let mut extra = [pointer, params.as_mut_ptr().cast(), length, size_at, end];
    let extra = if size == 0 { std::ptr::null_mut() } else { extra.as_mut_ptr() };
    if !launch.config.attributes.is_none() {
        // SAFETY: the module stays loaded and the stream alive (rules 3 and 4), and `extra` has the parameters of the
        // kernel.
        return unsafe { attributes::launch(place, &launch.config, function, extra) };
    }
    let LaunchConfig { grid: [gx, gy, gz], block: [bx, by, bz], shared_bytes, .. } = launch.config;
    // SAFETY: the module stays loaded and the stream alive (rules 3 and 4). The parameters have the size that the
    // kernel's PTX declares, and the driver copies them before it returns.
    let launched = unsafe {
        place.names.primary.api.launch(
            function.raw,
            gx,
            gy,
            gz,
            bx,
            by,
            bz,
            shared_bytes,
            place.stream.raw,
            std::ptr::null_mut(),
            extra,
        )
    };
    launched.map_err(|failed| {
        let shape = matches!(failed.code, INVALID_VALUE | LAUNCH_OUT_OF_RESOURCES);
        let misfit = shape.then(|| misfit(&launch.config, &place.names.primary.limits, function));
        misfit.flatten().unwrap_or_else(|| place.names.primary.error(failed))
    })
}

/// The kernel of a launch, which has parameters of that size and may use that much dynamic shared memory.
///
/// # Safety
/// No thread unloads the kernel's module while the result is used.
#[inline]
pub(super) unsafe fn function<'a>(
    names: Names<'a>,
    launch: &Launch<'_>,
) -> Result<&'a DriverFunction> {
    // SAFETY: no thread unloads the kernel's module while the result is used.
    let function = unsafe { names.modules.find(launch.function) }?;
    if launch.params.len() != function.param_bytes as usize {
        return Err(wrong_size(function, launch.params.len()));
    }
    if launch.config.shared_bytes > function.dynamic_shared.load(Ordering::Relaxed) {
        allow_dynamic_shared(names.primary, function, &launch.config)?;
    }
    if !launch.config.attributes.is_none() {
        attributes::allow_clusters(names.primary, function, &launch.config)?;
    }
    Ok(function)
}

/// Writes the parameter block, with the addresses of the relocations. `words` have space for it.
#[inline]
pub(super) fn write_params(
    words: &mut [u64],
    launch: &Launch<'_>,
    memory: &Memory,
    function: &DriverFunction,
) -> Result<()> {
    let bytes = bytemuck::cast_slice_mut::<u64, u8>(words);
    bytes[..launch.params.len()].copy_from_slice(&launch.params);
    patch(bytes, &launch.relocations, memory, function)
}

/// Writes the addresses of the relocations into the parameters.
#[inline]
fn patch(
    params: &mut [u8],
    relocations: &[Relocation],
    memory: &Memory,
    function: &DriverFunction,
) -> Result<()> {
    for relocation in relocations {
        let address = memory.locate(relocation.region, relocation.bytes)?;
        let at = relocation.at as usize;
        let Some(place) = params.get_mut(at..at.saturating_add(8)) else {
            return Err(outside_parameters(function, at));
        };
        place.copy_from_slice(&address.to_ne_bytes());
    }
    Ok(())
}

/// Allows the kernel the most dynamic shared memory that the device has. Always sets the maximum, so that two threads
/// cannot overwrite each other's value with a smaller one.
#[cold]
pub(super) fn allow_dynamic_shared(
    primary: &Primary,
    function: &DriverFunction,
    config: &LaunchConfig,
) -> Result<()> {
    let most = most_shared(&primary.limits, function);
    if config.shared_bytes > most {
        return misfit(config, &primary.limits, function).map_or(Ok(()), Err);
    }
    let attribute = function_attribute::MAX_DYNAMIC_SHARED;
    let _bound = primary.bind()?;
    // SAFETY: the function's module is loaded, and the context is bound.
    unsafe { primary.api.function_set(function.raw, attribute, most as i32) }
        .map_err(|failed| primary.error(failed))?;
    function.dynamic_shared.store(most, Ordering::Relaxed);
    Ok(())
}

pub(super) fn most_shared(limits: &Limits, function: &DriverFunction) -> u32 {
    limits.shared.saturating_sub(function.static_shared)
}

/// Checks a launch shape before the driver sees it.
#[inline]
pub(super) fn check_fit(
    names: Names<'_>,
    config: &LaunchConfig,
    function: &DriverFunction,
) -> Result<()> {
    let limits = &names.primary.limits;
    let fit = |sizes: [u32; 3], most: [u32; 3]| {
        sizes.into_iter().zip(most).all(|(size, most)| (1..=most).contains(&size))
    };
    let fits = fit(config.grid, limits.grid)
        && fit(config.block, limits.block)
        && config.threads_per_block() <= function.max_threads.into();
    if fits { Ok(()) } else { misfit(config, limits, function).map_or(Ok(()), Err) }
}

/// The error for a launch shape that the device cannot run, if there is a number that exceeds its limit.
#[cold]
pub(super) fn misfit(
    config: &LaunchConfig,
    limits: &Limits,
    function: &DriverFunction,
) -> Option<Error> {
    let names = ["grid x", "grid y", "grid z", "block x", "block y", "block z"];
    let values = config.grid.into_iter().chain(config.block);
    let most = limits.grid.into_iter().chain(limits.block);
    let axes = || names.into_iter().zip(values.clone()).zip(most.clone());
    let (threads, max_threads) = (config.threads_per_block(), function.max_threads);
    let (shared, max_shared) = (config.shared_bytes, most_shared(limits, function));
    let detail = if let Some(((axis, _), _)) = axes().find(|((_, value), _)| *value == 0) {
        format!("{axis} is 0; launch nothing instead of an empty grid")
    } else if let Some(((axis, value), limit)) = axes().find(|((_, value), limit)| value > limit) {
        let advice = match axis.split(' ').next() {
            Some("grid") => "use fewer blocks, and a loop in the kernel",
            _ => "use a smaller block",
        };
        format!("{axis} is {value}, the limit is {limit}; {advice}")
    } else if threads > max_threads.into() {
        format!(
            "{threads} threads per block, the limit of this kernel is {max_threads}; use a smaller block"
        )
    } else if shared > max_shared {
        format!(
            "{shared} bytes of dynamic shared memory, the limit of this kernel is {max_shared}; use less"
        )
    } else {
        return None;
    };
    Some(Error::InvalidLaunch { kernel: function.name.clone(), detail })
}

#[cold]
fn wrong_size(function: &DriverFunction, given: usize) -> Error {
    let detail = format!("{given} bytes of parameters, it takes {}", function.param_bytes);
    Error::Arguments { kernel: function.name.clone(), detail }
}

#[cold]
fn outside_parameters(function: &DriverFunction, at: usize) -> Error {
    let detail = format!("an address at byte {at} is outside of its parameters");
    Error::Arguments { kernel: function.name.clone(), detail }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::driver::api::FunctionHandle;

    const LIMITS: Limits = Limits {
        grid: [i32::MAX as u32, 65_535, 65_535],
        block: [1024, 1024, 64],
        threads: 1024,
        shared: 200 << 10,
    };

    fn kernel() -> DriverFunction {
        DriverFunction {
            raw: FunctionHandle::NULL,
            name: "scale".into(),
            param_bytes: 12,
            max_threads: 512,
            static_shared: 1 << 10,
            has_other_effects: true,
            dynamic_shared: (48 << 10).into(),
            has_large_clusters: false.into(),
        }
    }

    fn message(config: LaunchConfig) -> String {
        misfit(&config, &LIMITS, &kernel()).map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn launch_within_the_limits_has_no_misfit() {
        let most = LaunchConfig::new(i32::MAX as u32, 512).shared_bytes(199 << 10);
        assert_eq!(misfit(&most, &LIMITS, &kernel()), None);
    }

    #[test]
    fn misfit_names_the_number_and_its_limit() {
        let one = LaunchConfig::new(1, 1);
        assert!(message(one.grid(1, 0, 1)).contains("grid y is 0"));
        assert!(message(one.block(0, 1, 1)).contains("block x is 0"));
        assert!(
            message(one.grid(1, 1, 70_000))
                .contains("grid z is 70000, the limit is 65535; use fewer blocks")
        );
        assert!(
            message(one.block(1, 1, 65))
                .contains("block z is 65, the limit is 64; use a smaller block")
        );
        assert!(message(one.block(1024, 1, 1)).contains("1024 threads per block, the limit"));
        let shared = message(one.shared_bytes(200 << 10));
        assert!(shared.contains("the limit of this kernel is 203776; use less"));
    }
}
