//! Launching kernels: the hot path. Its own share stays under 50 ns: everything is found without a lock,
//! parameters are patched on the stack.

use std::{ffi::c_void, sync::atomic::Ordering};

use smallvec::SmallVec;

use super::{
    api::{LAUNCH_PARAM, StreamHandle, function_attribute},
    context::{Bound, Primary},
    driver::Limits,
    memory::Memory,
    modules::{Function, Modules},
};
use crate::{Error, Launch, LaunchConfig, Result};

/// Parameters up to this many words of eight bytes stay on the stack.
const INLINE_WORDS: usize = 32;

/// Launches a kernel.
///
/// # Safety
/// Nobody unloads the kernel's module or destroys the stream before this returns. What the kernel does with
/// its parameters is the promise of whoever made the command.
#[inline]
pub(super) unsafe fn launch(
    primary: &Primary,
    modules: &Modules,
    memory: &Memory,
    stream: StreamHandle,
    launch: &Launch<'_>,
    bound: &Bound,
) -> Result<()> {
    // SAFETY: the module stays loaded, as the caller promises.
    let function = unsafe { modules.find(launch.function) }?;
    check(&launch.config, &primary.limits, function)?;
    if launch.params.len() != function.param_bytes as usize {
        let detail = format!(
            "{} bytes of parameters, it takes {}",
            launch.params.len(),
            function.param_bytes
        );
        return Err(Error::Arguments { kernel: function.name.clone(), detail });
    }
    // Filled where it stands: moving it would cost as much as the rest of this function.
    let mut params = SmallVec::<[u64; INLINE_WORDS]>::new();
    params.resize(launch.params.len().div_ceil(8), 0);
    let buffer = bytemuck::cast_slice_mut::<u64, u8>(&mut params);
    buffer[..launch.params.len()].copy_from_slice(&launch.params);
    for relocation in launch.relocations.iter() {
        let address = memory.locate(relocation.region, 0)?;
        let at = relocation.at as usize;
        let Some(place) = buffer.get_mut(at..at.saturating_add(8)) else {
            let detail = format!("an address at byte {at} is outside of its parameters");
            return Err(Error::Arguments { kernel: function.name.clone(), detail });
        };
        place.copy_from_slice(&address.to_ne_bytes());
    }
    if launch.config.shared_bytes > function.dynamic_shared.load(Ordering::Relaxed) {
        allow_dynamic_shared(primary, function, bound)?;
    }
    let mut size = function.param_bytes as usize;
    let [end, pointer, bytes] = LAUNCH_PARAM;
    let size_at = (&raw mut size).cast::<c_void>();
    let mut extra = [pointer, params.as_mut_ptr().cast(), bytes, size_at, end];
    let extra = if size == 0 { std::ptr::null_mut() } else { extra.as_mut_ptr() };
    let LaunchConfig { grid: [gx, gy, gz], block: [bx, by, bz], shared_bytes } = launch.config;
    // SAFETY: the module stays loaded and the stream alive (rules 3, 4); the
    // parameters have the size that the kernel's PTX declares, and the driver copies them before it
    // returns. What the kernel does with them is the promise of whoever makes the command.
    unsafe {
        primary.api.launch(
            function.raw,
            gx,
            gy,
            gz,
            bx,
            by,
            bz,
            shared_bytes,
            stream,
            std::ptr::null_mut(),
            extra,
        )
    }
    .map_err(|failed| primary.error(failed))
}

/// Lets the kernel have all the dynamic shared memory that the device can give. Set to the maximum
/// at once, so that it does not matter which of two threads comes first.
#[cold]
fn allow_dynamic_shared(primary: &Primary, function: &Function, _: &Bound) -> Result<()> {
    let most = primary.limits.shared.saturating_sub(function.static_shared);
    let attribute = function_attribute::MAX_DYNAMIC_SHARED;
    // SAFETY: the function's module is loaded.
    unsafe { primary.api.function_set(function.raw, attribute, most as i32) }
        .map_err(|failed| primary.error(failed))?;
    function.dynamic_shared.store(most, Ordering::Relaxed);
    Ok(())
}

/// Whether the device can run a launch of this shape; says which number is too large if not.
#[inline]
fn check(config: &LaunchConfig, limits: &Limits, function: &Function) -> Result<()> {
    let most_shared = limits.shared.saturating_sub(function.static_shared);
    let most_threads = u64::from(function.max_threads.min(limits.threads));
    let fits = !config.is_empty()
        && (0..3).all(|axis| {
            config.grid[axis] <= limits.grid[axis] && config.block[axis] <= limits.block[axis]
        })
        && config.threads_per_block() <= most_threads
        && config.shared_bytes <= most_shared;
    if fits { Ok(()) } else { Err(misfit(config, limits, function, most_threads, most_shared)) }
}

#[cold]
fn misfit(
    config: &LaunchConfig,
    limits: &Limits,
    function: &Function,
    most_threads: u64,
    most_shared: u32,
) -> Error {
    let axes = || {
        let grid = ["grid x", "grid y", "grid z"].into_iter().zip(config.grid).zip(limits.grid);
        let block = ["block x", "block y", "block z"].into_iter().zip(config.block);
        grid.chain(block.zip(limits.block))
    };
    let detail = if let Some(((what, _), _)) = axes().find(|((_, value), _)| *value == 0) {
        format!("{what} is 0; launch nothing instead of an empty grid")
    } else if let Some(((what, value), limit)) = axes().find(|((_, value), limit)| value > limit) {
        format!("{what} is {value}, the limit is {limit}")
    } else if config.threads_per_block() > most_threads {
        let threads = config.threads_per_block();
        format!("{threads} threads per block, the limit of this kernel is {most_threads}")
    } else {
        format!(
            "{} bytes of dynamic shared memory, the limit of this kernel is {most_shared}",
            config.shared_bytes
        )
    };
    Error::InvalidLaunch { kernel: function.name.clone(), detail }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::api::FunctionHandle;

    const LIMITS: Limits = Limits {
        grid: [i32::MAX as u32, 65_535, 65_535],
        block: [1024, 1024, 64],
        threads: 1024,
        shared: 200 << 10,
    };

    fn kernel() -> Function {
        Function {
            raw: FunctionHandle::NULL,
            name: "scale".into(),
            param_bytes: 12,
            max_threads: 512,
            static_shared: 1 << 10,
            dynamic_shared: (48 << 10).into(),
        }
    }

    fn said(config: LaunchConfig) -> String {
        check(&config, &LIMITS, &kernel()).unwrap_err().to_string()
    }

    #[test]
    fn what_fits_is_launched() {
        let most = LaunchConfig::new(i32::MAX as u32, 512).shared_bytes(199 << 10);
        assert_eq!(check(&most, &LIMITS, &kernel()), Ok(()));
    }

    #[test]
    fn a_misfit_names_the_number_and_its_limit() {
        let one = LaunchConfig::new(1, 1);
        assert!(said(one.grid(1, 0, 1)).contains("grid y is 0"));
        assert!(said(one.block(0, 1, 1)).contains("block x is 0"));
        assert!(said(one.grid(1, 1, 70_000)).contains("grid z is 70000, the limit is 65535"));
        assert!(said(one.block(1, 1, 65)).contains("block z is 65, the limit is 64"));
        assert!(said(one.block(1024, 1, 1)).contains("1024 threads per block, the limit of this"));
        assert!(said(one.shared_bytes(200 << 10)).contains("the limit of this kernel is 203776"));
    }
}
