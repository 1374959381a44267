//! Windows: submissions that a device may launch together.

use super::stream::Stream;

impl Stream {
    /// Opens a window: until [`close_window`](Self::close_window), the device may hold work that is submitted through this
    /// handle, and launch it as a graph if the same work came before (see
    /// [`Device::graph_cache`](crate::Device::graph_cache)). Work that depends on it, waits for it and queries about it are
    /// unaffected.
    #[doc(hidden)]
    #[inline]
    pub fn open_window(&self) {
        if self.device().core().has_graph_cache() && !self.is_recording() {
            self.sent.open_window();
        }
    }

    /// Whether this handle has an open window.
    #[doc(hidden)]
    #[inline]
    pub fn has_open_window(&self) -> bool {
        self.sent.has_open_window()
    }

    /// Closes the window of this handle, if it has one. The device begins the work that it holds.
    #[doc(hidden)]
    #[inline]
    pub fn close_window(&self) {
        if self.sent.close_window() {
            // SAFETY: the stream is held. If the device is lost, waits for the work report it.
            _ = unsafe { self.device().core().backend.flush(self.id()) };
        }
    }
}
