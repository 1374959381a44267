//! Submits launches to the CUDA backend directly, without the layers above it.

use std::{borrow::Cow, cell::Cell, ffi::c_void, sync::Arc};

use benches::raw::LEN;
use cuda_async::{Error, LaunchConfig, Result};
use cuda_core::{
    Access, Backend, NoticeSink, Provider, Ticket,
    protocol::{
        AllocId, Control, FunctionId, Launch, ModuleId, ModuleImage, Notice, Region, Relocation,
        StreamId, Submission, Work,
    },
};
use cuda_driver::CudaProvider;

const STREAM: StreamId = StreamId(1);
const X: AllocId = AllocId(2);
const MODULE: ModuleId = ModuleId(3);

/// The index of `scale` among the kernels of the module.
fn scale() -> Result<u32> {
    let entries = cuda_core::protocol::entries(include_str!("../../kernels/basic.ptx"))?;
    Ok(entries.iter().position(|entry| entry.name == "scale").unwrap_or_default() as u32)
}

pub struct Bare {
    backend: Arc<dyn Backend>,
    work: Work<'static>,
    last: Cell<u64>,
}

/// Ignores all notices.
struct Ignore;

// SAFETY: every notice is dropped.
unsafe impl NoticeSink for Ignore {
    unsafe fn notice(&self, _: Notice) {}
}

impl Bare {
    pub fn new() -> Result<Self> {
        let backend = CudaProvider::new().open(0, Arc::new(Ignore))?;
        let image = ModuleImage::Ptx(include_str!("../../kernels/basic.ptx").into());
        let at = Ticket { stream: STREAM, number: 1 };
        // SAFETY: nothing is freed, retired or unloaded.
        unsafe {
            backend.control(Control::CreateStream { id: STREAM, priority: 0 })?;
            backend.control(Control::Allocate { id: X, bytes: 4 * LEN as u64, at })?;
            backend.control(Control::LoadModule { id: MODULE, image })?;
        }
        let mut params = vec![0; 8];
        params.extend_from_slice(&1.0f32.to_ne_bytes());
        params.extend_from_slice(&(LEN as u32).to_ne_bytes());
        let region = Region { alloc: X, offset: 0 };
        let address = Relocation { at: 0, region, bytes: 4 * LEN as u64, access: Access::Write };
        let work = Work::Launch(Launch {
            function: FunctionId { module: MODULE, entry: scale()? },
            config: LaunchConfig::for_num_elems(LEN as u32),
            params: Cow::Owned(params),
            relocations: Cow::Owned(vec![address]),
            variables: Default::default(),
        });
        Ok(Self { backend, work, last: Cell::new(1) })
    }

    /// The driver's stream.
    pub fn raw_stream(&self) -> Result<*mut c_void> {
        let foreign = self.backend.foreign().ok_or(Error::AlreadyEnded)?;
        Ok(foreign.raw_stream(STREAM)?.stream)
    }

    /// Submits launches and blocks until they are complete.
    pub fn chain(&self, launches: usize) {
        for _ in 0..launches {
            let ticket = Ticket { stream: STREAM, number: self.last.get() + 1 };
            self.last.set(ticket.number);
            let submission = Submission { ticket, after: &[], work: &self.work };
            // SAFETY: the kernel reads and writes `LEN` elements of memory that nothing else uses.
            benches::done(unsafe { self.backend.submit(&submission, &[]) });
        }
        // SAFETY: the stream is never retired.
        let ended =
            unsafe { self.backend.block_until(Ticket { stream: STREAM, number: self.last.get() }) };
        benches::done(ended);
    }
}
