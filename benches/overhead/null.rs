//! A device that completes every submission immediately, without any effect. A measured time is the library's own.

use std::{
    any::Any,
    sync::{
        Arc,
        mpsc::{Sender, channel},
    },
    thread,
};

use cuda_core::{
    Backend, DeviceInfo, Error, MemoryInfo, NoticeSink, Provider, Result, Ticket,
    protocol::{
        Answer, Capabilities, Control, Feature, Foreign, HostBlock, Notice, Reply, Request,
        StreamId, Submission,
    },
};

pub struct NullProvider;

struct Null {
    info: DeviceInfo,
    capabilities: Capabilities,
    /// The tickets of which a waiter wants to hear. Their thread ends with the device.
    wanted: Sender<Ticket>,
}

/// Device memory, in bytes.
const MEMORY: u64 = 1 << 40;
/// The kernels that a module may have.
const MAX_KERNELS: usize = 64;

// SAFETY: `Null` keeps the rules of `Backend`, because its submissions have no effect, and `notices` goes to its thread
// alone.
unsafe impl Provider for NullProvider {
    fn scheme(&self) -> &'static str {
        "null"
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        Ok(Vec::new())
    }

    fn open(&self, _: u32, notices: Arc<dyn NoticeSink>) -> Result<Arc<dyn Backend>> {
        let mut info = DeviceInfo::new("null", "a device that does nothing");
        info.memory = MEMORY;
        let mut capabilities = Capabilities::local(MEMORY);
        capabilities.graphs = true;
        let (wanted, tickets) = channel::<Ticket>();
        thread::spawn(move || {
            for Ticket { stream, number } in tickets {
                let progress = Notice::Progress { stream, accepted: number, complete: number };
                // SAFETY: submissions are complete when they are taken.
                unsafe { notices.notice(progress) };
            }
        });
        Ok(Arc::new(Null { info, capabilities, wanted }))
    }
}

// SAFETY: submissions have no effect, so they are complete when they are taken, and touch no memory.
unsafe impl Backend for Null {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    unsafe fn submit(&self, _: &Submission<'_>, _: &[Arc<HostBlock>]) -> Result<()> {
        Ok(())
    }

    unsafe fn control(&self, control: Control) -> Result<()> {
        // A thread that was preempted while it queried waits for a report. Without an answer it would wait for ever.
        if let Control::Want { ticket } = control {
            _ = self.wanted.send(ticket);
        }
        Ok(())
    }

    fn request(&self, request: Request, answer: Answer) {
        answer.give(match request {
            Request::Loaded { .. } => Ok(Reply::Loaded {
                max_threads: vec![1024; MAX_KERNELS],
                log: String::new(),
                entries: Vec::new(),
            }),
            Request::Memory => {
                Ok(Reply::Memory(MemoryInfo { used: 0, free: MEMORY, total: MEMORY }))
            }
            Request::GraphReady { .. } => Ok(Reply::GraphReady),
            Request::Reach { .. } => Ok(Reply::Reached(false)),
            Request::Reset => Ok(Reply::Reset { lost: None }),
            _ => Err(Error::unsupported(Feature::Request, &self.info.address)),
        });
    }

    /// Everything is complete. The client limits the number to the last one that it submitted.
    unsafe fn peek(&self, _: StreamId) -> Result<u64> {
        Ok(u64::MAX)
    }

    unsafe fn block_until(&self, _: Ticket) -> Result<()> {
        Ok(())
    }

    fn foreign(&self) -> Option<&dyn Foreign> {
        None
    }

    fn close(&self, retained: Vec<(Ticket, Box<dyn Any + Send + Sync>)>) {
        drop(retained);
    }
}
