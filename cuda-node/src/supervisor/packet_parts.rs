//! Packets with many small parts are dropped.
//!
//! `quinn` counts a whole packet as the memory of each part of a stream in it (`Assembler::insert` of `quinn-proto`). So
//! small parts of a large packet make it sort and copy all parts of their stream again and again. One packet with 1,290
//! parts of one byte, with gaps between them, takes 10 ms of processor time, in which the endpoint or the connection does
//! nothing else. Anyone who reaches the node can send such packets in a handshake.
//!
//! The keys of a connection count the parts of each packet that they have decrypted, before `quinn` sees them. A packet
//! beyond the limits fails to decrypt, so `quinn` drops it as a damaged one, and its client repeats the contents later.
//!
//! This file is of no use any more with a `quinn` that counts the memory of a packet once.

use std::{any::Any, num::NonZeroU32, sync::Arc};

use bytes::BytesMut;
use quinn::{
    ConnectionId, Side,
    crypto::{
        self, CryptoError, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey,
        UnsupportedVersion,
    },
};
use quinn_proto::{TransportError, transport_parameters::TransportParameters};

use super::rate::Rate;

/// The CRYPTO frames of a packet. `quinn` sends one in a packet, or some if it repeats those of lost packets.
const CRYPTO: u32 = 8;

/// The STREAM frames with data that each packet may have besides those of the [budget](BURST).
const FREE: u32 = 8;

/// The further STREAM frames with data of a connection per second. All of them together take some percent of a processor.
const PER_SECOND: u32 = 5_000;

/// The most of them at once. A client that starts thousands of submits has as many.
const BURST: u32 = 20_000;

/// Drops the packets with many small parts of each connection that uses this cryptography.
pub(super) fn limit(crypto: Arc<dyn crypto::ServerConfig>) -> Arc<dyn crypto::ServerConfig> {
    Arc::new(Config(crypto))
}

struct Config(Arc<dyn crypto::ServerConfig>);

impl crypto::ServerConfig for Config {
    fn initial_keys(&self, version: u32, id: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        let Keys { header, packet } = self.0.initial_keys(version, id)?;
        Ok(Keys { header, packet: wrap(packet, None) })
    }
    fn retry_tag(&self, version: u32, id: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.0.retry_tag(version, id, packet)
    }
    fn start_session(
        self: Arc<Self>,
        version: u32,
        parameters: &TransportParameters,
    ) -> Box<dyn crypto::Session> {
        let session = self.0.clone().start_session(version, parameters);
        Box::new(Session { session, budget: Arc::new(Rate::with_burst(PER_SECOND, BURST)) })
    }
}

struct Session {
    session: Box<dyn crypto::Session>,
    /// Of all keys of the connection.
    budget: Arc<Rate>,
}

impl crypto::Session for Session {
    fn initial_keys(&self, id: &ConnectionId, side: Side) -> Keys {
        let Keys { header, packet } = self.session.initial_keys(id, side);
        Keys { header, packet: wrap(packet, Some(&self.budget)) }
    }
    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        let (header, key) = self.session.early_crypto()?;
        Some((header, Box::new(Key { key, budget: Some(self.budget.clone()) })))
    }
    fn write_handshake(&mut self, out: &mut Vec<u8>) -> Option<Keys> {
        let Keys { header, packet } = self.session.write_handshake(out)?;
        Some(Keys { header, packet: wrap(packet, Some(&self.budget)) })
    }
    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let next = self.session.next_1rtt_keys()?;
        Some(wrap(next, Some(&self.budget)))
    }
    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.session.handshake_data()
    }
    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.session.peer_identity()
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

fn wrap(
    keys: KeyPair<Box<dyn PacketKey>>,
    budget: Option<&Arc<Rate>>,
) -> KeyPair<Box<dyn PacketKey>> {
    let remote = Box::new(Key { key: keys.remote, budget: budget.cloned() });
    KeyPair { local: keys.local, remote }
}

/// A key that decrypts no packet with many small parts.
struct Key {
    key: Box<dyn PacketKey>,
    /// `None` in the first packet of a handshake. A STREAM frame in it ends the handshake.
    budget: Option<Arc<Rate>>,
}

impl PacketKey for Key {
    fn encrypt(&self, packet: u64, bytes: &mut [u8], header: usize) {
        self.key.encrypt(packet, bytes, header);
    }
    fn decrypt(
        &self,
        packet: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        self.key.decrypt(packet, header, payload)?;
        let is_allowed = Parts::of(payload).are_allowed(self.budget.as_deref());
        if is_allowed { Ok(()) } else { Err(CryptoError) }
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

/// The parts of streams in a packet.
#[derive(Debug, Default, PartialEq, Eq)]
struct Parts {
    crypto: u32,
    /// The STREAM frames with data.
    stream: u32,
}

impl Parts {
    /// Counts the parts in the frames of a packet. At a frame that is unknown or has no end it stops: `quinn` uses the
    /// frames in front of it, and ends the connection.
    fn of(mut frames: &[u8]) -> Self {
        let mut parts = Self::default();
        while !frames.is_empty() && parts.count_frame(&mut frames).is_some() {}
        parts
    }

    /// Takes a frame (RFC 9000, section 19), and counts it. Returns `None` if it is unknown or has no end.
    fn count_frame(&mut self, rest: &mut &[u8]) -> Option<()> {
        // The type too may use more bytes than it needs.
        let kind = number(rest)?;
        match kind {
            // PADDING: all of it at once.
            0x00 => {
                let end = rest.iter().position(|byte| *byte != 0).unwrap_or(rest.len());
                *rest = &rest[end..];
                Some(())
            }
            // PING, HANDSHAKE_DONE, IMMEDIATE_ACK.
            0x01 | 0x1e | 0x1f => Some(()),
            // ACK: the largest number, the delay, the number of further ranges, and the first range. Then those ranges, and
            // the counts of ECN.
            0x02 | 0x03 => {
                numbers(rest, 2)?;
                let ranges = number(rest)?;
                let counts = if kind == 0x03 { 3 } else { 0 };
                numbers(rest, 1 + 2 * ranges + counts)
            }
            // STOP_SENDING, MAX_STREAM_DATA, STREAM_DATA_BLOCKED.
            0x05 | 0x11 | 0x15 => numbers(rest, 2),
            // RESET_STREAM.
            0x04 => numbers(rest, 3),
            // CRYPTO.
            0x06 => {
                numbers(rest, 1)?;
                prefixed(rest)?;
                self.crypto += 1;
                Some(())
            }
            // NEW_TOKEN, DATAGRAM with a length.
            0x07 | 0x31 => prefixed(rest),
            // STREAM: its id, the offset with flag 4, and the length with flag 2.
            0x08..=0x0f => {
                numbers(rest, if kind & 4 == 0 { 1 } else { 2 })?;
                let length = if kind & 2 == 0 { rest.len() as u64 } else { number(rest)? };
                skip(rest, length)?;
                self.stream += u32::from(length > 0);
                Some(())
            }
            // MAX_DATA, MAX_STREAMS, DATA_BLOCKED, STREAMS_BLOCKED, RETIRE_CONNECTION_ID.
            0x10 | 0x12..=0x14 | 0x16 | 0x17 | 0x19 => numbers(rest, 1),
            // NEW_CONNECTION_ID, with the token of a reset behind the id.
            0x18 => {
                numbers(rest, 2)?;
                let length = *rest.first()?;
                skip(rest, 1 + u64::from(length) + 16)
            }
            // PATH_CHALLENGE, PATH_RESPONSE.
            0x1a | 0x1b => skip(rest, 8),
            // CONNECTION_CLOSE of the transport, then that of the application.
            0x1c => {
                numbers(rest, 2)?;
                prefixed(rest)
            }
            0x1d => {
                numbers(rest, 1)?;
                prefixed(rest)
            }
            // DATAGRAM without a length.
            0x30 => skip(rest, rest.len() as u64),
            // ACK_FREQUENCY.
            0xaf => numbers(rest, 4),
            _ => None,
        }
    }

    /// Returns whether a packet with these parts is within the limits, and takes its further STREAM frames off the budget.
    fn are_allowed(&self, budget: Option<&Rate>) -> bool {
        let further = NonZeroU32::new(self.stream.saturating_sub(FREE));
        self.crypto <= CRYPTO
            && budget
                .zip(further)
                .is_none_or(|(budget, further)| budget.admit_many(further).is_ok())
    }
}

/// Takes an integer of variable length (RFC 9000, section 16).
fn number(rest: &mut &[u8]) -> Option<u64> {
    let (first, behind) = rest.split_first()?;
    let (more, behind) = behind.split_at_checked((1 << (first >> 6)) - 1)?;
    *rest = behind;
    Some(more.iter().fold(u64::from(first & 0x3f), |sum, byte| sum << 8 | u64::from(*byte)))
}

/// Takes this number of integers.
fn numbers(rest: &mut &[u8], count: u64) -> Option<()> {
    (0..count).try_for_each(|_| number(rest).map(drop))
}

/// Takes a length and as many bytes.
fn prefixed(rest: &mut &[u8]) -> Option<()> {
    let length = number(rest)?;
    skip(rest, length)
}

/// Takes this number of bytes.
fn skip(rest: &mut &[u8], length: u64) -> Option<()> {
    *rest = rest.get(usize::try_from(length).ok()?..)?;
    Some(())
}
