//! Foreign work: lends streams to foreign code, and captures its commands for graphs.

use std::sync::Arc;

use cuda_core::protocol::{
    AllocId, Error, Foreign, ForeignOwner, ForeignWork, Misuse, RawStream, Region, Result,
    StreamId, Ticket,
};

use super::{
    backend::CudaBackend,
    context::Bound,
    driver::api::{STREAM_PER_THREAD, StreamHandle},
    graphs::Capture,
    streams::DriverStream,
};

// SAFETY: `submit` is called at most once, with the stream and the context of this backend, or with a stream of a
// capture. The stream and the context stay valid until `submit` returns. A foreign stream holds its owner as long as it
// is used, and forgotten memory is in no table.
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
        let _call = ForeignCall::begin(self, &stream, ticket.number, bound)?;
        submit(RawStream { stream: stream.raw.0, context: self.primary.context.0 })
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

    unsafe fn add_stream(&self, id: StreamId, raw: RawStream, owner: ForeignOwner) -> Result<()> {
        self.primary.alive()?;
        let here = &self.primary.info.address;
        if raw.stream == STREAM_PER_THREAD {
            return Err(Misuse::ThreadStream.into());
        }
        if raw.context != self.primary.context.0 {
            let lives_on = "another CUDA context than the primary one of this GPU".into();
            return Err(Error::WrongDevice {
                what: "a stream of foreign code".into(),
                lives_on,
                used_on: here.clone(),
            });
        }
        self.streams.add(id, StreamHandle(raw.stream), owner)
    }

    unsafe fn add_memory(&self, id: AllocId, address: u64, bytes: u64) -> Result<()> {
        self.primary.alive()?;
        self.memory.add_foreign(id, address, bytes)
    }

    unsafe fn forget_memory(&self, id: AllocId) -> Result<()> {
        self.memory.forget(id)
    }

    fn address(&self, region: Region, bytes: u64) -> Result<u64> {
        self.memory.locate(region, bytes)
    }
}

/// A call of foreign code on a stream, which may capture it. Ends when it is dropped, also by unwinding. It counts as
/// submitted then: foreign code that fails may have enqueued commands before.
struct ForeignCall<'a> {
    backend: &'a CudaBackend,
    stream: &'a Arc<DriverStream>,
    number: u64,
    bound: &'a Bound,
}

impl<'a> ForeignCall<'a> {
    fn begin(
        backend: &'a CudaBackend,
        stream: &'a Arc<DriverStream>,
        number: u64,
        bound: &'a Bound,
    ) -> Result<Self> {
        backend.reporter.begin_foreign(stream, bound)?;
        Ok(Self { backend, stream, number, bound })
    }
}

impl Drop for ForeignCall<'_> {
    fn drop(&mut self) {
        self.stream.set_submitted(self.number);
        for free in self.backend.reporter.end_foreign(self.stream, self.bound) {
            // As for every free, an error can only mean that the device is lost.
            _ = self.backend.free_now(self.stream, free, self.bound);
        }
    }
}
