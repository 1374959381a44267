//! Device memory with its history.

use std::sync::Arc;

use crate::{AllocId, Command, Device, Region, Result, Stream, hazard::Usage, sync::Mutex};

/// Untyped device memory; freed in stream order after its last use.
pub struct Allocation {
    device: Device,
    id: AllocId,
    bytes: u64,
    pub(crate) usage: Mutex<Usage>,
}

impl Allocation {
    /// Allocates on a stream; usable on every stream of the device at once.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory), or what the backend says.
    pub fn new(stream: &Stream, bytes: u64) -> Result<Arc<Self>> {
        let device = stream.device().clone();
        let id = AllocId(device.inner().next_id());
        // Dropped unless the backend took the command, so made only afterwards.
        let ticket = stream.submit(Command::Alloc { id, bytes: bytes.max(1) }, &[], None)?;
        let usage = Mutex::new(Usage::written(ticket));
        Ok(Arc::new(Self { device, id, bytes, usage }))
    }

    /// Its size in bytes, as asked for.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The device it is on.
    #[inline]
    pub fn device(&self) -> &Device {
        &self.device
    }

    #[inline]
    pub(crate) fn region(&self, offset: u64) -> Region {
        Region { alloc: self.id, offset }
    }
}

impl Allocation {
    /// Whether everything that used it is known to have run.
    pub(crate) fn is_settled(&self) -> bool {
        let streams = &self.device.inner().streams;
        self.usage.lock().last_uses().all(|ticket| streams.is_complete(ticket))
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        self.device.inner().retire_allocation(self.id, std::mem::take(self.usage.get_mut()));
    }
}

impl std::fmt::Debug for Allocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Allocation").field("id", &self.id).field("bytes", &self.bytes).finish()
    }
}
