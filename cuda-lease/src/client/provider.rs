//! Opens a lease as a device.

use std::{sync::Arc, time::Duration};

use cuda_core::{Backend, DeviceInfo, NoticeSink, Provider, Result, protocol::Capabilities};
use parking_lot::Mutex;

use super::{
    backend::LeaseBackend,
    connection::{LeaseConnection, Opened, dial::LeaseTerms, lease_thread},
    link::Link,
};
use crate::wire::features;

/// The provider of one lease.
pub(super) struct LeaseProvider {
    terms: LeaseTerms,
    opened: Mutex<Option<(Arc<LeaseConnection>, Arc<Link>)>>,
}

impl LeaseProvider {
    pub(super) fn new(terms: LeaseTerms) -> Self {
        Self { terms, opened: Mutex::default() }
    }

    /// The connection that [`open`](Provider::open) made.
    pub(super) fn take(&self) -> Option<(Arc<LeaseConnection>, Arc<Link>)> {
        self.opened.lock().take()
    }
}

// SAFETY: `LeaseBackend` keeps the rules of a backend, and `notices` goes to its link alone.
unsafe impl Provider for LeaseProvider {
    fn scheme(&self) -> &'static str {
        "lease"
    }

    /// Returns an empty list. Use [`NodeClient::inventory`](super::NodeClient::inventory) to list the devices of a
    /// node.
    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        Ok(Vec::new())
    }

    fn open(&self, _: u32, notices: Arc<dyn NoticeSink>) -> Result<Arc<dyn Backend>> {
        let opened = lease_thread::open(self.terms.clone(), notices)?;
        let Opened { granted, features, link, connection } = opened;
        let mut info = granted.device;
        info.address = format!("lease://{}/{}", self.terms.address, info.address);
        info.memory = granted.limits.memory;
        let mut capabilities = Capabilities::local(granted.limits.memory);
        capabilities.submissions_in_flight = granted.limits.submissions_in_flight;
        capabilities.host_bytes_in_flight = granted.limits.host_bytes_in_flight;
        capabilities.ordered_visibility = false;
        capabilities.graphs = features & features::GRAPHS != 0;
        capabilities.loops = features & features::LOOPS != 0;
        capabilities.launch_attributes = features & features::ATTRIBUTES != 0;
        let has_pools = features & features::POOLS != 0;
        capabilities.pools = if has_pools { features::MAX_POOLS } else { 0 };
        *self.opened.lock() = Some((connection.clone(), link.clone()));
        Ok(Arc::new(LeaseBackend { info, capabilities, link, _connection: connection }))
    }
}

/// The total time for which leases are renewed if the user states no other.
pub(super) const DEFAULT_RENEWAL: Duration = Duration::from_secs(24 * 60 * 60);
