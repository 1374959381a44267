//! A client that writes any frames of QUIC into its packets. It wraps the keys of its connection: what `quinn` encrypts
//! and decrypts passes them.

use std::{
    any::Any,
    net::UdpSocket,
    os::fd::AsRawFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::BytesMut;
use cuda_lease::internals::transport;
use parking_lot::Mutex;
use quinn::{
    ConnectError, Connection, ConnectionError, ConnectionId, Endpoint, Side, TransportConfig,
    congestion::CubicConfig,
    crypto::{
        self, CryptoError, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey,
        rustls::QuicClientConfig,
    },
};
use quinn_proto::{TransportError, transport_parameters::TransportParameters};
use rustls::{
    DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    pki_types::{CertificateDer, ServerName, UnixTime},
};

use crate::{
    harness::{LONG, Node},
    hostile::{attack, memory, plain_part, processor_time_of, small_parts},
};

/// Writes the frames of a packet: the payload that `quinn` has written, without the tag.
type Write = dyn Fn(&mut [u8]) + Send + Sync;

struct Forge {
    inner: Arc<QuicClientConfig>,
    write: Arc<Write>,
    outside: Outside,
}

/// Packets that a client sends besides those of `quinn`, once it is connected.
type Outside = Arc<Mutex<Option<Packets>>>;

struct Packets {
    header: Arc<dyn HeaderKey>,
    key: Arc<dyn PacketKey>,
    /// The id that the node has given to the connection.
    id: Vec<u8>,
    next: u64,
}

impl Packets {
    /// Writes a packet with these frames (RFC 9000, section 17.3.1).
    fn write(&mut self, frames: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x43];
        packet.extend(&self.id);
        let at = packet.len();
        packet.extend((self.next as u32).to_be_bytes());
        let header = packet.len();
        packet.extend(frames);
        packet.resize(packet.len() + self.key.tag_len(), 0);
        self.key.encrypt(self.next, &mut packet, header);
        self.header.encrypt(at, &mut packet);
        self.next += 1;
        packet
    }
}

struct SharedHeader(Arc<dyn HeaderKey>);

impl HeaderKey for SharedHeader {
    fn decrypt(&self, at: usize, packet: &mut [u8]) {
        self.0.decrypt(at, packet);
    }
    fn encrypt(&self, at: usize, packet: &mut [u8]) {
        self.0.encrypt(at, packet);
    }
    fn sample_size(&self) -> usize {
        self.0.sample_size()
    }
}

impl crypto::ClientConfig for Forge {
    fn start_session(
        self: Arc<Self>,
        version: u32,
        name: &str,
        parameters: &TransportParameters,
    ) -> Result<Box<dyn crypto::Session>, ConnectError> {
        let session =
            crypto::ClientConfig::start_session(self.inner.clone(), version, name, parameters)?;
        let (write, outside) = (self.write.clone(), self.outside.clone());
        Ok(Box::new(Session { session, keys: 0, write, outside }))
    }
}

struct Session {
    session: Box<dyn crypto::Session>,
    /// The keys that were given out: those of the handshake come first.
    keys: u32,
    write: Arc<Write>,
    outside: Outside,
}

impl Session {
    fn wrap(&self, keys: KeyPair<Box<dyn PacketKey>>) -> KeyPair<Box<dyn PacketKey>> {
        let local = self.forge(keys.local.into());
        KeyPair { local, remote: Box::new(Deaf(keys.remote)) }
    }

    fn forge(&self, key: Arc<dyn PacketKey>) -> Box<dyn PacketKey> {
        Box::new(Key { key, write: self.write.clone(), outside: self.outside.clone() })
    }
}

impl crypto::Session for Session {
    fn write_handshake(&mut self, out: &mut Vec<u8>) -> Option<Keys> {
        let mut keys = self.session.write_handshake(out)?;
        self.keys += 1;
        if self.keys == 2 {
            let header: Arc<dyn HeaderKey> = keys.header.local.into();
            keys.header.local = Box::new(SharedHeader(header.clone()));
            let key: Arc<dyn PacketKey> = keys.packet.local.into();
            let (local, remote) = (self.forge(key.clone()), Box::new(Deaf(keys.packet.remote)));
            // Numbers that `quinn` does not reach.
            *self.outside.lock() = Some(Packets { header, key, id: Vec::new(), next: 1 << 20 });
            keys.packet = KeyPair { local, remote };
        }
        Some(keys)
    }

    fn initial_keys(&self, id: &ConnectionId, side: Side) -> Keys {
        self.session.initial_keys(id, side)
    }
    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.session.handshake_data()
    }
    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.session.peer_identity()
    }
    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        self.session.early_crypto()
    }
    fn early_data_accepted(&self) -> Option<bool> {
        self.session.early_data_accepted()
    }
    fn is_handshaking(&self) -> bool {
        self.session.is_handshaking()
    }
    fn read_handshake(&mut self, bytes: &[u8]) -> Result<bool, TransportError> {
        self.session.read_handshake(bytes)
    }
    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        self.session.transport_parameters()
    }
    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let next = self.session.next_1rtt_keys()?;
        Some(self.wrap(next))
    }
    fn is_valid_retry(&self, id: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.session.is_valid_retry(id, header, payload)
    }
    fn export_keying_material(
        &self,
        out: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        self.session.export_keying_material(out, label, context)
    }
}

struct Key {
    key: Arc<dyn PacketKey>,
    write: Arc<Write>,
    outside: Outside,
}

impl PacketKey for Key {
    fn encrypt(&self, packet: u64, bytes: &mut [u8], header: usize) {
        let end = bytes.len() - self.key.tag_len();
        // The id is between the first byte and the number of the packet.
        let number = 1 + usize::from(bytes[0] & 3);
        if let Some(packets) = &mut *self.outside.lock() {
            packets.id = bytes[1..header - number].to_vec();
        }
        (self.write)(&mut bytes[header..end]);
        self.key.encrypt(packet, bytes, header);
    }
    fn decrypt(&self, _: u64, _: &[u8], _: &mut BytesMut) -> Result<(), CryptoError> {
        Err(CryptoError)
    }
    fn tag_len(&self) -> usize {
        self.key.tag_len()
    }
    fn confidentiality_limit(&self) -> u64 {
        self.key.confidentiality_limit()
    }
    fn integrity_limit(&self) -> u64 {
        self.key.integrity_limit()
    }
}

/// A key whose user sees only the end of the connection: other packets have padding for it.
struct Deaf(Box<dyn PacketKey>);

/// Whether a packet has the frame CONNECTION_CLOSE. `quinn` writes only an acknowledgement in front of it.
fn is_end(frames: &[u8]) -> bool {
    const ACK: u8 = 0x02;
    const CLOSE: [u8; 2] = [0x1c, 0x1d];
    let mut rest = frames;
    if let [ACK, behind @ ..] = frames {
        rest = behind;
        // The largest number, the delay, the number of further ranges, and the first range.
        let [_, _, ranges, _] = [(); 4].map(|()| number(&mut rest));
        (0..2 * ranges).for_each(|_| _ = number(&mut rest));
    }
    rest.first().is_some_and(|kind| CLOSE.contains(kind))
}

/// Takes an integer of variable length.
fn number(bytes: &mut &[u8]) -> u64 {
    let Some((first, rest)) = bytes.split_first() else { return 0 };
    let Some((more, rest)) = rest.split_at_checked((1 << (first >> 6)) - 1) else { return 0 };
    *bytes = rest;
    more.iter().fold(u64::from(first & 0x3f), |sum, byte| sum << 8 | u64::from(*byte))
}

impl PacketKey for Deaf {
    fn encrypt(&self, packet: u64, bytes: &mut [u8], header: usize) {
        self.0.encrypt(packet, bytes, header);
    }
    fn decrypt(
        &self,
        packet: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        self.0.decrypt(packet, header, payload)?;
        if !is_end(payload) {
            payload.fill(0);
        }
        Ok(())
    }
    fn tag_len(&self) -> usize {
        self.0.tag_len()
    }
    fn confidentiality_limit(&self) -> u64 {
        self.0.confidentiality_limit()
    }
    fn integrity_limit(&self) -> u64 {
        self.0.integrity_limit()
    }
}

/// Accepts any node.
#[derive(Debug)]
struct AnyNode;

impl ServerCertVerifier for AnyNode {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }
    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let provider = rustls::crypto::ring::default_provider();
        provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Connects a client that writes these frames, and takes in nothing but the end of the connection.
async fn connect(
    address: &str,
    write: impl Fn(&mut [u8]) + Send + Sync + 'static,
) -> (Connection, Endpoint) {
    let (connection, endpoint, _) = connect_outside(address, write).await;
    (connection, endpoint)
}

/// As [`connect`]. Returns the packets besides those of `quinn` too.
async fn connect_outside(
    address: &str,
    write: impl Fn(&mut [u8]) + Send + Sync + 'static,
) -> (Connection, Endpoint, Outside) {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyNode))
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"cuda-lease/1".to_vec()];
    let inner = Arc::new(QuicClientConfig::try_from(tls).unwrap());
    let outside = Outside::default();
    let forge = Forge { inner, write: Arc::new(write), outside: outside.clone() };
    let mut config = quinn::ClientConfig::new(Arc::new(forge));
    // It gets no acknowledgement, and sends all the same.
    let mut congestion = CubicConfig::default();
    congestion.initial_window(1 << 30);
    let mut settings = TransportConfig::default();
    settings.congestion_controller_factory(Arc::new(congestion)).mtu_discovery_config(None);
    config.transport_config(Arc::new(settings));
    let endpoint = Endpoint::client(([127, 0, 0, 1], 0).into()).unwrap();
    let connecting = endpoint.connect_with(config, address.parse().unwrap(), "localhost");
    (connecting.unwrap().await.unwrap(), endpoint, outside)
}

const PING: u8 = 0x01;
const RETIRE_CONNECTION_ID: u8 = 0x19;

/// The ids that the client retires. No honest client needs as many: it retires one when its address changes.
const RETIRED: u64 = 1200;

/// The time between two packets that retire ids, so that the node has issued the next ones.
const PAUSE: Duration = Duration::from_millis(4);

/// The node issues a new id for each one that its client retires. If the client acknowledges nothing, the congestion
/// window is full, and the ids wait in the memory of the connection, however many there are.
#[test]
fn client_that_retires_ids_without_end_and_acknowledges_nothing_is_disconnected() {
    attack(async |node| {
        let (begins, next) = (Arc::new(AtomicBool::new(false)), Mutex::new((1u64, Instant::now())));
        let (has_begun, retired) = (begins.clone(), Arc::new(Mutex::new(0)));
        let count = retired.clone();
        let forge = move |frames: &mut [u8]| {
            if !has_begun.load(Ordering::Relaxed) || frames.len() < 8 {
                return;
            }
            frames.fill(0);
            frames[0] = PING;
            let (id, at) = &mut *next.lock();
            if at.elapsed() < PAUSE {
                return;
            }
            // The number 0 is that of the id which the client uses.
            for frame in frames[1..].chunks_exact_mut(3).take(2) {
                let [high, low] = u16::to_be_bytes(*id as u16);
                frame.copy_from_slice(&[RETIRE_CONNECTION_ID, 0x40 | high, low]);
                *id += 1;
            }
            (*at, *count.lock()) = (Instant::now(), *id - 1);
        };
        let (connection, _endpoint) = connect(&node.address, forge).await;
        let (mut stream, _receive) = connection.open_bi().await.unwrap();
        stream.write_all(&[0; 8]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        begins.store(true, Ordering::Relaxed);
        let begun = Instant::now();
        while *retired.lock() < RETIRED && connection.close_reason().is_none() {
            assert!(begun.elapsed() < LONG, "{} were retired", retired.lock());
            _ = stream.write_all(&[0; 8]).await;
            tokio::time::sleep(PAUSE + Duration::from_millis(1)).await;
        }
        let retired = *retired.lock();
        let ended = tokio::time::timeout(Duration::from_secs(2), connection.closed()).await;
        // The reason may not arrive, because the client acknowledges nothing.
        let is_refused = match &ended {
            Ok(ConnectionError::ApplicationClosed(closed)) => {
                closed.error_code == transport::BROKEN
            }
            ended => matches!(ended, Ok(ConnectionError::Reset)),
        };
        assert!(is_refused, "{retired} ids were retired, and the connection goes on: {ended:?}");
    });
}

/// Connects a client, and opens a stream. Returns the packets besides those of `quinn`, a socket for them, and the client.
async fn send_outside(node: &Node) -> (Outside, UdpSocket, impl Sized + use<>) {
    let (connection, endpoint, outside) = connect_outside(&node.address, |_| ()).await;
    let (mut stream, receive) = connection.open_bi().await.unwrap();
    stream.write_all(&[0; 8]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(&node.address).unwrap();
    (outside, socket, (connection, endpoint, stream, receive))
}

/// The processor time of a node for this number of packets with these frames.
async fn cost(node: &Node, packets: usize, frames: &[u8]) -> Duration {
    let (outside, socket, _client) = send_outside(node).await;
    processor_time_of(node, || {
        for _ in 0..packets {
            let packet = outside.lock().as_mut().unwrap().write(frames);
            socket.send(&packet).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
    })
}

/// `quinn` sorts and copies the parts of a stream again and again if each one has a small part of its packet.
#[test]
fn packets_with_many_small_parts_take_no_more_time_than_others() {
    attack(async |node| {
        let (packets, length) = (40, 6400);
        let plain = cost(node, packets, &plain_part(length)).await;
        let forged = cost(node, packets, &small_parts(length)).await;
        assert!(
            forged < 5 * plain.max(Duration::from_millis(40)),
            "{packets} packets take {plain:?}, forged ones {forged:?}"
        );
    });
}

/// The bytes of a datagram of which the node receives several at once.
pub const SEGMENT: usize = 6500;

/// Lets the kernel split what a socket sends into datagrams of [`SEGMENT`] bytes. The last one may be shorter. A node on
/// the same machine, or behind a network card that joins datagrams, receives all of them with one call.
pub fn split(socket: &UdpSocket) {
    let size = SEGMENT as libc::c_int;
    // SAFETY: the pointer is to an integer of this length.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            (&raw const size).cast(),
            size_of_val(&size) as libc::socklen_t,
        )
    };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// `quinn` copies all datagrams that it has received with one call to one buffer. A part of a stream with one byte keeps
/// all of them, and counts as the short packet that it has arrived in. So the window of a connection limits nothing.
#[test]
fn small_parts_keep_no_memory_of_datagrams_beside_their_own() {
    attack(async |node| {
        let (outside, socket, _client) = send_outside(node).await;
        split(&socket);
        let (before, mut most) = (memory(node), 0);
        for number in 0..3000u32 {
            // One byte of another stream, behind a gap: STREAM with an offset and a length, and padding.
            let (id, at) = ((4 * (1 + number % 7)) as u8, 2 * (number / 7) + 2);
            let [_, _, high, low] = at.to_be_bytes();
            let part = [0x0e, id, 0x40 | high, low, 1, 0, 0, 0];
            let packet = outside.lock().as_mut().unwrap().write(&part);
            // The others are not packets of any connection.
            let mut datagrams = vec![0; 9 * SEGMENT];
            datagrams.extend(packet);
            _ = socket.send(&datagrams);
            if number % 100 == 0 {
                most = most.max(memory(node));
            }
        }
        most = most.max(memory(node));
        let grown = most.saturating_sub(before);
        assert!(grown < 32 << 20, "the memory has grown by {grown} bytes");
    });
}
