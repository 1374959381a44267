//! Executables: graphs that a backend has prepared.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use crate::{
    handle::device::{Device, WeakDevice},
    protocol::{Control, Graph, GraphId, Reply, Request, Result},
    runtime::{Pending, unexpected},
};

/// A graph of a backend. Dropping it drops the graph. So the resources of its launches (`launch_resources`) hold it
/// until all launches are complete.
pub(crate) struct Executable {
    device: WeakDevice,
    id: GraphId,
    is_ready: Arc<AtomicBool>,
}

impl Executable {
    /// Starts to prepare a graph. Never blocks.
    ///
    /// # Errors
    /// An error of the backend that is known at once.
    pub(crate) fn new(device: &Device, graph: Graph) -> Result<Self> {
        let core = device.core();
        let id = GraphId(core.next_id());
        let control = Control::CreateGraph { id, graph: Arc::new(graph) };
        // SAFETY: the control frees, retires, drops and unloads nothing.
        unsafe { core.backend.control(control) }?;
        Ok(Self { device: device.downgrade(), id, is_ready: Arc::default() })
    }

    pub(crate) fn id(&self) -> GraphId {
        self.id
    }

    /// Whether the preparation has ended, so that a launch does not wait for it.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Acquire)
    }

    /// Returns a wait for the end of the preparation.
    pub(crate) fn ready(&self, device: &Device) -> Pending<()> {
        if self.is_ready() {
            return Pending::ready(Ok(()));
        }
        let is_ready = self.is_ready.clone();
        device.core().request(Request::GraphReady { graph: self.id }, move |reply| match reply {
            Reply::GraphReady => {
                is_ready.store(true, Ordering::Release);
                Ok(())
            }
            other => Err(unexpected(&other)),
        })
    }
}

impl Drop for Executable {
    fn drop(&mut self) {
        if let Some(device) = self.device.upgrade() {
            device.core().retire_graph(self.id);
        }
    }
}
