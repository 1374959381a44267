//! The node: its socket, and the task that accepts connections.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    thread,
};

use cuda_core::{Error, Provider, Result};

use super::{connection, leases::Leases};
use crate::client::transport;

/// The settings of a node.
pub struct NodeOptions {
    /// The address to listen on. Port 0 chooses a free one.
    pub listen: SocketAddr,
    /// The device.
    pub provider: Box<dyn Provider>,
}

impl NodeOptions {
    /// A node on a free port of the loopback address, for the device of a provider.
    pub fn loopback(provider: impl Provider + 'static) -> Self {
        let listen = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        Self { listen, provider: Box::new(provider) }
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
        let leases = Arc::new(Leases::new(options.provider)?);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(thread::available_parallelism().map_or(2, Into::into).min(4))
            .thread_name("lease-node")
            .enable_all()
            .build()
            .map_err(|error| Error::host("failed to start the runtime of the node", &error))?;
        let _entered = runtime.enter();
        let config = server_config()?;
        let endpoint = quinn::Endpoint::server(config, options.listen)
            .map_err(|error| Error::host(format!("failed to listen on {}", options.listen), &error))?;
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

/// Temporary, until certificates are merged.
fn server_config() -> Result<quinn::ServerConfig> {
    let fail = |error: &dyn std::fmt::Display| Error::host("failed to make a certificate", &error);
    let key = rcgen::generate_simple_self_signed(vec!["localhost".into()]).map_err(|e| fail(&e))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|e| fail(&e))?
        .with_no_client_auth()
        .with_single_cert(
            vec![key.cert.der().clone()],
            rustls::pki_types::PrivateKeyDer::Pkcs8(key.signing_key.serialize_der().into()),
        )
        .map_err(|e| fail(&e))?;
    tls.alpn_protocols = vec![crate::wire::ALPN.to_vec()];
    let crypto = quinn::crypto::rustls::QuicServerConfig::try_from(tls).map_err(|e| fail(&e))?;
    let mut config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
    config.transport_config(transport().into());
    Ok(config)
}
