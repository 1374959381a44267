//! The node: its socket, and the task that accepts connections.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    thread,
};

use cuda_core::{Error, Provider, Result};

use super::{connection, leases::Leases};
use crate::{authority::ServerTls, client::transport};

/// The settings of a node.
pub struct NodeOptions {
    /// The address to listen on. Port 0 chooses a free one.
    pub listen: SocketAddr,
    /// The certificates of the node.
    pub tls: ServerTls,
    /// The device.
    pub provider: Box<dyn Provider>,
    /// The maximum number of submissions of a client in flight on a stream.
    pub submissions_in_flight: u64,
}

impl NodeOptions {
    /// A node on a free port of the loopback address, for the device of a provider.
    pub fn loopback(provider: impl Provider + 'static) -> Self {
        let listen = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        Self {
            listen,
            tls: ServerTls::insecure(),
            provider: Box::new(provider),
            submissions_in_flight: 4096,
        }
    }
}

/// A node in this process. It stops when it is dropped.
pub struct Node {
    address: SocketAddr,
    endpoint: quinn::Endpoint,
    _runtime: tokio::runtime::Runtime,
}

impl Node {
    /// Starts a node.
    ///
    /// # Errors
    /// The device cannot be used, or the address not be listened on.
    pub fn start(options: NodeOptions) -> Result<Self> {
        let leases = Arc::new(Leases::new(options.provider, options.submissions_in_flight)?);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(thread::available_parallelism().map_or(2, Into::into).min(4))
            .thread_name("lease-node")
            .enable_all()
            .build()
            .map_err(|error| Error::host("failed to start the runtime of the node", &error))?;
        let _entered = runtime.enter();
        let config = options.tls.config_for(options.listen);
        let mut config = config.map_err(|error| Error::host("failed to set up TLS", &error))?;
        config.transport_config(transport().into());
        let endpoint = quinn::Endpoint::server(config, options.listen).map_err(|error| {
            Error::host(format!("failed to listen on {}", options.listen), &error)
        })?;
        let address = endpoint.local_addr();
        let address = address.map_err(|error| Error::host("the socket has no address", &error))?;
        runtime.spawn(accept(endpoint.clone(), leases));
        drop(_entered);
        Ok(Self { address, endpoint, _runtime: runtime })
    }

    /// Returns the address that the node listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.endpoint.close(0u32.into(), b"the node stops");
    }
}

async fn accept(endpoint: quinn::Endpoint, leases: Arc<Leases>) {
    while let Some(incoming) = endpoint.accept().await {
        let leases = leases.clone();
        tokio::spawn(async move {
            match incoming.await {
                Ok(connection) => connection::serve(leases, connection).await,
                Err(error) => tracing::debug!(%error, "a handshake failed"),
            }
        });
    }
}
