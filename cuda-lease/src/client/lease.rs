//! A lease: a device of a node, for a time.

use std::{ops::Deref, sync::Arc, time::Duration};

use bytes::Bytes;
use cuda_core::{Device, Result, protocol::Status};

use super::{
    connection::{Connection, RENEW},
    link::Link,
};

/// A lease. It ends when the `Lease` and every clone of its [`Device`] are dropped, or when its time is over.
///
/// A `Lease` dereferences to its device, so it can be used wherever a `&Device` is.
pub struct Lease {
    device: Device,
    connection: Arc<Connection>,
    link: Arc<Link>,
}

impl Lease {
    pub(super) fn new(device: Device, connection: Arc<Connection>, link: Arc<Link>) -> Self {
        Self { device, connection, link }
    }

    /// Returns the leased device. All of `cuda-async` works on it.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the id of the lease at its node.
    pub fn id(&self) -> u64 {
        self.connection.grant.lease
    }

    /// Returns the token that gives access to the lease, for another program of the same client.
    pub fn token(&self) -> Bytes {
        self.connection.grant.token()
    }

    /// Returns the generation of the lease: 1, and one more with each renewal.
    pub fn generation(&self) -> u32 {
        self.connection.grant.generation()
    }

    /// Returns the time until the lease expires.
    pub fn expires_in(&self) -> Duration {
        self.connection.grant.expires_in()
    }

    /// Renews the lease: it expires `lease_secs` seconds from now. Work in flight is not disturbed. Blocks until the node
    /// replies.
    ///
    /// # Errors
    /// [`Error::Remote`](cuda_core::Error::Remote) if the node refuses, or the error that ended the lease.
    pub fn renew(&self, lease_secs: u32) -> Result<()> {
        let connection = &self.connection;
        let reply = connection.request(RENEW, connection.renew_request(lease_secs))?;
        self.renewed(reply.blocking_recv().map_err(|_| connection.ended())?)
    }

    /// As [`renew`](Self::renew), without blocking the calling thread.
    ///
    /// # Errors
    /// As [`renew`](Self::renew).
    pub async fn renew_async(&self, lease_secs: u32) -> Result<()> {
        let connection = &self.connection;
        let reply = connection.request(RENEW, connection.renew_request(lease_secs))?;
        self.renewed(reply.await.map_err(|_| connection.ended())?)
    }

    fn renewed(&self, reply: Result<Bytes, (Status, String)>) -> Result<()> {
        let reply = reply.map_err(|refused| self.connection.refused(refused))?;
        self.connection.renewed(&reply)
    }

    /// Returns the number of bursts of commands so far. A burst ends when something is received from the node, so a
    /// pipeline that is sent in one burst takes one round trip.
    pub fn bursts(&self) -> u64 {
        self.link.bursts()
    }

    /// Ends the lease now. Work in flight is lost, and its futures fail.
    pub fn free(self) {
        self.connection.free();
    }
}

impl Deref for Lease {
    type Target = Device;

    fn deref(&self) -> &Device {
        &self.device
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut f = f.debug_struct("Lease");
        f.field("id", &self.id()).field("device", &self.device.info().address);
        f.finish_non_exhaustive()
    }
}
