//! A leased device behind a slow link: a node in this process, and a relay in front of it that delays every datagram.
//!
//! Host memory is pinned on a helper thread, as on a GPU.

use std::{sync::Arc, time::Duration};

use cuda_async::{Device, Result};
use cuda_core::{Backend, DeviceInfo, NoticeSink, Provider};
use cuda_cpu::CpuProvider;
use cuda_lease::{LeaseBuilder, internals};
use relay::{Relay, RelayOptions};

use crate::{devices::start_node, wrapper::with_capabilities};

/// Opens a CPU device of a new node behind a link with this delay in each direction.
pub struct LinkProvider(Duration);

impl LinkProvider {
    pub fn new(delay: Duration) -> Self {
        Self(delay)
    }

    pub fn open_device(&self) -> Device {
        Device::open(self, 0).unwrap()
    }
}

// SAFETY: the backend is that of a lease.
unsafe impl Provider for LinkProvider {
    fn scheme(&self) -> &'static str {
        "link"
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        CpuProvider::default().devices()
    }

    fn open(&self, _: u32, notices: Arc<dyn NoticeSink>) -> Result<Arc<dyn Backend>> {
        let node = start_node(CpuProvider::default()).parse().unwrap();
        let relay = Relay::start(node, RelayOptions::with_delay(self.0)).unwrap();
        let lease = LeaseBuilder::new(relay.address().to_string()).min_vram(4 << 30);
        // It relays until the process ends, as the node serves.
        std::mem::forget(relay);
        let leased = internals::provider(&lease)?.open(0, notices)?;
        let mut capabilities = leased.capabilities().clone();
        capabilities.slow_host_blocks = true;
        Ok(with_capabilities(leased, capabilities))
    }
}
