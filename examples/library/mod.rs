//! A library that runs on the devices, streams and policies of its caller: softmax, row by row. A caller is in
//! `main.rs` beside this file.
//!
//! - The library chooses no device, no policy and no executor, and has no value to set up. It describes its work as an
//!   operation, which the caller can compose and run in any way.
//! - An operation that owns all its data can be spawned. Its signature states this with `+ use<>`, or with `+ use<P>`
//!   for each type parameter `P` that it holds. Otherwise the compiler assumes that the result borrows `self` and every
//!   other reference among the arguments.

use cuda_async::{
    Error, Result, SchedulingPolicy, Stream, kernel::ModuleCache, launch, prelude::*,
};
use futures::stream;

/// Threads that share a row; at most 1024 for this kernel.
const THREADS: u32 = 128;

/// Batches that [`softmax_batches`] has in flight, at most.
const IN_FLIGHT: usize = 4;

// ANCHOR: op
/// The kernels, which each device loads once.
static KERNELS: ModuleCache = ModuleCache::new(include_str!("../../kernels/softmax.ptx"));

/// Softmax of each row of `x`, which has rows of `columns` numbers, as an operation for the device of `x`.
pub fn softmax(
    x: DeviceBuffer<f32>,
    columns: usize,
) -> impl DeviceOp<Output = DeviceBuffer<f32>> + use<> {
    let rows = x.len() / columns.max(1);
    let config = LaunchConfig::new(rows.max(1) as u32, THREADS);
    KERNELS.module().then(move |kernels| {
        let softmax = kernels.function("softmax")?;
        let launched = zeros(x.len()).then(move |y| {
            // SAFETY: reads and writes `rows * columns` numbers of x and y, which have at least as many.
            unsafe { launch(&softmax, config, (x, y, rows as u32, columns as u32)) }
        });
        Ok::<_, Error>(launched.map(|(_, y)| y))
    })
}
// ANCHOR_END: op

/// Loads the kernels on `device` now, so that the first operation there does not wait for its compiler. Blocks.
///
/// # Errors
/// An error of the device.
pub fn warm_up(device: &Device) -> Result<()> {
    KERNELS.get(device).map(drop)
}

// ANCHOR: stream
/// Softmax of each row of `x`, on the caller's stream. Blocks until the result is there. Numbers after the last whole
/// row are left out.
///
/// # Errors
/// The errors of [`softmax`].
pub fn softmax_rows(stream: &Stream, x: &[f32], columns: usize) -> Result<Vec<f32>> {
    let whole = x.len() - x.len() % columns.max(1);
    h2d(&x[..whole]).then(|x| softmax(x, columns)).then(to_host).sync_on(stream)
}
// ANCHOR_END: stream

// ANCHOR: policy
/// Softmax of each row of every batch, in order, on streams that the caller's policy chooses. A policy of several
/// devices makes them work at the same time.
pub fn softmax_batches<P, I>(
    policy: P,
    batches: I,
    columns: usize,
) -> impl futures::Stream<Item = Result<Vec<f32>>> + use<P, I>
where
    P: SchedulingPolicy,
    I: IntoIterator<Item = Vec<f32>>,
{
    let one = move |batch| h2d(batch).then(move |x| softmax(x, columns)).then(to_host);
    let ops = batches.into_iter().map(one);
    stream::iter(ops).schedule_buffered(policy, IN_FLIGHT)
}
// ANCHOR_END: policy
