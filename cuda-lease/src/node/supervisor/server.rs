//! The node: its socket, and the task that accepts connections.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    thread,
};

use cuda_core::{DeviceInfo, Error, Provider, Result};

use super::{
    connection,
    leases::{Client, Leases, Slot},
    workers::Launcher,
};
use crate::{
    authority::{ServerTls, TokenKey},
    client::transport,
    node::{
        leases::{LeaseTable, SlotConfig, TableConfig},
        quotas::Quotas,
    },
    wire::Limits,
};

/// The bytes of host copies in flight on a stream.
const HOST_BYTES: u64 = 64 << 20;

/// The streams of a session.
const STREAMS: u32 = 1024;

/// The bytes of a module.
const MODULE_BYTES: u64 = 64 << 20;

/// The connections at a time, those in their handshake included.
const CONNECTIONS: usize = 1024;

/// The settings of a node.
pub struct NodeOptions {
    /// The address to listen on. Port 0 chooses a free one.
    pub listen: SocketAddr,
    /// The certificates of the node.
    pub tls: ServerTls,
    /// The devices.
    pub devices: Vec<DeviceOptions>,
    /// The limits of leases.
    pub table: TableConfig,
    /// The limits of tenants.
    pub quotas: Quotas,
    /// The maximum number of submissions of a client in flight on a stream.
    pub submissions_in_flight: u64,
}

/// A device of a node.
pub struct DeviceOptions {
    /// The description.
    pub info: DeviceInfo,
    /// The limits of its leases.
    pub slot: SlotConfig,
    launcher: Launcher,
}

impl DeviceOptions {
    /// The first device of a provider, for workers that are threads of this process.
    ///
    /// # Errors
    /// The provider has no device.
    pub fn in_process(provider: impl Provider + 'static) -> Result<Self> {
        let info = provider.devices()?.into_iter().next().ok_or_else(|| Error::NoDevice {
            address: provider.scheme().into(),
            available: "none".into(),
        })?;
        let (name, capacity) = (info.address.clone(), info.memory);
        let slot = SlotConfig { name, capacity, reserve: 0, max_leases: 64 };
        Ok(Self { info, slot, launcher: Launcher::InProcess(Arc::new(provider)) })
    }
}

impl NodeOptions {
    /// A node on a free port of the loopback address, with the usual limits.
    pub fn loopback(devices: Vec<DeviceOptions>) -> Self {
        Self {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
            tls: ServerTls::insecure(),
            devices,
            table: TableConfig::default(),
            quotas: Quotas::default(),
            submissions_in_flight: 4096,
        }
    }
}

/// A node in this process. It stops when it is dropped.
pub struct Node {
    address: SocketAddr,
    endpoint: quinn::Endpoint,
    leases: Arc<Leases>,
    _runtime: tokio::runtime::Runtime,
}

impl Node {
    /// Starts a node.
    ///
    /// # Errors
    /// The settings contradict each other, or the address cannot be listened on.
    pub fn start(options: NodeOptions) -> Result<Self> {
        let (slots, devices): (Vec<_>, Vec<_>) =
            options.devices.into_iter().map(|it| (it.slot, (it.info, it.launcher))).unzip();
        let table = LeaseTable::new(options.table, slots, options.quotas).map_err(invalid)?;
        let slots = devices.into_iter().map(|(info, launcher)| Slot { info, launcher }).collect();
        let limits = Limits {
            submissions_in_flight: options.submissions_in_flight,
            host_bytes_in_flight: HOST_BYTES,
            memory: 0,
            streams: STREAMS,
            module_bytes: MODULE_BYTES,
        };
        let key = TokenKey::random().map_err(|error| invalid(&error))?;
        let leases = Leases::new(table, key, slots, limits);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(thread::available_parallelism().map_or(2, Into::into).min(4))
            .thread_name("lease-node")
            .enable_all()
            .build()
            .map_err(|error| Error::host("failed to start the runtime of the node", &error))?;
        let mut config = options.tls.config_for(options.listen).map_err(invalid)?;
        config.transport_config(transport().into());
        let endpoint = {
            let _entered = runtime.enter();
            quinn::Endpoint::server(config, options.listen)
        };
        let failed = |error| Error::host(format!("failed to listen on {}", options.listen), &error);
        let endpoint = endpoint.map_err(failed)?;
        let address = endpoint.local_addr();
        let address = address.map_err(|error| Error::host("the socket has no address", &error))?;
        runtime.spawn(leases.clone().run());
        runtime.spawn(accept(endpoint.clone(), leases.clone(), options.tls));
        Ok(Self { address, endpoint, leases, _runtime: runtime })
    }

    /// Returns the address that the node listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Replaces the quotas of tenants. Later requests and renewals have the new ones.
    pub fn set_quotas(&self, quotas: Quotas) {
        self.leases.set_quotas(quotas);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.endpoint.close(0u32.into(), b"the node stops");
    }
}

fn invalid(error: impl std::fmt::Display) -> Error {
    Error::Misuse { what: "the settings of a node".into(), detail: error.to_string() }
}

async fn accept(endpoint: quinn::Endpoint, leases: Arc<Leases>, tls: ServerTls) {
    let tls = Arc::new(tls);
    let mut connections = 0;
    while let Some(incoming) = endpoint.accept().await {
        connections += 1;
        if endpoint.open_connections() > CONNECTIONS {
            incoming.refuse();
            continue;
        }
        let (leases, tls, connection) = (leases.clone(), tls.clone(), connections);
        tokio::spawn(async move {
            let accepted = async {
                let connected = incoming.await.map_err(|error| error.to_string())?;
                let (tenant, fingerprint) =
                    tls.identify(&connected).map_err(|error| error.to_string())?;
                Ok::<_, String>((connected, Client { tenant, fingerprint, connection }))
            };
            match accepted.await {
                Ok((connected, client)) => connection::serve(leases, client, connected).await,
                Err(error) => tracing::info!(error, "a client was refused"),
            }
        });
    }
}
