//! Nodes of graphs: resolves work to the driver's addresses and handles, without a stream.

use std::sync::Arc;

use cuda_core::protocol::{
    CONDITION_BYTES, Error, Feature, HostBlock, Launch, Pattern, Region, Repeat, Result, Work,
};
use smallvec::SmallVec;

use super::{attributes, copy, launch, place::Names, timestamp};
use crate::{
    driver::api::HostPointer,
    graphs::{CopyNode, CopySource, DriverNode, FillNode, KernelNode, RepeatNode},
};

/// Resolves the work of a node.
///
/// # Errors
/// The work names memory or a kernel that does not exist, or is of a kind that a graph cannot have.
///
/// # Safety
/// No thread unloads the module of a launch before this returns.
pub(crate) unsafe fn node(
    names: Names<'_>,
    work: &Work<'_>,
    host: &[Arc<HostBlock>],
) -> Result<DriverNode> {
    match work {
        Work::Join => Ok(DriverNode::Empty),
        // SAFETY: no thread unloads the module of the launch before this returns.
        Work::Launch(launch) => unsafe { kernel(names, launch) },
        Work::Upload { from, to, bytes } => {
            let Some(size) = copy::size(*bytes)? else { return Ok(DriverNode::Empty) };
            let (from, to) = (names.host(*from, size, host)?, names.memory.locate(*to, *bytes)?);
            let from = CopySource::Host(HostPointer(from.cast()));
            Ok(DriverNode::Copy(CopyNode { from, to, bytes: size }))
        }
        Work::Copy { from, to, bytes } => {
            let Some(size) = copy::size(*bytes)? else { return Ok(DriverNode::Empty) };
            let (from, to) =
                (names.memory.locate(*from, *bytes)?, names.memory.locate(*to, *bytes)?);
            Ok(DriverNode::Copy(CopyNode { from: CopySource::Device(from), to, bytes: size }))
        }
        Work::Fill { to, pattern, count } => fill(names, *to, *pattern, *count),
        Work::Timestamp { to } => timestamp::node(names, *to),
        Work::Foreign(foreign) => {
            let child = foreign.commands().map(DriverNode::Child);
            let feature = Feature::CapturedElsewhere;
            child.ok_or_else(|| Error::unsupported(feature, &names.primary.info.address))
        }
        // SAFETY: no thread unloads the modules of the loop's launches before this returns.
        Work::Repeat(repeat) => unsafe { repeated(names, repeat) },
        Work::Download { .. } | Work::Send { .. } | Work::Graph(_) => {
            Err(Error::unsupported(Feature::WorkInGraph, &names.primary.info.address))
        }
        _ => Err(Error::unsupported(Feature::Work, &names.primary.info.address)),
    }
}

/// Resolves a loop with its body.
///
/// # Safety
/// As for [`node`].
unsafe fn repeated(names: Names<'_>, repeat: &Repeat) -> Result<DriverNode> {
    if names.primary.condition.is_none() {
        return Err(Error::unsupported(Feature::GraphLoop, &names.primary.info.address));
    }
    let condition = names.memory.locate(repeat.condition, CONDITION_BYTES)?;
    let body = repeat.body.nodes.iter().map(|repeated| {
        // SAFETY: no thread unloads the module of a launch before this returns.
        Ok((unsafe { node(names, &repeated.work, &repeat.body.host) }?, repeated.after.clone()))
    });
    Ok(DriverNode::Repeat(RepeatNode { condition, body: body.collect::<Result<_>>()? }))
}

/// As [`node`]. Refuses launches that the driver would refuse.
///
/// # Safety
/// As for [`node`].
pub(crate) unsafe fn checked_node(
    names: Names<'_>,
    work: &Work<'_>,
    host: &[Arc<HostBlock>],
) -> Result<DriverNode> {
    if let Work::Launch(launch) = work {
        // SAFETY: no thread unloads the module of the launch before this returns.
        launch::check_fit(names, &launch.config, unsafe { launch::function(names, launch) }?)?;
    }
    // SAFETY: no thread unloads the module of a launch before this returns.
    unsafe { node(names, work, host) }
}

/// # Safety
/// As for [`node`].
unsafe fn kernel(names: Names<'_>, launch: &Launch<'_>) -> Result<DriverNode> {
    // SAFETY: no thread unloads the module of the launch while the result is used.
    let function = unsafe { launch::function(names, launch) }?;
    if !launch.config.attributes.is_none() {
        attributes::check_fit(names.primary, &launch.config, function)?;
    }
    let bytes = launch.params.len();
    let mut params: SmallVec<[u64; 8]> = SmallVec::from_elem(0, bytes.div_ceil(8));
    launch::write_params(&mut params, launch, names.memory, function)?;
    let (function, config) = (function.raw, launch.config);
    Ok(DriverNode::Kernel(KernelNode { function, config, params, bytes }))
}

fn fill(names: Names<'_>, to: Region, pattern: Pattern, count: u64) -> Result<DriverNode> {
    let Some(times) = copy::size(count)? else { return Ok(DriverNode::Empty) };
    let (to, _) = copy::fill_target(names, to, pattern, count)?;
    Ok(DriverNode::Fill(FillNode { to, pattern, count: times }))
}
