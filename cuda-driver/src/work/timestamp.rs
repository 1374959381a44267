//! Timestamps: the device's clock, written in the order of a stream.

use cuda_core::protocol::{Error, Feature, LaunchConfig, Limit, Quantity, Region, Result};

use super::place::{Names, Place};
use crate::{
    context::{Bound, DeviceClock},
    driver::api::Address,
    graphs::{DriverNode, KernelNode},
};

/// Enqueues a write of the time.
pub(super) fn write(place: Place<'_>, to: Region, bound: &Bound) -> Result<()> {
    let (to, clock) = target(place.names, to)?;
    // SAFETY: eight bytes fit at `to`, which is aligned to them; the caller holds the stream.
    place.check(unsafe { clock.write(place.api(), to, place.stream.raw, bound) })
}

/// The node of a graph that writes the time.
pub(super) fn node(names: Names<'_>, to: Region) -> Result<DriverNode> {
    let (to, clock) = target(names, to)?;
    let (params, config) = (smallvec::smallvec![to], LaunchConfig::new(1, 1));
    let function = clock.function();
    Ok(DriverNode::Kernel(KernelNode { function, config, params, bytes: size_of::<Address>() }))
}

/// The address of the timestamp, and the clock.
fn target(names: Names<'_>, to: Region) -> Result<(Address, &'static DeviceClock)> {
    let to = names.memory.locate(to, 8)?;
    Limit::MultipleOf(8).check("a timestamp", Quantity::Address, to)?;
    let unsupported = || Error::unsupported(Feature::Timestamp, &names.primary.info.address);
    Ok((to, names.primary.clock.as_ref().ok_or_else(unsupported)?))
}
