//! Child graphs: commands of foreign code, captured on a stream of their own.

use cuda_core::protocol::{Error, Misuse, Result};

use crate::{
    context::{Bound, Primary, Reclaimable},
    driver::api::{CAPTURE_RELAXED, GraphHandle, STREAM_NON_BLOCKING, StreamHandle},
};

/// A graph that was captured. The driver copies it into the graphs that it is added to.
#[derive(Debug)]
pub(crate) struct ChildGraph {
    primary: &'static Primary,
    graph: GraphHandle,
}

impl ChildGraph {
    pub(super) fn handle(&self) -> GraphHandle {
        self.graph
    }
}

impl PartialEq for ChildGraph {
    fn eq(&self, other: &Self) -> bool {
        self.graph == other.graph
    }
}

impl Drop for ChildGraph {
    fn drop(&mut self) {
        self.primary.reclaim.put(Box::new(Destroyed(self.graph)));
    }
}

/// The handle of a graph that was dropped.
struct Destroyed(GraphHandle);

impl Reclaimable for Destroyed {
    fn reclaim(
        self: Box<Self>,
        primary: &'static Primary,
        _: &Bound,
    ) -> Option<Box<dyn Reclaimable>> {
        // SAFETY: the graph was dropped, so no thread uses the handle.
        _ = unsafe { primary.api.graph_destroy(self.0) };
        None
    }
}

/// A capture on a stream of its own. Dropping it ends the capture, also by unwinding.
pub(crate) struct Capture<'a> {
    primary: &'static Primary,
    stream: StreamHandle,
    is_capturing: bool,
    _bound: &'a Bound,
}

impl<'a> Capture<'a> {
    pub(crate) fn begin(primary: &'static Primary, bound: &'a Bound) -> Result<Self> {
        let mut stream = StreamHandle::NULL;
        // SAFETY: writes one handle.
        unsafe { primary.api.stream_create(&mut stream, STREAM_NON_BLOCKING, 0) }
            .map_err(|failed| primary.error(failed))?;
        let mut capture = Self { primary, stream, is_capturing: false, _bound: bound };
        // Relaxed: other calls of foreign code, such as allocations, do not invalidate the capture.
        // SAFETY: the stream was created above.
        unsafe { primary.api.capture_begin(stream, CAPTURE_RELAXED) }
            .map_err(|failed| primary.error(failed))?;
        capture.is_capturing = true;
        Ok(capture)
    }

    /// The stream that is captured.
    pub(crate) fn stream(&self) -> StreamHandle {
        self.stream
    }

    /// Ends the capture.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the driver cannot capture a command, or if foreign code ended the capture.
    pub(crate) fn end(mut self) -> Result<ChildGraph> {
        let (primary, graph) = (self.primary, self.end_capture());
        let ended = Error::Misuse(Misuse::CaptureEnded);
        graph.map(|graph| ChildGraph { primary, graph }).ok_or(ended)
    }

    fn end_capture(&mut self) -> Option<GraphHandle> {
        let mut graph = GraphHandle::NULL;
        self.is_capturing = false;
        // SAFETY: the stream exists, and its capture was begun by this value.
        let ended = unsafe { self.primary.api.capture_end(self.stream, &mut graph) };
        ended.is_ok().then_some(graph).filter(|graph| *graph != GraphHandle::NULL)
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        if self.is_capturing
            && let Some(graph) = self.end_capture()
        {
            drop(ChildGraph { primary: self.primary, graph });
        }
        // SAFETY: nothing else has the stream, and its capture has ended.
        _ = unsafe { self.primary.api.stream_destroy(self.stream) };
    }
}
