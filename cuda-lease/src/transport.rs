//! QUIC: the settings that client and node share.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

use quinn::Runtime as _;
use socket2::SockRef;

use crate::datagrams::Datagrams;

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

/// The flow-control window of a *narrow* connection: one that has served no lease, in the node. Other connections are
/// *wide*: they have [`CONNECTION_WINDOW`] and [`STREAMS`].
#[cfg(feature = "server")]
const NARROW_WINDOW: u32 = 256 << 10;

/// The maximum number of streams that a client has open on a wide connection.
const STREAMS: u8 = 64;

/// The maximum number of streams that a client has open on a narrow connection. A stream that the node does not read yet
/// takes kilobytes of the node besides its bytes.
#[cfg(feature = "server")]
const NARROW_STREAMS: u8 = 8;

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

/// The code with which a node closes a connection whose leases go on: another node takes them over, or the connection is
/// one too many for them. The client connects again, and resumes. As any code that is not listed in its version, this is a
/// lost connection.
#[cfg(feature = "server")]
pub const CONNECT_AGAIN: quinn::VarInt = quinn::VarInt::from_u32(16);

/// The secret of an endpoint. An endpoint that starts again with the same secret tells its peers that their connections
/// are lost, so they need not wait until the connections time out (stateless reset, RFC 9000, section 10.3).
pub struct ResetKey([u8; 32]);

impl ResetKey {
    /// Derives the secret from one that only this node has.
    #[cfg(feature = "server")]
    pub fn derive(secret: &[u8; 32]) -> Self {
        Self(blake3::derive_key("cuda-lease 2026-11-29 stateless resets", secret))
    }

    fn apply(self, config: &mut quinn::EndpointConfig) {
        let Self(key) = self;
        let ids = ConnectionIds(blake3::derive_key("cuda-lease 2026-11-29 ids", &key));
        config.cid_generator(move || Box::new(ids)).reset_key(Arc::new(Blake3Key(key)));
    }
}

/// Generates the ids of connections: a random half, and a keyed hash of it. The endpoint recognizes its ids after a restart,
/// so that it sends stateless resets for them only.
///
/// The random half makes ids unique. A Retry has an id that the endpoint does not remember: a client whose id is one of
/// another connection gets no answer. `quinn_proto::HashedConnectionIdGenerator` has 3 random bytes, so one Retry in
/// 3,400 has such an id if there are 1,000 connections with 5 ids each.
#[derive(Clone, Copy)]
struct ConnectionIds([u8; 32]);

/// The bytes of each half of an id.
const HALF: usize = 8;

impl ConnectionIds {
    fn hash(&self, random: &[u8]) -> [u8; HALF] {
        let mut hash = [0; HALF];
        blake3::Hasher::new_keyed(&self.0).update(random).finalize_xof().fill(&mut hash);
        hash
    }
}

impl quinn_proto::ConnectionIdGenerator for ConnectionIds {
    fn generate_cid(&mut self) -> quinn_proto::ConnectionId {
        let random = quinn_proto::RandomConnectionIdGenerator::new(HALF).generate_cid();
        quinn_proto::ConnectionId::new(&[&random[..], &self.hash(&random)].concat())
    }

    fn validate(&self, id: &quinn_proto::ConnectionId) -> Result<(), quinn_proto::InvalidCid> {
        match id.split_at_checked(HALF) {
            Some((random, hash)) if self.hash(random) == hash => Ok(()),
            _ => Err(quinn_proto::InvalidCid),
        }
    }

    fn cid_len(&self) -> usize {
        2 * HALF
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// Keyed hashes with blake3, for stateless resets.
struct Blake3Key([u8; 32]);

impl quinn::crypto::HmacKey for Blake3Key {
    fn sign(&self, data: &[u8], signature: &mut [u8]) {
        blake3::Hasher::new_keyed(&self.0).update(data).finalize_xof().fill(signature);
    }

    fn signature_len(&self) -> usize {
        blake3::OUT_LEN
    }

    fn verify(&self, data: &[u8], signature: &[u8]) -> Result<(), quinn::crypto::CryptoError> {
        let Ok(signature) = <[u8; blake3::OUT_LEN]>::try_from(signature) else {
            return Err(quinn::crypto::CryptoError);
        };
        // The comparison of two `blake3::Hash` takes constant time.
        match blake3::keyed_hash(&self.0, data) == blake3::Hash::from_bytes(signature) {
            true => Ok(()),
            false => Err(quinn::crypto::CryptoError),
        }
    }
}

/// Opens a UDP socket. With `server`, it accepts connections.
///
/// # Errors
/// Those of the socket.
pub fn endpoint(
    address: SocketAddr,
    server: Option<(quinn::ServerConfig, ResetKey)>,
) -> io::Result<quinn::Endpoint> {
    let mut config = quinn::EndpointConfig::default();
    let server = server.map(|(server, reset)| {
        reset.apply(&mut config);
        server
    });
    config.max_udp_payload_size(DATAGRAM).map_err(io::Error::other)?;
    let socket = UdpSocket::bind(address)?;
    // The system may give less, or have a limit below its default: then the socket stays as it is.
    let buffers = SockRef::from(&socket);
    _ = buffers.set_recv_buffer_size(SOCKET_BUFFER);
    _ = buffers.set_send_buffer_size(SOCKET_BUFFER);
    let runtime = Arc::new(quinn::TokioRuntime);
    let socket = Datagrams::of(runtime.wrap_udp_socket(socket)?);
    quinn::Endpoint::new_with_abstract_socket(config, server, socket, runtime)
}

/// Returns the settings of a client's connection.
pub fn connection() -> Arc<quinn::TransportConfig> {
    settings().into()
}

/// Returns the settings of a node's connections. They are narrow at first: see [`widen`].
#[cfg(feature = "server")]
pub fn narrow_connection() -> Arc<quinn::TransportConfig> {
    let mut config = settings();
    config
        .receive_window(NARROW_WINDOW.into())
        .send_window(NARROW_WINDOW.into())
        .max_concurrent_bidi_streams(NARROW_STREAMS.into());
    config.into()
}

/// Makes a connection wide, because it serves a lease. It stays so: a receive window that shrinks leaves the client the
/// credit that it has, and one that grows again adds to it.
#[cfg(feature = "server")]
pub fn widen(connection: &quinn::Connection) {
    connection.set_receive_window(CONNECTION_WINDOW.into());
    connection.set_send_window(CONNECTION_WINDOW.into());
    connection.set_max_concurrent_bi_streams(STREAMS.into());
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
        .max_concurrent_bidi_streams(STREAMS.into())
        .max_concurrent_uni_streams(0u8.into())
        .datagram_receive_buffer_size(None)
        .max_idle_timeout(IDLE.try_into().ok());
    config
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use quinn_proto::ConnectionIdGenerator;

    use super::*;

    #[test]
    fn ids_of_an_endpoint_differ_and_are_recognized_after_a_restart() {
        let mut ids = ConnectionIds([1; 32]);
        let generated: HashSet<_> = (0..50_000).map(|_| ids.generate_cid()).collect();
        assert_eq!(generated.len(), 50_000);
        let (again, another) = (ConnectionIds([1; 32]), ConnectionIds([2; 32]));
        for id in &generated {
            assert!(again.validate(id).is_ok() && another.validate(id).is_err());
            assert_eq!(id.len(), again.cid_len());
        }
        assert!(again.validate(&quinn_proto::ConnectionId::new(&[0; 3])).is_err());
    }
}
