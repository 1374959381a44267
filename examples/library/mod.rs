//! A library that runs on the devices, streams and policies of its caller: softmax of rows. A caller is in `main.rs`.
//!
//! - The library chooses no device, no policy and no executor. It describes its work as an operation, which the caller
//!   can compose and run in any way.
//! - An operation that owns all it needs can be spawned. Its signature states this with `+ use<>`, or `+ use<P>` for
//!   each type parameter. Without it, the compiler assumes that the result borrows `self` and every other reference.

use std::sync::Arc;

use cuda_async::{Error, Function, Result, SchedulingPolicy, Stream, launch, prelude::*};
use futures::stream;

/// The number of threads per row. The maximum for this kernel is 1024.
const THREADS: u32 = 128;

/// The maximum number of batches in flight in [`Softmax::batches`].
const IN_FLIGHT: usize = 4;

/// Softmax on one or several devices. A clone is another handle to the same kernels.
#[derive(Debug, Clone)]
pub struct Softmax {
    kernels: Arc<[(Device, Function)]>,
}

impl Softmax {
    /// Loads the kernel on each device.
    ///
    /// # Errors
    /// Returns the first error of a device.
    pub fn new(devices: impl IntoIterator<Item = Device>) -> Result<Self> {
        let load = |device: Device| {
            let module = device.load_ptx(include_str!("../../kernels/softmax.ptx"))?;
            Ok((device, module.function("softmax")?))
        };
        Ok(Self { kernels: devices.into_iter().map(load).collect::<Result<_>>()? })
    }

    /// Returns the kernel for `device`.
    fn kernel(&self, device: &Device) -> Result<Function> {
        let found = self.kernels.iter().find(|(loaded_on, _)| loaded_on == device);
        let addresses = self.kernels.iter().map(|(device, _)| device.info().address.as_str());
        found.map(|(_, kernel)| kernel.clone()).ok_or_else(|| Error::WrongDevice {
            what: "a kernel of `Softmax`".into(),
            lives_on: addresses.collect::<Vec<_>>().join(", "),
            used_on: device.info().address.clone(),
        })
    }

    // ANCHOR: op
    /// Returns an operation that computes the softmax of each row of `x`, with `columns` numbers per row. It runs on
    /// the device of `x`.
    ///
    /// # Errors
    /// When run, returns [`Error::WrongDevice`] on a device that was not passed to [`new`](Softmax::new).
    pub fn rows_op(
        &self,
        x: DeviceBuffer<f32>,
        columns: usize,
    ) -> impl DeviceOp<Output = DeviceBuffer<f32>> + use<> {
        let (softmax, rows) = (self.clone(), x.len() / columns.max(1));
        let config = LaunchConfig::new(rows.max(1) as u32, THREADS);
        zeros(x.len())
            .then_with_context(move |cx, y| {
                let kernel = softmax.kernel(cx.device())?;
                // SAFETY: the kernel reads `rows * columns` numbers of x and writes as many of y. Both have at least
                // this size.
                Ok(unsafe { launch(&kernel, config, (x, y, rows as u32, columns as u32)) })
            })
            .map(|(_, y, ..)| y)
    }
    // ANCHOR_END: op

    // ANCHOR: stream
    /// Computes the softmax of each row of `x` on the caller's stream. Blocks until the result is available. Numbers
    /// after the last complete row are ignored.
    ///
    /// # Errors
    /// Returns the errors of [`rows_op`](Softmax::rows_op).
    pub fn rows(&self, stream: &Stream, x: &[f32], columns: usize) -> Result<Vec<f32>> {
        let whole = x.len() - x.len() % columns.max(1);
        h2d(&x[..whole]).then(|x| self.rows_op(x, columns)).then(to_host).sync_on(stream)
    }
    // ANCHOR_END: stream

    // ANCHOR: policy
    /// Computes the softmax of each row of every batch, in order, on streams that the caller's policy chooses. With a
    /// policy of several devices, they run at the same time.
    pub fn batches<P, I>(
        &self,
        policy: P,
        batches: I,
        columns: usize,
    ) -> impl futures::Stream<Item = Result<Vec<f32>>> + use<P, I>
    where
        P: SchedulingPolicy,
        I: IntoIterator<Item = Vec<f32>>,
    {
        let softmax = self.clone();
        let ops = batches.into_iter().map(move |batch| {
            let softmax = softmax.clone();
            h2d(batch).then(move |x| softmax.rows_op(x, columns)).then(to_host)
        });
        stream::iter(ops).schedule_buffered(policy, IN_FLIGHT)
    }
    // ANCHOR_END: policy
}
