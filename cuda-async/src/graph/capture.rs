//! Captures: graphs that a program records operation by operation, in its own order, and not from one operation.

use std::sync::Arc;

use cuda_core::{CapturePool, Result, Stream, internals::Recording};

use crate::{graph::cuda_graph::CudaGraph, op::IntoDeviceOp, run::blocking};

/// A graph that was captured. It has no output: the buffers that were recorded keep their handles.
pub type CapturedGraph = CudaGraph<()>;

/// A capture that has begun. [`record`](Capture::record) adds operations, and [`end_capture`] makes the graph. Dropping
/// it ends the capture without a graph, also while a panic unwinds.
///
/// A capture has a stream of its own. Other threads cannot add to it or invalidate it. The stream that was passed to
/// [`begin_capture`] stays usable.
#[derive(Debug)]
#[must_use = "a capture without `end_capture` has no effect"]
pub struct Capture {
    scope: Scope,
    /// The stream of updates.
    stream: Stream,
}

impl Capture {
    /// Records an operation, as [`Scope::record`] does.
    ///
    /// # Errors
    /// The errors of [`GraphExt::graph`](crate::graph::GraphExt::graph). The capture continues without the operation.
    /// Steps of the operation that were recorded before the error stay recorded.
    pub fn record<O: IntoDeviceOp>(&self, op: O) -> Result<O::Output> {
        self.scope.record(op)
    }
}

/// Begins a capture for the device of `stream`. Later [updates](CudaGraph::update) are submitted to `stream`.
///
/// ```
/// use cuda_async::{graph::{begin_capture, end_capture}, memory::fill, prelude::*};
/// let stream = cuda_async::default_device()?.new_stream()?;
/// let mut x = zeros::<u32>(4).sync_on(&stream)?;
/// let capture = begin_capture(&stream)?;
/// capture.record(fill(&mut x, 7))?;
/// let graph = end_capture(capture)?;
/// assert_eq!(to_host(&x).sync_on(&stream)?, [0; 4]); // nothing has run yet
/// graph.launch().sync_on(&stream)?;
/// assert_eq!(to_host(&x).sync_on(&stream)?, [7; 4]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// # Errors
/// An error of the device.
pub fn begin_capture(stream: &Stream) -> Result<Capture> {
    let scope = Scope(Recording::start(stream.device(), None)?);
    Ok(Capture { scope, stream: stream.clone() })
}

/// Begins a capture as [`begin_capture`] does, with temporary buffers from a pool.
///
/// ```
/// use cuda_async::{graph::{CapturePool, begin_capture_with_pool, end_capture}, prelude::*};
/// let stream = cuda_async::default_device()?.new_stream()?;
/// let pool = CapturePool::new();
/// let capture = begin_capture_with_pool(&stream, &pool)?;
/// capture.record(zeros::<u32>(1000))?;
/// let graph = end_capture(capture)?;
/// assert_eq!(pool.idle_bytes(), 4000); // the next capture uses the same memory
/// pool.seal();
/// assert!(begin_capture_with_pool(&stream, &pool).is_err());
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// # Errors
/// [`Error::Misuse`](crate::Error::Misuse) if the pool is sealed, or an error of the device.
pub fn begin_capture_with_pool(stream: &Stream, pool: &Arc<CapturePool>) -> Result<Capture> {
    let scope = Scope(Recording::start(stream.device(), Some(pool))?);
    Ok(Capture { scope, stream: stream.clone() })
}

/// Ends a capture. Nothing of it has run yet.
///
/// ```
/// use cuda_async::{graph::{begin_capture, end_capture}, memory::fill, prelude::*};
/// let stream = cuda_async::default_device()?.new_stream()?;
/// let mut x = zeros::<u32>(4).sync_on(&stream)?;
/// let capture = begin_capture(&stream)?;
/// capture.record(fill(&mut x, 7))?; // does not run
/// let graph = end_capture(capture)?;
/// graph.launch().sync_on(&stream)?;
/// assert_eq!(to_host(x).sync_on(&stream)?, [7; 4]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// # Errors
/// [`Error::OutOfRange`](crate::Error::OutOfRange) beyond the limits of a recording.
pub fn end_capture(capture: Capture) -> Result<CapturedGraph> {
    let Capture { scope, stream } = capture;
    Ok(CudaGraph::of_recording((), Recording::end(&scope.0)?, stream))
}

impl<T> CudaGraph<T> {
    /// Records the operations that `record` passes to its [`Scope`], as one graph. The value that `record` returns is
    /// the output of the graph.
    ///
    /// ```
    /// use cuda_async::{graph::CudaGraph, memory::{copy, fill}, prelude::*};
    /// let stream = cuda_async::default_device()?.new_stream()?;
    /// let mut x = zeros::<u32>(4).sync_on(&stream)?;
    /// let graph = CudaGraph::scope(&stream, |scope| {
    ///     scope.record(fill(&mut x, 7))?;
    ///     let y = scope.record(zeros(4))?;
    ///     scope.record(copy(&x, y)).map(|(_, y)| y)
    /// })?;
    /// assert_eq!(graph.launch().then(to_host).sync_on(&stream)?, [7; 4]);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// The error of `record`, or as [`GraphExt::graph`](crate::graph::GraphExt::graph).
    pub fn scope(stream: &Stream, record: impl FnOnce(&Scope) -> Result<T>) -> Result<Self> {
        let scope = Scope(Recording::start(stream.device(), None)?);
        let output = record(&scope)?;
        Ok(Self::of_recording(output, Recording::end(&scope.0)?, stream.clone()))
    }
}

/// The recording inside [`CudaGraph::scope`].
#[derive(Debug)]
pub struct Scope(Stream);

impl Scope {
    /// Records an operation. It comes after the earlier operations that use the same memory. Returns its output. Memory
    /// in the output has its values after a launch. The operation may borrow buffers: the graph keeps their memory
    /// alive.
    ///
    /// # Errors
    /// The errors of [`GraphExt::graph`](crate::graph::GraphExt::graph).
    pub fn record<O: IntoDeviceOp>(&self, op: O) -> Result<O::Output> {
        blocking::submit_only(op.into_op().into_steps(), self.0.clone())
    }
}
