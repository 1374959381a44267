//! `CudaGraph`: an operation that is recorded once and launched many times, and `Slot`, a buffer of it that other
//! buffers may replace.

use std::{
    marker::PhantomData,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use cuda_core::{
    Allocation, Device, DeviceBuffer, Element, Error, MemoryConflict, Misuse, Pending, Result,
    Stream, internals::Recording,
};

use crate::{
    context::{CreditWait, ExecutionContext, RunMode},
    graph::{plan::counted, record},
    op::{IntoDeviceOp, Op, Submit, Submitted},
    ops::DeviceOp,
    run::blocking,
    runtime::defaults,
};

/// Methods that record an operation as a graph.
pub trait GraphExt: DeviceOp {
    /// Records this operation as a graph of the default device. Its closures run once, now. Nothing runs on the device
    /// before the first [`launch`](CudaGraph::launch).
    ///
    /// - Every launch uses again the buffers that the operation uses and those that it allocates. The graph keeps them
    ///   alive. Buffers that the operation allocates have unspecified contents before the first launch.
    /// - Uploads keep a copy of their bytes, and every launch uploads them again.
    /// - Branches of [`zip!`](crate::zip) and [`join_all`](crate::join_all), and work without common data, run at the
    ///   same time where the device can. Kernels of modules that declare variables keep the order of their branch,
    ///   because they may share these or print.
    /// - A [`shared`](DeviceOp::shared) operation that has already run is an input. A `shared` operation that first
    ///   runs here runs only in launches, so its clones return an error outside the graph.
    ///
    /// Pins host memory for uploads if no idle memory is left, so this call may block while the driver pins memory.
    ///
    /// ```
    /// use cuda_async::{memory::fill, prelude::*};
    /// let filled = zeros::<u32>(4).then(|x| fill(x, 7)).graph()?;
    /// assert_eq!(filled.launch().then(to_host).sync()?, [7; 4]);
    /// assert_eq!(filled.launch().then(to_host).sync()?, [7; 4]);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NeedsHostData`] if a step waits for the device, as `to_host` and `settled` do: write
    /// `graph.launch().then(to_host)`. [`Error::Unsupported`] for foreign submissions if the device is not a GPU of
    /// this process, and for loops on a device without loops. [`Error::OutOfRange`] beyond the limits of a recording.
    /// Otherwise the error of a step.
    fn graph(self) -> Result<CudaGraph<<Self as DeviceOp>::Output>> {
        let stream = defaults::default_stream()?;
        self.graph_on(&stream)
    }

    /// Records this operation as a graph of the device of `stream`; see [`graph`](Self::graph).
    ///
    /// ```
    /// use cuda_async::{memory::fill, prelude::*};
    /// let stream = cuda_async::open_blocking("cpu")?.new_stream()?;
    /// let filled = zeros::<u32>(4).then(|x| fill(x, 7)).graph_on(&stream)?;
    /// assert_eq!(filled.launch().then(to_host).sync_on(&stream)?, [7; 4]);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`graph`](Self::graph).
    fn graph_on(self, stream: &Stream) -> Result<CudaGraph<<Self as DeviceOp>::Output>> {
        let (output, recording) = record(self, stream.device())?.into_parts();
        Ok(CudaGraph::of_recording(output, recording, stream.clone()))
    }
}

impl<O: DeviceOp> GraphExt for O {}

/// An operation that was recorded once and is launched many times. Clones are the same graph.
///
/// The graph owns all memory, modules and uploaded bytes that it uses. A launch is ordered with every other use of the
/// same memory, on every stream and through every handle.
pub struct CudaGraph<T>(Arc<Recorded<T>>);

struct Recorded<T> {
    output: Arc<T>,
    recording: Arc<Recording>,
    /// The stream of updates.
    stream: Stream,
    is_launched: AtomicBool,
}

impl<T> CudaGraph<T> {
    pub(super) fn of_recording(output: T, recording: Recording, stream: Stream) -> Self {
        let (output, recording) = (Arc::new(output), Arc::new(recording));
        let is_launched = AtomicBool::new(false);
        Self(Arc::new(Recorded { output, recording, stream, is_launched }))
    }

    /// Returns an operation that runs the recorded work and gives the output. Device memory in the output holds the
    /// values of the launch until the next one.
    ///
    /// The output is an `Arc`: each launch gives the same memory. If the output has several buffers, record each in an
    /// `Arc`, with `.map(|(a, b)| (Arc::new(a), Arc::new(b)))` before `graph()`, and clone it:
    /// `to_host(out.0.clone())`.
    ///
    /// The first launch waits until the device has prepared the graph, which takes up to milliseconds. No executor
    /// thread waits for it. From then on a launch is one submission.
    ///
    /// ```
    /// use cuda_async::{memory::fill, prelude::*};
    /// let filled = zeros::<u32>(4).then(|x| fill(x, 7)).graph()?;
    /// for _ in 0..3 {
    ///     assert_eq!(filled.launch().then(to_host).sync()?, [7; 4]); // or `.await`
    /// }
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::WrongDevice`] on a stream of another device. [`Error::Misuse`] inside a graph, and in
    /// [`async_on`](DeviceOp::async_on) for a graph with a loop or with foreign work that is not prepared. The error of
    /// the device if it refuses a graph with a loop or with foreign work.
    pub fn launch(&self) -> Op<LaunchGraph<T>>
    where
        T: Send + Sync,
    {
        Op::new(LaunchGraph { graph: self.0.clone(), pending: None, credit: CreditWait::new() })
    }

    /// Submits an operation to the stream of the graph, without waiting for the device. Later launches see the memory
    /// that the operation writes. The stream is that of [`graph_on`](GraphExt::graph_on), or one of the default device
    /// after [`graph`](GraphExt::graph).
    ///
    /// ```
    /// use cuda_async::{memory::{copy, upload_into}, prelude::*};
    /// let stream = cuda_async::default_device()?.new_stream()?;
    /// let mut input = zeros::<u32>(2).sync_on(&stream)?;
    /// let copied = zeros::<u32>(2).then(|y| copy(&input, y)).map(|(_, y)| y).graph_on(&stream)?;
    /// copied.update(upload_into(&mut input, vec![1, 2]))?; // later launches see it
    /// assert_eq!(copied.launch().then(to_host).sync_on(&stream)?, [1, 2]);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Busy`] if the stream has as much in flight as its device allows. [`Error::NeedsHostData`] if a step has
    /// to wait. Otherwise the error of a step.
    pub fn update<O: IntoDeviceOp>(&self, op: O) -> Result<O::Output> {
        blocking::submit_only(op.into_op().into_steps(), self.0.stream.clone())
    }

    /// Returns the output. Device memory in it holds the values of the last launch.
    ///
    /// ```
    /// use cuda_async::{memory::fill, prelude::*};
    /// let filled = zeros::<u32>(4).then(|x| fill(x, 7)).graph()?;
    /// assert!(filled.take_output().is_err()); // not launched yet
    /// filled.launch().sync()?;
    /// assert_eq!(to_host(filled.take_output()?).sync()?, [7; 4]);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Misuse`] before the first launch, when the memory has no values.
    pub fn take_output(&self) -> Result<Arc<T>> {
        if self.0.is_launched.load(Ordering::Acquire) {
            return Ok(self.0.output.clone());
        }
        Err(Error::Misuse(Misuse::GraphNotLaunched))
    }

    /// Returns the slot of a buffer that the graph uses: other buffers may replace it, without another recording. The
    /// buffer in the output stays the recorded one.
    ///
    /// ```
    /// use cuda_async::{memory::copy, prelude::*};
    /// let input = h2d(vec![1u32, 2]).sync()?;
    /// let copied = zeros::<u32>(2).then(|y| copy(&input, y)).map(|(_, y)| y).graph()?;
    /// let slot = copied.slot(&input)?;
    /// slot.replace(h2d(vec![3, 4]).sync()?)?; // later launches read this buffer
    /// assert_eq!(copied.launch().then(to_host).sync()?, [3, 4]);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Misuse`] if the graph does not use the buffer, or if it is a part of a larger one or a variable of a
    /// module.
    pub fn slot<E: Element>(&self, buffer: &DeviceBuffer<E>) -> Result<Slot<E>> {
        Slot::new(&self.0.recording, buffer)
    }

    /// Prepares the graph on its device, so that the first launch does not wait. Blocks for up to milliseconds.
    ///
    /// ```
    /// use cuda_async::{memory::fill, prelude::*};
    /// let filled = zeros::<u32>(4).then(|x| fill(x, 7)).graph()?;
    /// filled.upload()?; // now, and not at the first launch
    /// filled.launch().sync()?;
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// The error that lost the device. The device's error if it refuses a graph with a loop or with foreign work. It
    /// may refuse any other graph too: its launches then submit the nodes one by one.
    pub fn upload(&self) -> Result<()> {
        prepared(&self.0.recording, self.0.recording.prepare().wait())
    }

    /// Returns the number of nodes, including those that only join branches.
    ///
    /// ```
    /// use cuda_async::{memory::fill, prelude::*};
    /// assert_eq!(zeros::<u32>(4).then(|x| fill(x, 7)).graph()?.len(), 2);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    pub fn len(&self) -> usize {
        self.0.recording.len()
    }

    /// Returns whether the graph has no nodes.
    ///
    /// ```
    /// use cuda_async::prelude::*;
    /// assert!(value(1).graph()?.is_empty());
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.0.recording.is_empty()
    }

    pub(in crate::graph) fn recording(&self) -> &Recording {
        &self.0.recording
    }

    /// Returns the device of the graph.
    ///
    /// ```
    /// use cuda_async::prelude::*;
    /// let device = cuda_async::default_device()?;
    /// assert_eq!(zeros::<u32>(4).graph()?.device(), &device);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    pub fn device(&self) -> &Device {
        self.0.recording.device()
    }
}

impl<T> Clone for CudaGraph<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> std::fmt::Debug for CudaGraph<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CudaGraph({} on {})", counted(self.len(), "node"), self.device().info().address)
    }
}

/// The steps of [`CudaGraph::launch`].
pub struct LaunchGraph<T> {
    graph: Arc<Recorded<T>>,
    /// The preparation of the graph, while it is awaited.
    pending: Option<Pending<()>>,
    credit: CreditWait,
}

impl<T: Send + Sync> Submit for LaunchGraph<T> {
    type Output = Arc<T>;

    fn submit(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        Submitted::poll(self, |steps| steps.poll(task, cx))
    }
}

impl<T> LaunchGraph<T> {
    fn poll(&mut self, task: &mut Context<'_>, cx: &ExecutionContext) -> Poll<Result<Arc<T>>> {
        ready!(cx.poll_credit(&mut self.credit, task))?;
        let recording = &self.graph.recording;
        while cx.enqueue(|stream| recording.launch_prepared(stream))?.is_none() {
            let pending = self.pending.get_or_insert_with(|| recording.prepare());
            let can_wait = match pending.poll(task) {
                Poll::Ready(ended) => prepared(recording, ended).map(|()| true)?,
                // No step may wait.
                Poll::Pending if cx.mode() == RunMode::Detached => false,
                Poll::Pending => {
                    cx.waits().wait_by_wakers("launch", task)?;
                    return Poll::Pending;
                }
            };
            self.pending = None;
            // A slot inside a loop may have changed meanwhile, so the graph is prepared again.
            if !can_wait || !recording.needs_executable() {
                cx.enqueue(|stream| recording.replay(stream))?;
                break;
            }
        }
        self.graph.is_launched.store(true, Ordering::Release);
        Poll::Ready(Ok(self.graph.output.clone()))
    }
}

/// The result of a preparation. If the device refuses the graph, launches submit its nodes one by one, with the same
/// result, unless they cannot.
fn prepared(recording: &Recording, ended: Result<()>) -> Result<()> {
    ended.or_else(|error| match error.is_sticky() || recording.needs_executable() {
        true => Err(error),
        false => Ok(()),
    })
}

/// A buffer of a graph that other buffers of the same length may replace: an input, or an output.
/// [`CudaGraph::slot`](crate::graph::CudaGraph::slot) makes one.
///
/// A launch uses the buffers that are set when it is submitted. Threads that set slots and launch the same graph need a
/// lock around both. The cost of the next launch grows with the number of nodes that use the buffer. If a loop of the
/// graph uses it, the device prepares the whole graph again.
///
/// Launches with different buffers on several streams run at the same time if nothing else orders them: the graph then
/// prepares up to [`MAX_INSTANCES`](crate::graph::MAX_INSTANCES) executables, each with temporary buffers of its own.
///
/// ```
/// use std::sync::Arc;
/// use cuda_async::{memory::copy, prelude::*};
/// let x = Arc::new(h2d([1u32, 2]).sync()?);
/// let graph = zeros(2).then(|y| copy(x.clone(), y)).map(|(_, y)| y).graph()?;
/// let input = graph.slot(&x)?;
/// assert_eq!(graph.launch().then(to_host).sync()?, [1, 2]);
/// input.set(&Arc::new(h2d([3u32, 4]).sync()?))?;
/// assert_eq!(graph.launch().then(to_host).sync()?, [3, 4]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
pub struct Slot<T> {
    recording: Arc<Recording>,
    /// The memory that was recorded.
    recorded: Arc<Allocation>,
    element: PhantomData<fn(T) -> T>,
}

impl<T: Element> Slot<T> {
    pub(super) fn new(recording: &Arc<Recording>, buffer: &DeviceBuffer<T>) -> Result<Self> {
        check_whole(buffer)?;
        recording.declare_slot(buffer.allocation())?;
        let (recording, recorded) = (recording.clone(), buffer.allocation().clone());
        Ok(Self { recording, recorded, element: PhantomData })
    }

    /// Uses another buffer in later launches. The graph keeps its memory alive.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if the lengths differ. [`Error::WrongDevice`] if the buffer is on another device.
    /// [`Error::Misuse`] if the buffer is a part of a larger one, if the graph also uses it in another place, or if the
    /// graph writes it and [`replace`](Self::replace) has not received it before.
    pub fn set(&self, buffer: &Arc<DeviceBuffer<T>>) -> Result<()> {
        check_whole(buffer)?;
        self.recording.bind(&self.recorded, buffer.allocation(), false)
    }

    /// Uses another buffer in later launches, as [`set`](Self::set) does. The graph may also write this buffer. Returns
    /// the buffer in an `Arc`, to read it and to set it again.
    ///
    /// # Errors
    /// The errors of [`set`](Self::set). The buffer is then dropped.
    pub fn replace(&self, buffer: DeviceBuffer<T>) -> Result<Arc<DeviceBuffer<T>>> {
        check_whole(&buffer)?;
        self.recording.bind(&self.recorded, buffer.allocation(), true)?;
        Ok(Arc::new(buffer))
    }
}

impl<T> std::fmt::Debug for Slot<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (ty, recording) = (std::any::type_name::<T>(), &self.recording);
        write!(f, "Slot({} bytes of {ty} in {recording:?})", self.recorded.bytes())
    }
}

fn check_whole<T: Element>(buffer: &DeviceBuffer<T>) -> Result<()> {
    if buffer.allocation().bytes() == (buffer.len() * size_of::<T>()) as u64 {
        return Ok(());
    }
    Err(Error::memory("a slot of a graph", MemoryConflict::Part))
}
