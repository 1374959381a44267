//! A device that does nothing, at once: only the cost of the library is left.

use std::{
    any::Any,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use cuda_core::{
    Backend, DeviceInfo, Error, MemoryInfo, NoticeSink, Provider, Result, Ticket,
    protocol::{
        Answer, Capabilities, Control, Foreign, HostBlock, Reply, Request, StreamId, Submission,
    },
};

pub struct NullProvider;

struct Null {
    info: DeviceInfo,
    capabilities: Capabilities,
    /// The largest number of any stream: every submission is complete when it returns.
    last: AtomicU64,
}

// SAFETY: nothing runs, so nothing is touched; every submission is complete at once.
unsafe impl Provider for NullProvider {
    fn scheme(&self) -> &'static str {
        "null"
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        Ok(Vec::new())
    }

    fn open(&self, _: u32, _: Arc<dyn NoticeSink>) -> Result<Arc<dyn Backend>> {
        let info = DeviceInfo::new("null", "a device that does nothing");
        let (capabilities, last) = (Capabilities::local(1 << 40), AtomicU64::new(0));
        Ok(Arc::new(Null { info, capabilities, last }))
    }
}

// SAFETY: as above.
unsafe impl Backend for Null {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    unsafe fn submit(&self, submission: &Submission<'_>, _: &[Arc<HostBlock>]) -> Result<()> {
        self.last.store(submission.ticket.number, Ordering::Relaxed);
        Ok(())
    }

    unsafe fn control(&self, _: Control) -> Result<()> {
        Ok(())
    }

    fn request(&self, request: Request, answer: Answer) {
        answer.give(match request {
            Request::Loaded { .. } => {
                Ok(Reply::Loaded { max_threads: vec![1024; 16], log: String::new() })
            }
            Request::Memory => Ok(Reply::Memory(MemoryInfo { used: 0, free: 0, total: 0 })),
            _ => Err(Error::unsupported("this request", "null")),
        });
    }

    fn peek(&self, _: StreamId) -> Result<u64> {
        Ok(u64::MAX)
    }

    fn block_until(&self, _: Ticket) -> Result<()> {
        Ok(())
    }

    fn foreign(&self) -> Option<&dyn Foreign> {
        None
    }

    fn close(&self, retained: Vec<(Ticket, Box<dyn Any + Send + Sync>)>) {
        drop(retained);
    }
}
