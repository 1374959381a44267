use std::{any::Any, sync::Arc};

use cuda_async::{
    Result,
    cuda_core::{
        Backend, DeviceInfo, Ticket,
        protocol::{
            Answer, Capabilities, Control, Foreign, HostBlock, Request, StreamId, Submission,
        },
    },
};

struct Forger(Arc<dyn Backend>);

impl Backend for Forger {
    fn info(&self) -> &DeviceInfo {
        self.0.info()
    }

    fn capabilities(&self) -> &Capabilities {
        self.0.capabilities()
    }

    unsafe fn submit(&self, _: &Submission<'_>, _: &[Arc<HostBlock>]) -> Result<()> {
        Ok(())
    }

    unsafe fn control(&self, _: Control) -> Result<()> {
        Ok(())
    }

    fn request(&self, _: Request, _: Answer) {}

    unsafe fn peek(&self, _: StreamId) -> Result<u64> {
        Ok(u64::MAX)
    }

    unsafe fn block_until(&self, _: Ticket) -> Result<()> {
        Ok(())
    }

    fn foreign(&self) -> Option<&dyn Foreign> {
        None
    }

    fn close(&self, _: Vec<(Ticket, Box<dyn Any + Send + Sync>)>) {}
}

fn main() {}
