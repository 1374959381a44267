//! A device behind a slow link: every submission, control, request, reply and notice travels as bytes, with a delay in
//! each direction, and is carried out on a CPU device at the far end.
//!
//! Host memory is pinned on a helper thread, as on a GPU. The link shows that the protocol is complete and that nothing waits for the link where it need not. Frames count round
//! trips as a Lamport clock does: a frame of the client carries the number of round trips that it depends on, and a
//! frame of the node one more than the largest it has received.

mod client;
mod delay;
mod errors;
mod node;
mod schema;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use cuda_async::{Device, Result};
use cuda_core::{Backend, DeviceInfo, NoticeSink, Provider};
use cuda_cpu::{CpuOptions, CpuProvider};

/// Opens CPU devices at the far end of a link.
#[derive(Clone)]
pub struct LinkProvider {
    delay: Duration,
    options: CpuOptions,
    trips: Arc<AtomicU64>,
}

impl LinkProvider {
    /// With this delay in each direction.
    pub fn new(delay: Duration) -> Self {
        let (options, trips) = Default::default();
        Self { delay, options, trips }
    }

    pub fn open_device(&self) -> Device {
        Device::open(self, 0).unwrap()
    }

    /// Round trips on the longest chain of dependent frames so far.
    pub fn round_trips(&self) -> u64 {
        self.trips.load(Ordering::SeqCst)
    }
}

// SAFETY: the client keeps the rules of `Backend`, and the node's notices are those of the CPU device.
unsafe impl Provider for LinkProvider {
    fn scheme(&self) -> &'static str {
        "link"
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        CpuProvider::default().devices()
    }

    fn open(&self, _: u32, notices: Arc<dyn NoticeSink>) -> Result<Arc<dyn Backend>> {
        let (to_node, from_client) = delay::link(self.delay);
        let (to_client, from_node) = delay::link(self.delay);
        let info = node::start(CpuProvider::new(self.options.clone()), from_client, to_client)?;
        Ok(client::start(info, to_node, from_node, notices, self.trips.clone()))
    }
}
