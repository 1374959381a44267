//! QUIC: the settings that client and node share.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

use socket2::SockRef;

/// The maximum size of a datagram. Large datagrams carry more bytes for the same work where the network accepts them:
/// the loopback network, and networks with jumbo frames. `quinn` passes ten datagrams to the kernel in one call. The
/// kernel accepts at most 64 KiB in a call, and `quinn` ignores the error above that. So a datagram has at most 6,500
/// bytes.
const DATAGRAM: u16 = 6500;

/// The bytes that a new connection may send before the first acknowledgement: ten datagrams, as RFC 9002 has it for
/// small ones. The default is two large datagrams. A search for the size of datagrams then fills it, and `quinn` does
/// not tell the peer that a connection is closed while the window is full.
const INITIAL_WINDOW: u64 = 10 * DATAGRAM as u64;

/// The maximum number of bytes that the kernel buffers for a socket. The usual 208 KiB overflow before a busy process
/// reads them, and each overflow looks like a loss of the network.
const SOCKET_BUFFER: usize = 4 << 20;

/// The maximum number of unread bytes of one lane (flow-control window).
const STREAM_WINDOW: u32 = 16 << 20;

/// The maximum number of unread bytes of all streams of a connection (flow-control window), and of bytes that were sent
/// and not acknowledged.
const CONNECTION_WINDOW: u32 = 64 << 20;

/// The same for a client whose connection serves no lease at the moment. A node has it for each connection.
const NARROW_WINDOW: u32 = 256 << 10;

/// A connection on which nothing arrives for this time is lost.
const IDLE: Duration = Duration::from_secs(5);

/// The code with which a node that stops closes its connections.
pub const STOPPED: quinn::VarInt = quinn::VarInt::from_u32(0);

/// The code with which a node closes the connection of a client that broke the protocol.
pub const BROKEN: quinn::VarInt = quinn::VarInt::from_u32(1);

/// The code with which a node closes the connection of a client whose certificate it does not accept.
pub const REFUSED: quinn::VarInt = quinn::VarInt::from_u32(2);

/// The code with which a node closes a connection beyond the limit of its tenant.
pub const OVER_QUOTA: quinn::VarInt = quinn::VarInt::from_u32(3);

/// The code with which a node closes a connection beyond its own limit.
pub const OVER_CAPACITY: quinn::VarInt = quinn::VarInt::from_u32(4);

/// The code with which a node closes the connection of a client whose certificate has expired, was revoked or is no
/// longer accepted for another reason. Its leases go on: the client can connect again with another certificate.
pub const CERTIFICATE_ENDED: quinn::VarInt = quinn::VarInt::from_u32(5);

/// Opens a UDP socket. With `server`, it accepts connections.
///
/// # Errors
/// Those of the socket.
pub fn endpoint(
    address: SocketAddr,
    server: Option<quinn::ServerConfig>,
) -> io::Result<quinn::Endpoint> {
    let mut config = quinn::EndpointConfig::default();
    config.max_udp_payload_size(DATAGRAM).map_err(io::Error::other)?;
    let socket = UdpSocket::bind(address)?;
    // The system may give less, or have a limit below its default: then the socket stays as it is.
    let buffers = SockRef::from(&socket);
    _ = buffers.set_recv_buffer_size(SOCKET_BUFFER);
    _ = buffers.set_send_buffer_size(SOCKET_BUFFER);
    quinn::Endpoint::new(config, server, socket, Arc::new(quinn::TokioRuntime))
}

/// Returns the settings of a client's connection.
pub fn connection() -> Arc<quinn::TransportConfig> {
    settings().into()
}

/// Returns the settings of a node's connections. They are narrow at first: see [`set_wide`].
pub fn narrow_connection() -> Arc<quinn::TransportConfig> {
    let mut config = settings();
    config.receive_window(NARROW_WINDOW.into()).send_window(NARROW_WINDOW.into());
    config.into()
}

/// Lets a connection use the memory that belongs to a lease, or no longer.
pub fn set_wide(connection: &quinn::Connection, is_wide: bool) {
    let window = if is_wide { CONNECTION_WINDOW } else { NARROW_WINDOW };
    connection.set_receive_window(window.into());
    connection.set_send_window(window.into());
}

fn settings() -> quinn::TransportConfig {
    let mut discovery = quinn::MtuDiscoveryConfig::default();
    discovery.upper_bound(DATAGRAM);
    let mut congestion = quinn::congestion::CubicConfig::default();
    congestion.initial_window(INITIAL_WINDOW);
    let mut config = quinn::TransportConfig::default();
    config
        .congestion_controller_factory(Arc::new(congestion))
        .mtu_discovery_config(Some(discovery))
        .stream_receive_window(STREAM_WINDOW.into())
        .receive_window(CONNECTION_WINDOW.into())
        .send_window(u64::from(CONNECTION_WINDOW))
        .keep_alive_interval(Some(IDLE / 5))
        .max_concurrent_bidi_streams(64u8.into())
        .max_concurrent_uni_streams(0u8.into())
        .datagram_receive_buffer_size(None)
        .max_idle_timeout(IDLE.try_into().ok());
    config
}
