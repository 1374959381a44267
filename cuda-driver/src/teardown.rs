//! Teardown: the resources that a dropped backend leaves to the helper thread.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use cuda_core::internals::sync::discard_panic;

use super::{
    context::{Bound, Primary, Reclaimable},
    driver::api::Address,
    graphs::GraphSlot,
    objects::{Mapping, ModuleSlot},
    streams::DriverStream,
};

/// Resources that submissions in flight still use. Each is dropped when its stream has passed its submission.
pub(super) struct Retained(pub(super) Vec<LastUse>);

/// A resource, and its last use.
pub(super) struct LastUse {
    /// `None` if the stream was retired, which means that it has run everything.
    pub(super) stream: Option<Arc<DriverStream>>,
    pub(super) number: u64,
    pub(super) resource: Box<dyn Any + Send + Sync>,
}

impl LastUse {
    fn is_complete(&self, primary: &Primary, bound: &Bound) -> bool {
        let Some(stream) = &self.stream else { return true };
        // A stream whose query fails counts as busy. If the device is lost, the queue leaks what it holds.
        stream.completed() >= self.number || stream.is_idle(primary, bound).unwrap_or(false)
    }
}

impl Reclaimable for Retained {
    fn reclaim(
        mut self: Box<Self>,
        primary: &'static Primary,
        bound: &Bound,
    ) -> Option<Box<dyn Reclaimable>> {
        for done in self.0.extract_if(.., |retained| retained.is_complete(primary, bound)) {
            // Its drop may run a user's code. A panic there must not drop the resources that are still in use.
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(done.resource))) {
                discard_panic(payload);
            }
        }
        if self.0.is_empty() { None } else { Some(self) }
    }
}

impl Drop for Retained {
    /// Leaks the remaining resources, because the device may still use them. There are none unless the thread unwinds.
    fn drop(&mut self) {
        std::mem::forget(std::mem::take(&mut self.0));
    }
}

/// The objects of a backend that was dropped. Given back when its streams have run everything.
pub(super) struct Objects {
    pub(super) streams: Vec<Arc<DriverStream>>,
    pub(super) memory: Vec<Address>,
    pub(super) mappings: Vec<Arc<Mapping>>,
    pub(super) modules: Vec<Arc<ModuleSlot>>,
    pub(super) graphs: Vec<Arc<GraphSlot>>,
}

impl Reclaimable for Objects {
    fn reclaim(
        mut self: Box<Self>,
        primary: &'static Primary,
        bound: &Bound,
    ) -> Option<Box<dyn Reclaimable>> {
        let busy = |stream: &Arc<DriverStream>| !stream.is_idle(primary, bound).unwrap_or(false);
        if self.streams.iter().any(busy) {
            return Some(self);
        }
        if !self.memory.is_empty() {
            self.free_memory(primary);
            // The frees have run when the stream is idle again.
            return Some(self);
        }
        if let Some(stream) = self.streams.first() {
            // The stream is idle, so this returns at once. After it the driver knows that the frees have run. After
            // a query alone it does not, and the pool could not be trimmed.
            // SAFETY: the stream is held.
            _ = unsafe { primary.api.stream_synchronize(stream.raw) };
        }
        for mapping in self.mappings.drain(..) {
            // SAFETY: the streams are idle, the backend is gone, and so no work uses the memory.
            unsafe { mapping.free() };
        }
        primary.backend_closed(bound);
        // Their drop puts each graph, each module and each stream into the queue, in this order.
        drop((self.graphs, self.modules, self.streams));
        None
    }
}

impl Objects {
    /// Frees the memory in the order of an idle stream where that is possible: other frees may wait for the whole
    /// device.
    fn free_memory(&mut self, primary: &Primary) {
        let stream = self.streams.first().filter(|_| primary.pool.is_some());
        for address in self.memory.drain(..) {
            // SAFETY: the backend's streams are idle and the backend is gone, so no submission uses the memory (rule
            // 6). The driver takes memory of pools in both ways. The stream is held.
            _ = unsafe {
                match stream {
                    Some(stream) => primary.api.pool_free(address, stream.raw),
                    None => primary.api.memory_free(address),
                }
            };
        }
    }
}
