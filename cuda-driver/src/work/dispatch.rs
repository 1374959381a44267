//! Turns each kind of work into its driver call ([`enqueue`]), or into a node of a graph ([`node`]). A node has the
//! driver's addresses and handles, and no stream.

use std::sync::Arc;

use cuda_core::protocol::{
    CONDITION_BYTES, Error, Feature, GraphLaunch, HostBlock, Launch, LaunchConfig, Limit, Pattern,
    Quantity, Region, Repeat, Result, Work,
};
use smallvec::SmallVec;

use super::{
    attributes, copy, launch, peers,
    place::{Names, Place},
};
use crate::{
    context::{Bound, DeviceClock},
    driver::api::{Address, HostPointer},
    graphs::{CopyNode, CopySource, DriverNode, FillNode, KernelNode, RepeatNode},
};

/// Enqueues work on a stream.
///
/// # Safety
/// The promises of [`Backend::submit`](cuda_core::protocol::Backend::submit).
#[inline]
pub(crate) unsafe fn enqueue(
    place: Place<'_>,
    work: &Work<'_>,
    host: &[Arc<HostBlock>],
    bound: &Bound,
) -> Result<()> {
    match work {
        // SAFETY: no thread unloads the kernel's module or retires the stream before this returns, and the kernel stays
        // inside the memory of its relocations.
        Work::Launch(launch) => unsafe { launch::launch(place, launch, bound) },
        Work::Join => Ok(()),
        // SAFETY: the block in `host` is alive, and its bytes do not change, until the stream has passed the copy.
        Work::Upload { from, to, bytes } => unsafe {
            copy::upload(place, *from, *to, *bytes, host, bound)
        },
        // SAFETY: the block in `host` is alive, and no thread accesses its bytes, until the stream has passed the copy.
        Work::Download { from, to, bytes } => unsafe {
            copy::download(place, *from, *to, *bytes, host, bound)
        },
        Work::Copy { from, to, bytes } => copy::copy(place, *from, *to, *bytes, bound),
        Work::Fill { to, pattern, count } => copy::fill(place, *to, *pattern, *count, bound),
        Work::Timestamp { to } => write_timestamp(place, *to, bound),
        // SAFETY: no thread drops the graph, unloads a module or retires the stream before this returns. The blocks in
        // `host` stay alive and unchanged until the work is complete.
        Work::Graph(launch) => unsafe { launch_graph(place, launch, host, bound) },
        Work::Repeat(_) | Work::Foreign(_) => {
            Err(Error::unsupported(Feature::WorkOutsideGraph, &place.names.primary.info.address))
        }
        Work::Send { from, transfer, bytes } => peers::send(place, *from, *transfer, *bytes, bound),
        _ => Err(Error::unsupported(Feature::Work, &place.names.primary.info.address)),
    }
}

/// Launches a graph, with its changes.
///
/// # Safety
/// As for [`enqueue`].
unsafe fn launch_graph(
    place: Place<'_>,
    launch: &GraphLaunch<'_>,
    host: &[Arc<HostBlock>],
    bound: &Bound,
) -> Result<()> {
    let names = place.names;
    let changes = launch.changes.iter().map(|change| {
        // SAFETY: no thread unloads the module of a launch before this returns.
        let work = unsafe { node(names, &change.work, host) }?;
        Ok((change.node, work))
    });
    // SAFETY: the modules of the nodes stay loaded, the stream is held, and no thread drops the graph before this
    // returns.
    unsafe { names.graphs.launch(launch.graph, changes, place.stream.raw, bound) }
}

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
        Work::Timestamp { to } => timestamp_node(names, *to),
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

/// Enqueues a write of the time.
fn write_timestamp(place: Place<'_>, to: Region, bound: &Bound) -> Result<()> {
    let (to, clock) = timestamp_target(place.names, to)?;
    // SAFETY: eight bytes fit at `to`, which is aligned to them; the caller holds the stream.
    place.check(unsafe { clock.write(place.api(), to, place.stream.raw, bound) })
}

/// The node of a graph that writes the time.
fn timestamp_node(names: Names<'_>, to: Region) -> Result<DriverNode> {
    let (to, clock) = timestamp_target(names, to)?;
    let (params, config) = (smallvec::smallvec![to], LaunchConfig::new(1, 1));
    let function = clock.function();
    Ok(DriverNode::Kernel(KernelNode { function, config, params, bytes: size_of::<Address>() }))
}

/// The address of the timestamp, and the clock.
fn timestamp_target(names: Names<'_>, to: Region) -> Result<(Address, &'static DeviceClock)> {
    let to = names.memory.locate(to, 8)?;
    Limit::MultipleOf(8).check("a timestamp", Quantity::Address, to)?;
    let unsupported = || Error::unsupported(Feature::Timestamp, &names.primary.info.address);
    Ok((to, names.primary.clock.as_ref().ok_or_else(unsupported)?))
}
