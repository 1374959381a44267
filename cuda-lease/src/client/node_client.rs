//! Requests to a node without a session: inventory, and leases that outlive their connection.

use std::{sync::mpsc::SyncSender, time::Duration};

use bytes::Bytes;
use cuda_core::{DeviceInfo, Error, Result};
use tokio::sync::mpsc;

use super::{
    LeaseBuilder,
    connection::{Connection, LeaseTerms, connect, endpoint, grant_within, start},
    end::{cause, unavailable},
    spans,
    streams::{RequestStream, Unanswered, unanswered},
    submit::{Channel, Job, Submit},
};
use crate::{
    authority::ClientTls,
    wire::{
        Allocate, Confirm, DeviceEntry, Free, Granted, Inventory, InventoryReply, LeaseEntry,
        Renew, Renewed, WireError, features,
    },
};

/// The time in which a node answers a request. A request for a lease has more: [`grant_within`].
const ANSWER: Duration = Duration::from_secs(10);

/// The maximum duration of closing the connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// A lease without a connection. It lasts until it expires or is [freed](NodeClient::free). The library does not renew
/// it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct DetachedLease {
    /// The id of the lease at its node.
    pub id: u64,
    /// The token that gives access to the lease, for programs whose client certificates have the same key. For another
    /// key of the same tenant, [`renew`](NodeClient::renew) gives a token.
    pub token: Bytes,
    /// The time from the reply of the node until the lease expires.
    pub expires_in: Duration,
    /// The memory quota in bytes.
    pub memory: u64,
    /// The device.
    pub device: DeviceInfo,
}

/// A connection to a node for requests without a session. Calls block the calling thread. The connection ends when the
/// certificate of the client expires: connect again with a renewed one. Detached leases go on.
///
/// ```standalone_crate
/// use cuda_cpu::CpuProvider;
/// use cuda_lease::{Job, LeaseBuilder, NodeClient, authority::ClientTls};
/// use cuda_node::supervisor::{DeviceOptions, Node, NodeOptions};
///
/// let device = DeviceOptions::in_process(CpuProvider::default());
/// let node = Node::start(NodeOptions::loopback(vec![device]))?;
/// let address = node.address().to_string();
///
/// let client = NodeClient::connect(&address, ClientTls::loopback())?;
/// assert_eq!(client.inventory()?[0].leases, 0);
/// let lease = client.allocate(&LeaseBuilder::new(&address).min_vram(1 << 20).lease_secs(60))?;
/// # let ptx = include_str!("../../../kernels/iota.ptx");
/// let job = Job::new("iota", ptx).block(4).arg(&4u32).max_output(16);
/// let done = client.submit(lease.id, lease.token.clone(), job).launch_blocking()?;
/// assert_eq!(done.output_as::<f32>()?, [1.0, 2.0, 3.0, 4.0]);
/// client.free(lease.id, lease.token)?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub struct NodeClient {
    connection: Connection,
    address: String,
    /// The features that both sides have, as in [`features`].
    features: u64,
}

impl NodeClient {
    /// Connects to the node at `HOST:PORT`.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if no node answers within 5 seconds, [`Error::Remote`] if it refuses, [`Error::Misuse`] for
    /// an invalid address or certificate.
    pub fn connect(node: &str, tls: ClientTls) -> Result<Self> {
        let terms = LeaseBuilder::new(node).tls(tls).terms()?;
        let ((connection, features), thread) =
            start("cuda-lease-node", node, move |opened| serve(terms, opened))?;
        connection.set_thread(thread);
        Ok(Self { connection, address: node.to_owned(), features })
    }

    /// Lists the devices of the node.
    ///
    /// # Errors
    /// [`Error::Remote`] if the node refuses, [`Error::Disconnected`] if the connection has ended or the node does not
    /// answer within 10 seconds.
    pub fn inventory(&self) -> Result<Vec<DeviceEntry>> {
        self.listing().map(|reply| reply.devices)
    }

    /// Lists the leases of this client's tenant.
    ///
    /// # Errors
    /// The errors of [`inventory`](Self::inventory).
    pub fn leases(&self) -> Result<Vec<LeaseEntry>> {
        self.listing().map(|reply| reply.leases.unwrap_or_default())
    }

    fn listing(&self) -> Result<InventoryReply> {
        let reply = self.request(Inventory::OPCODE, ANSWER, |out| Inventory {}.encode(out))?;
        self.read(InventoryReply::decode(&reply))
    }

    /// Requests a lease with the terms of `request`, which outlives this connection. The node of `request` is ignored,
    /// and the library does not renew the lease. The client confirms the grant: a lease whose client has gone before ends
    /// after the reconnect window of the node.
    ///
    /// # Errors
    /// The errors of [`inventory`](Self::inventory). The node has a minute to answer, and the time that `request` may
    /// wait. After [`Error::Disconnected`], the lease may have been granted: see [`leases`](Self::leases) and
    /// [`free_own`](Self::free_own).
    pub fn allocate(&self, request: &LeaseBuilder) -> Result<DetachedLease> {
        let allocate = Allocate { detached: true, ..request.request()? };
        let span = spans::lease(allocate.trace.as_ref(), &self.address);
        let _entered = span.enter();
        let within = grant_within(&allocate);
        let reply = self.request(Allocate::OPCODE, within, |out| allocate.encode(out))?;
        let granted = self.read(Granted::decode(&reply))?;
        span.record("lease", granted.lease);
        if self.features & features::CONFIRM != 0 {
            let confirm = Confirm { lease: granted.lease, token: granted.token.clone() };
            self.request(Confirm::OPCODE, ANSWER, |out| confirm.encode(out))?;
        }
        Ok(DetachedLease {
            id: granted.lease,
            token: granted.token,
            expires_in: Duration::from_millis(granted.expires_in_ms),
            memory: granted.limits.memory,
            device: granted.device,
        })
    }

    /// Renews a lease: it expires `lease_secs` seconds from now. Returns its new token and the time that is left. The
    /// old token stays valid for a while. It may have been issued for another key of the same tenant: the new token is
    /// for the key of this client. So a client whose certificate has a new key renews its leases first.
    ///
    /// # Errors
    /// The errors of [`inventory`](Self::inventory).
    pub fn renew(&self, lease: u64, token: Bytes, lease_secs: u32) -> Result<(Bytes, Duration)> {
        let renew = Renew { lease, token, lease_secs };
        let reply = self.request(Renew::OPCODE, ANSWER, |out| renew.encode(out))?;
        let renewed = self.read(Renewed::decode(&reply))?;
        Ok((renewed.token, Duration::from_millis(renewed.expires_in_ms)))
    }

    /// Ends a lease. Work in flight is lost. [`free_own`](Self::free_own) needs no token.
    ///
    /// # Errors
    /// The errors of [`inventory`](Self::inventory).
    pub fn free(&self, lease: u64, token: Bytes) -> Result<()> {
        let free = Free { lease, token };
        self.request(Free::OPCODE, ANSWER, |out| free.encode(out)).map(drop)
    }

    /// Ends a lease of this client without its token, which may be lost: [`leases`](Self::leases) has its id. Work in
    /// flight is lost.
    ///
    /// # Errors
    /// The errors of [`inventory`](Self::inventory). The node refuses if the key of the client certificate is not the
    /// one that acquired or last renewed the lease, or if the node verifies no certificates.
    pub fn free_own(&self, lease: u64) -> Result<()> {
        self.free(lease, Bytes::new())
    }

    /// Creates a stateless submit of a job to a lease of this client, without a session.
    pub fn submit(&self, lease: u64, token: Bytes, job: Job) -> Submit<'_> {
        job.with_lease(&self.connection.channel, lease, move || token.clone(), None)
    }

    /// Closes the connection, and blocks for at most one second until the node has acknowledged the end.
    pub fn close(self) {
        self.connection.close();
    }

    fn request(
        &self,
        opcode: u16,
        within: Duration,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Bytes> {
        self.connection.channel.check_thread()?;
        let mut body = Vec::new();
        encode(&mut body);
        let (reply, channel) = (self.connection.request(opcode, body)?, &self.connection.channel);
        // A timer needs the runtime of the channel.
        let reply = channel.wait(async move { tokio::time::timeout(within, reply).await })?;
        let reply = reply.map_err(|_| Error::Disconnected {
            address: self.address.clone(),
            cause: unanswered("a request", within),
            may_have_run: true,
        })?;
        let reply = reply.map_err(|_| channel.ended(true))?;
        reply.map_err(|refused| channel.refused(refused))
    }

    fn read<T>(&self, message: Result<T, WireError>) -> Result<T> {
        message.map_err(|error| unavailable(&self.address, error.into()))
    }
}

impl std::fmt::Debug for NodeClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeClient").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Serves the connection until the client is dropped or the connection ends.
async fn serve(terms: LeaseTerms, opened: SyncSender<Result<(Connection, u64)>>) {
    let (endpoint, connection, mut stream) = match open(&terms).await {
        Ok(open) => open,
        Err(error) => {
            _ = opened.send(Err(error));
            return;
        }
    };
    let (channel, current) = Channel::new(terms.address);
    current.send_replace(Some(Ok(connection.clone())));
    let (requests, mut received) = mpsc::unbounded_channel();
    _ = opened.send(Ok((Connection::new(requests, channel), stream.features)));
    let (_renew, mut renewals) = mpsc::unbounded_channel();
    let mut unanswered = Unanswered::default();
    let served = stream.serve(&mut unanswered, &mut received, &mut renewals, |_, _| ());
    if let Err(end) = served.await {
        tracing::debug!(?end, "the connection to a node ended");
        current.send_replace(Some(Err(cause(end))));
    }
    drop(current);
    connection.close(0u32.into(), b"");
    endpoint.close(0u32.into(), b"");
    _ = tokio::time::timeout(CLOSE_TIMEOUT, endpoint.wait_idle()).await;
}

async fn open(terms: &LeaseTerms) -> Result<(quinn::Endpoint, quinn::Connection, RequestStream)> {
    let endpoint = endpoint(terms)?;
    let connected = connect(&endpoint, terms).await;
    let (connection, stream) = connected.map_err(|end| unavailable(&terms.address, end))?;
    Ok((endpoint, connection, stream))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::authority::ServerTls;

    #[tokio::test]
    async fn ended_handshakes_are_repeated_a_few_times() {
        let address = ([127, 0, 0, 1], 0).into();
        let (config, _) = ServerTls::insecure().config_for(address).unwrap();
        let node = quinn::Endpoint::server(config, address).unwrap();
        let (address, handshakes) = (node.local_addr().unwrap(), AtomicUsize::new(0));
        let node = async {
            while let Some(incoming) = node.accept().await {
                // After its first step, and before.
                match handshakes.fetch_add(1, Ordering::Relaxed) % 2 {
                    0 => drop(incoming.accept()),
                    _ => incoming.refuse(),
                }
            }
        };
        let client = tokio::task::spawn_blocking(move || {
            NodeClient::connect(&address.to_string(), ClientTls::loopback()).unwrap_err()
        });
        let error = tokio::select! {
            () = node => unreachable!("the endpoint is open"),
            error = client => error.unwrap(),
        };
        assert!(error.to_string().contains("ended the handshake"), "{error}");
        assert_eq!(handshakes.into_inner(), 5);
    }
}
