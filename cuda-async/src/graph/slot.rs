//! `Slot`: a buffer of a graph that other buffers may replace.

use std::{marker::PhantomData, sync::Arc};

use cuda_core::{
    Allocation, DeviceBuffer, Element, Error, MemoryConflict, Result, internals::Recording,
};

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

fn check_whole<T: Element>(buffer: &DeviceBuffer<T>) -> Result<()> {
    if buffer.allocation().bytes() == (buffer.len() * size_of::<T>()) as u64 {
        return Ok(());
    }
    Err(Error::memory("a slot of a graph", MemoryConflict::Part))
}

impl<T> std::fmt::Debug for Slot<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (ty, recording) = (std::any::type_name::<T>(), &self.recording);
        write!(f, "Slot({} bytes of {ty} in {recording:?})", self.recorded.bytes())
    }
}
