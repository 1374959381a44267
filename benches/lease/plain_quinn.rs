//! A copy through `quinn` alone: one connection, one stream, a receiver that counts the bytes.

use std::{
    error::Error,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    sync::Arc,
};

use cuda_lease::authority::{ClientTls, ServerTls};
use quinn::{
    Connection, Endpoint, EndpointConfig, MtuDiscoveryConfig, RecvStream, SendStream, ServerConfig,
    TokioRuntime, TransportConfig,
};
use tokio::runtime::{Builder, Runtime};

/// The bytes of one write.
const PART: usize = 256 << 10;

type Failure = Box<dyn Error + Send + Sync>;

/// A client and a server, each on a runtime of its own as in a lease.
pub struct PlainCopy {
    client: Runtime,
    connection: Connection,
    bytes: usize,
    _server: Runtime,
}

impl PlainCopy {
    /// Connects, with datagrams of at most `datagram` bytes. Everything else is as `quinn` has it.
    pub fn new(bytes: usize, datagram: u16) -> Result<Self, Failure> {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let settings = connection(datagram);
        let server = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let endpoint = {
            let _entered = server.enter();
            let (mut server, _) = ServerTls::insecure().config_for(any)?;
            server.transport_config(settings.clone());
            open(any, Some(server), datagram)?
        };
        let address = endpoint.local_addr()?;
        server.spawn(async move {
            while let Some(incoming) = endpoint.accept().await {
                tokio::spawn(async move {
                    incoming.await.map(|connection| tokio::spawn(serve(connection, bytes)))
                });
            }
        });
        let client = Builder::new_current_thread().enable_all().build()?;
        let tls = ClientTls::loopback();
        let connection = client.block_on(async {
            let endpoint = open(any, None, datagram)?;
            let name = tls.server_name_for("127.0.0.1")?;
            let mut config = tls.config_for(address)?;
            config.transport_config(settings);
            Ok::<_, Failure>(endpoint.connect_with(config, address, &name)?.await?)
        })?;
        Ok(Self { client, connection, bytes, _server: server })
    }

    pub fn upload(&self) -> Result<(), Failure> {
        self.client.block_on(async {
            let (mut send, mut receive) = self.connection.open_bi().await?;
            send.write_all(&[0]).await?;
            write(&mut send, self.bytes).await?;
            count(&mut receive, 1).await
        })
    }

    pub fn download(&self) -> Result<(), Failure> {
        self.client.block_on(async {
            let (mut send, mut receive) = self.connection.open_bi().await?;
            send.write_all(&[1]).await?;
            count(&mut receive, self.bytes).await
        })
    }
}

fn open(
    address: SocketAddr,
    server: Option<ServerConfig>,
    datagram: u16,
) -> Result<Endpoint, Failure> {
    let mut config = EndpointConfig::default();
    config.max_udp_payload_size(datagram)?;
    let runtime = Arc::new(TokioRuntime);
    Ok(Endpoint::new(config, server, UdpSocket::bind(address)?, runtime)?)
}

fn connection(datagram: u16) -> Arc<TransportConfig> {
    let mut discovery = MtuDiscoveryConfig::default();
    discovery.upper_bound(datagram);
    let mut config = TransportConfig::default();
    config.mtu_discovery_config(Some(discovery));
    config.into()
}

async fn serve(connection: Connection, bytes: usize) -> Result<(), Failure> {
    loop {
        let (mut send, mut receive) = connection.accept_bi().await?;
        let mut way = [0];
        receive.read_exact(&mut way).await?;
        match way {
            [0] => {
                count(&mut receive, bytes).await?;
                send.write_all(&[0]).await?;
            }
            _ => write(&mut send, bytes).await?,
        }
        send.finish()?;
    }
}

async fn write(send: &mut SendStream, bytes: usize) -> Result<(), Failure> {
    let part = vec![0; PART];
    for _ in 0..bytes / PART {
        send.write_all(&part).await?;
    }
    Ok(())
}

async fn count(receive: &mut RecvStream, bytes: usize) -> Result<(), Failure> {
    let mut count = 0;
    while count < bytes {
        let chunk = receive.read_chunk(usize::MAX, true).await?.ok_or("the stream ended")?;
        count += chunk.bytes.len();
    }
    Ok(())
}
