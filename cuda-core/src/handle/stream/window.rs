//! Windows: submissions that a device may launch together.

use super::stream::Stream;

/// A window of a stream, from [`Stream::window`] until it is dropped.
pub struct Window<'a>(Option<&'a Stream>);

impl Stream {
    /// Opens a window. Until the window is dropped, the device may hold work that is submitted through this handle. It
    /// launches the work as a graph if the same work came before (see
    /// [`Device::graph_cache`](crate::Device::graph_cache)). Results, waits, queries and the order of dependent work
    /// stay the same.
    #[doc(hidden)]
    #[inline]
    pub fn window(&self) -> Window<'_> {
        let deferrable = self.device().core().has_graph_cache() && !self.is_recording();
        if deferrable {
            self.sent.open_window();
        }
        Window(deferrable.then_some(self))
    }
}

impl Drop for Window<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(stream) = self.0
            && stream.sent.close_window()
        {
            // SAFETY: the stream is held. If the device is lost, waits for the work report it.
            _ = unsafe { stream.device().core().backend.flush(stream.id()) };
        }
    }
}
