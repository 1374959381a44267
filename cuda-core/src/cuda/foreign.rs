//! Foreign work: lends streams to foreign code, and captures its commands for graphs.

use std::sync::Arc;

use super::{backend::CudaBackend, context::Bound, graphs::Capture, streams::DriverStream};
use crate::protocol::{Foreign, ForeignWork, RawStream, Result, StreamId, Ticket};

// SAFETY: `submit` is called at most once, with the stream and the context of this backend, or with a stream of a
// capture. The stream and the context stay valid until `submit` returns.
unsafe impl Foreign for CudaBackend {
    unsafe fn submit(
        &self,
        ticket: Ticket,
        after: &[Ticket],
        submit: &mut dyn FnMut(RawStream) -> Result<()>,
    ) -> Result<()> {
        self.primary.alive()?;
        let stream = self.streams.find(ticket.stream)?;
        let bound = &self.primary.bind()?;
        if stream.is_windowed() {
            self.end_window(&stream, bound)?;
        }
        self.wait_for(&stream, after, bound)?;
        let call = ForeignCall::begin(self, &stream, bound)?;
        submit(RawStream { stream: stream.raw.0, context: self.primary.context.0 })?;
        stream.set_submitted(ticket.number);
        drop(call);
        Ok(())
    }

    unsafe fn capture(
        &self,
        submit: &mut dyn FnMut(RawStream) -> Result<()>,
    ) -> Result<ForeignWork> {
        self.primary.alive()?;
        let bound = &self.primary.bind()?;
        let capture = Capture::begin(self.primary, bound)?;
        submit(RawStream { stream: capture.stream().0, context: self.primary.context.0 })?;
        capture.end().map(ForeignWork::new)
    }

    fn raw_stream(&self, stream: StreamId) -> Result<RawStream> {
        let stream = self.streams.find(stream)?;
        if stream.is_windowed() {
            self.end_window(&stream, &self.primary.bind()?)?;
        }
        Ok(RawStream { stream: stream.raw.0, context: self.primary.context.0 })
    }
}

/// A call of foreign code on a stream, which may capture it. Ends when it is dropped, also by unwinding.
struct ForeignCall<'a> {
    backend: &'a CudaBackend,
    stream: &'a Arc<DriverStream>,
    bound: &'a Bound,
}

impl<'a> ForeignCall<'a> {
    fn begin(
        backend: &'a CudaBackend,
        stream: &'a Arc<DriverStream>,
        bound: &'a Bound,
    ) -> Result<Self> {
        backend.reporter.begin_foreign(stream, bound)?;
        Ok(Self { backend, stream, bound })
    }
}

impl Drop for ForeignCall<'_> {
    fn drop(&mut self) {
        for free in self.backend.reporter.end_foreign(self.stream, self.bound) {
            // As for every free, an error can only mean that the device is lost.
            _ = self.backend.free_now(self.stream, free, self.bound);
        }
    }
}
