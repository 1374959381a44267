//! Launches with attributes: cooperative, in clusters, or dependent. Also the driver's answers on occupancy.

use std::{
    ffi::{c_int, c_void},
    sync::atomic::Ordering,
};

use cuda_core::protocol::{
    Error, FunctionAttributes, LaunchAttributes, LaunchConfig, Occupancy, Result,
};

use super::{launch, place::Place};
use crate::{
    context::{Bound, Primary},
    driver::{
        api::{ExtendedConfig, LaunchAttribute, StreamHandle, function_attribute},
        status::{
            COOPERATIVE_LAUNCH_TOO_LARGE, Failed, INVALID_CLUSTER_SIZE, INVALID_VALUE,
            LAUNCH_OUT_OF_RESOURCES,
        },
    },
    objects::DriverFunction,
};

/// The blocks of a cluster that every device with clusters runs.
const PORTABLE_CLUSTER: u32 = 8;

/// Launches a kernel with attributes.
///
/// # Safety
/// The function's module stays loaded, the caller holds the stream, and `extra` has the parameters of the kernel in the
/// driver's form.
#[cold]
pub(super) unsafe fn launch(
    place: Place<'_>,
    config: &LaunchConfig,
    function: &DriverFunction,
    extra: *mut *mut c_void,
) -> Result<()> {
    let primary = place.names.primary;
    let attributes = LaunchAttribute::list(of_device(primary, config.attributes));
    let driver_config = ExtendedConfig::new(config, place.stream.raw, &attributes);
    let none = std::ptr::null_mut();
    // SAFETY: the function's module stays loaded, the caller holds the stream, and `extra` has the parameters of the
    // kernel. The attributes live until the call returns, and the driver copies everything.
    let launched =
        unsafe { primary.api.launch_extended(&driver_config, function.raw, none, extra) };
    launched.map_err(|failed| {
        let of_shape = matches!(
            failed.code,
            INVALID_VALUE
                | LAUNCH_OUT_OF_RESOURCES
                | COOPERATIVE_LAUNCH_TOO_LARGE
                | INVALID_CLUSTER_SIZE
        );
        let misfit = of_shape.then(|| {
            launch::misfit(config, &primary.limits, function)
                .or_else(|| check_fit(primary, config, function).err())
        });
        misfit.flatten().unwrap_or_else(|| primary.error(failed))
    })
}

/// The attributes that the device has. Without hardware for it, a dependent launch waits for the earlier kernel.
fn of_device(primary: &Primary, attributes: LaunchAttributes) -> LaunchAttributes {
    let can_overlap = primary.info.compute_capability >= (9, 0);
    if can_overlap { attributes } else { attributes.without_dependent() }
}

/// Allows the kernel clusters of more than eight blocks, if the launch has them.
pub(super) fn allow_clusters(
    primary: &Primary,
    function: &DriverFunction,
    config: &LaunchConfig,
) -> Result<()> {
    if config.attributes.cluster_blocks() <= PORTABLE_CLUSTER
        || function.has_large_clusters.load(Ordering::Relaxed)
    {
        return Ok(());
    }
    let bound = primary.bind()?;
    allow_large_clusters(primary, function, &bound)
}

fn allow_large_clusters(primary: &Primary, function: &DriverFunction, _: &Bound) -> Result<()> {
    // SAFETY: the function's module is loaded, and the context is bound.
    unsafe { primary.api.function_set(function.raw, function_attribute::LARGE_CLUSTERS, 1) }
        .map_err(|failed| primary.error(failed))?;
    function.has_large_clusters.store(true, Ordering::Relaxed);
    Ok(())
}

/// Checks that the blocks of a cooperative launch, and those of a cluster, run at the same time.
pub(super) fn check_fit(
    primary: &Primary,
    config: &LaunchConfig,
    function: &DriverFunction,
) -> Result<()> {
    let attributes = config.attributes;
    let bound = primary.bind()?;
    let failed = |failed| primary.error(failed);
    let invalid = |detail| Err(Error::InvalidLaunch { kernel: function.name.clone(), detail });
    if attributes.cluster_blocks() > 1 {
        let clusters = active_clusters(primary, function, config, &bound).map_err(failed)?;
        if clusters == 0 {
            let most = most_in_cluster(primary, function, config, &bound).unwrap_or(1);
            return invalid(cluster_too_large(attributes.cluster_blocks(), most));
        }
        let most = u64::from(clusters) * u64::from(attributes.cluster_blocks());
        if attributes.is_cooperative() && config.blocks() > most {
            return invalid(grid_too_large(config.blocks(), most));
        }
    } else if attributes.is_cooperative() {
        let each = blocks_of_each(primary, function, config, &bound).map_err(failed)?;
        let most = u64::from(each) * u64::from(primary.info.multiprocessors);
        if config.blocks() > most {
            return invalid(grid_too_large(config.blocks(), most));
        }
    }
    Ok(())
}

fn grid_too_large(blocks: u64, most: u64) -> String {
    format!(
        "a cooperative grid of {blocks} blocks, {most} blocks fit at once on this device; use fewer blocks, and a loop in the kernel"
    )
}

fn cluster_too_large(blocks: u32, most: u32) -> String {
    format!(
        "{blocks} blocks per cluster, the limit of this kernel with this block is {most}; use a smaller cluster"
    )
}

/// The blocks that one multiprocessor runs at the same time.
fn blocks_of_each(
    primary: &Primary,
    function: &DriverFunction,
    config: &LaunchConfig,
    _: &Bound,
) -> Result<u32, Failed> {
    let (mut blocks, threads) = (0, config.threads_per_block().min(i32::MAX as u64) as c_int);
    let shared = config.shared_bytes as usize;
    // SAFETY: writes one integer; the function's module is loaded, and the context is bound.
    unsafe { primary.api.occupancy(&mut blocks, function.raw, threads, shared) }?;
    Ok(blocks.max(0).unsigned_abs())
}

/// The clusters that run at the same time.
fn active_clusters(
    primary: &Primary,
    function: &DriverFunction,
    config: &LaunchConfig,
    _: &Bound,
) -> Result<u32, Failed> {
    let (mut clusters, attributes) = (0, LaunchAttribute::list(config.attributes));
    let config = ExtendedConfig::new(config, StreamHandle::NULL, &attributes);
    // SAFETY: writes one integer; the function's module is loaded, and the context is bound. The attributes live until
    // the call returns.
    match unsafe { primary.api.occupancy_clusters(&mut clusters, function.raw, &config) } {
        Err(Failed { code: INVALID_CLUSTER_SIZE, .. }) => Ok(0),
        answer => answer.map(|()| clusters.max(0).unsigned_abs()),
    }
}

/// The largest cluster.
fn most_in_cluster(
    primary: &Primary,
    function: &DriverFunction,
    config: &LaunchConfig,
    _: &Bound,
) -> Result<u32, Failed> {
    let mut blocks = 0;
    let config = ExtendedConfig::new(config, StreamHandle::NULL, &[]);
    // SAFETY: writes one integer; the function's module is loaded, and the context is bound.
    unsafe { primary.api.occupancy_cluster(&mut blocks, function.raw, &config) }?;
    Ok(blocks.max(1).unsigned_abs())
}

/// Answers a question on occupancy.
pub(crate) fn occupancy(
    primary: &Primary,
    function: &DriverFunction,
    config: &LaunchConfig,
    bound: &Bound,
) -> Result<Occupancy> {
    // Until the kernel may use that much dynamic shared memory, the driver reports 0 blocks. More than the device has
    // needs no permission: 0 blocks is then the right answer.
    let fits = config.shared_bytes <= launch::most_shared(&primary.limits, function);
    if fits && config.shared_bytes > function.dynamic_shared.load(Ordering::Relaxed) {
        launch::allow_dynamic_shared(primary, function, config)?;
    }
    let failed = |failed| primary.error(failed);
    let ask = |attribute| -> Result<u32> {
        let mut value = 0;
        // SAFETY: writes one integer; the function's module is loaded, and the context is bound.
        unsafe { primary.api.function_get(&mut value, attribute, function.raw) }.map_err(failed)?;
        Ok(value.max(0).unsigned_abs())
    };
    let (mut grid, mut suggested, no_callback) = (0, 0, std::ptr::null_mut());
    // SAFETY: writes two integers; the function's module is loaded, and the context is bound. Without a callback, every
    // block has the same shared memory.
    unsafe {
        let shared = config.shared_bytes as usize;
        primary.api.occupancy_block(&mut grid, &mut suggested, function.raw, no_callback, shared, 0)
    }
    .map_err(failed)?;
    let max_cluster_blocks = if primary.info.has_clusters() {
        // Only a permission: other launches are as before.
        _ = allow_large_clusters(primary, function, bound);
        let one = LaunchConfig { attributes: LaunchAttributes::NONE, ..*config };
        most_in_cluster(primary, function, &one, bound).map_err(failed)?
    } else {
        1
    };
    let each = blocks_of_each(primary, function, config, bound).map_err(failed)?;
    Ok(Occupancy {
        blocks_per_multiprocessor: each,
        max_cooperative_blocks: each.saturating_mul(primary.info.multiprocessors),
        max_cluster_blocks,
        suggested_block: suggested.max(1).unsigned_abs(),
        kernel: FunctionAttributes {
            registers: ask(function_attribute::REGISTERS)?,
            local_bytes: ask(function_attribute::LOCAL)?,
            static_shared_bytes: function.static_shared,
            max_threads: function.max_threads,
        },
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn messages_state_the_number_that_fits() {
        assert!(grid_too_large(500, 264).contains("500 blocks, 264 blocks fit at once"));
        assert!(cluster_too_large(16, 8).contains("16 blocks per cluster, the limit"));
    }
}
