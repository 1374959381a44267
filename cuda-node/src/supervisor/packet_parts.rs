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
//! What `quinn` keeps of a packet also keeps the datagram that the packet was in. So packets of a handshake, which can be
//! small parts of a datagram, get memory of their own.
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

/// The STREAM frames with data that each packet may have besides those of the [budget](PER_SECOND).
const FREE: u32 = 8;

/// The further STREAM frames with data of a connection per second, which is also the largest burst. A client that sends
/// thousands of submits has as many. All of them together take some percent of a processor.
const PER_SECOND: u32 = 5_000;

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
        Box::new(Session { session, budget: Arc::new(Rate::new(PER_SECOND)) })
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
        let parts = Parts::of(payload);
        if !parts.are_allowed(self.budget.as_deref()) {
            return Err(CryptoError);
        }
        // A packet of a handshake may be a short one in a large datagram, and counts as a short one.
        if parts.crypto > 0 {
            *payload = BytesMut::from(&payload[..]);
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{crypto::Session as _, *};

    /// Cryptography that encrypts nothing.
    struct Plain;

    fn plain() -> Keys {
        Keys {
            header: KeyPair { local: Box::new(Plain), remote: Box::new(Plain) },
            packet: KeyPair { local: Box::new(Plain), remote: Box::new(Plain) },
        }
    }

    impl crypto::ServerConfig for Plain {
        fn initial_keys(&self, _: u32, _: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
            Ok(plain())
        }
        fn retry_tag(&self, _: u32, _: &ConnectionId, _: &[u8]) -> [u8; 16] {
            [0; 16]
        }
        fn start_session(
            self: Arc<Self>,
            _: u32,
            _: &TransportParameters,
        ) -> Box<dyn crypto::Session> {
            Box::new(Plain)
        }
    }

    impl crypto::Session for Plain {
        fn initial_keys(&self, _: &ConnectionId, _: Side) -> Keys {
            plain()
        }
        fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
            Some((Box::new(Self), Box::new(Self)))
        }
        fn write_handshake(&mut self, _: &mut Vec<u8>) -> Option<Keys> {
            Some(plain())
        }
        fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
            Some(plain().packet)
        }
        fn handshake_data(&self) -> Option<Box<dyn Any>> {
            None
        }
        fn peer_identity(&self) -> Option<Box<dyn Any>> {
            None
        }
        fn early_data_accepted(&self) -> Option<bool> {
            None
        }
        fn is_handshaking(&self) -> bool {
            false
        }
        fn read_handshake(&mut self, _: &[u8]) -> Result<bool, TransportError> {
            Ok(false)
        }
        fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
            Ok(None)
        }
        fn is_valid_retry(&self, _: &ConnectionId, _: &[u8], _: &[u8]) -> bool {
            false
        }
        fn export_keying_material(
            &self,
            _: &mut [u8],
            _: &[u8],
            _: &[u8],
        ) -> Result<(), ExportKeyingMaterialError> {
            Err(ExportKeyingMaterialError)
        }
    }

    impl PacketKey for Plain {
        fn encrypt(&self, _: u64, _: &mut [u8], _: usize) {}
        fn decrypt(&self, _: u64, _: &[u8], _: &mut BytesMut) -> Result<(), CryptoError> {
            Ok(())
        }
        fn tag_len(&self) -> usize {
            0
        }
        fn confidentiality_limit(&self) -> u64 {
            0
        }
        fn integrity_limit(&self) -> u64 {
            0
        }
    }

    impl HeaderKey for Plain {
        fn decrypt(&self, _: usize, _: &mut [u8]) {}
        fn encrypt(&self, _: usize, _: &mut [u8]) {}
        fn sample_size(&self) -> usize {
            0
        }
    }

    /// All keys with which a connection decrypts packets: of the first packet, of each phase, and of two key updates.
    fn keys() -> Vec<Box<dyn PacketKey>> {
        let (config, id) = (limit(Arc::new(Plain)), ConnectionId::new(&[]));
        let first = config.initial_keys(1, &id).unwrap().packet.remote;
        let mut session =
            Session { session: Box::new(Plain), budget: Arc::new(Rate::new(PER_SECOND)) };
        let mut keys = vec![first, session.initial_keys(&id, Side::Server).packet.remote];
        keys.push(session.early_crypto().unwrap().1);
        for _ in 0..2 {
            keys.push(session.write_handshake(&mut Vec::new()).unwrap().packet.remote);
            keys.push(session.next_1rtt_keys().unwrap().remote);
        }
        keys
    }

    fn passes(key: &dyn PacketKey, frames: &[u8]) -> bool {
        key.decrypt(0, &[], &mut BytesMut::from(frames)).is_ok()
    }

    /// A frame CRYPTO, and one STREAM, with one byte.
    const SMALL: [&[u8]; 2] = [&[0x06, 1, 1, 0], &[0x0e, 0, 1, 1, 0]];

    #[test]
    fn every_key_of_a_connection_drops_packets_with_more_than_8_crypto_frames() {
        for key in keys() {
            assert!(passes(&*key, &SMALL[0].repeat(8)) && !passes(&*key, &SMALL[0].repeat(9)));
        }
    }

    #[test]
    fn packet_of_a_handshake_keeps_no_datagram() {
        for key in keys() {
            let mut datagram = BytesMut::from(&[SMALL[0], &[0; 1000]].concat()[..]);
            let mut packet = datagram.split_to(SMALL[0].len());
            key.decrypt(0, &[], &mut packet).unwrap();
            assert_eq!(packet, SMALL[0]);
            assert_ne!(packet.as_ptr_range().end, datagram.as_ptr());
        }
    }

    /// The budget is that of all keys: an update of the keys begins no other one.
    #[test]
    fn further_stream_frames_of_a_connection_have_one_budget() {
        let keys = keys();
        let (mut taken, started) = (0, std::time::Instant::now());
        for key in keys[1..].iter().cycle().take(2 * PER_SECOND as usize / 1000) {
            taken += if passes(&**key, &SMALL[1].repeat(1008)) { 1000 } else { 0 };
        }
        let later = started.elapsed().as_secs_f64() * f64::from(PER_SECOND);
        assert!(taken >= PER_SECOND && f64::from(taken - PER_SECOND) <= later, "{taken} passed");
        // Packets with 8 frames pass also without a budget.
        assert!(keys.iter().all(|key| passes(&**key, &SMALL[1].repeat(8))));
    }

    #[test]
    fn frames_without_data_take_nothing_off_the_budget() {
        let (ends, keys) = ([0x0f, 0, 1, 0].repeat(1500), keys());
        assert_eq!(Parts::of(&ends), Parts::default());
        assert!((0..100).all(|_| passes(&*keys[1], &ends)));
    }

    /// `quinn` uses the frames in front of one that is unknown or has no end.
    #[test]
    fn frames_in_front_of_a_broken_one_count() {
        let parts = Parts { crypto: 2, stream: 0 };
        for broken in [&[0x06, 1, 2, 0][..], &[0x06, 0x40], &[0x21], &[0x40], &[0x02, 1, 1, 0xff]] {
            assert_eq!(Parts::of(&[&SMALL[0].repeat(2), broken].concat()), parts, "{broken:?}");
        }
    }

    /// An integer of variable length in 1, 2, 4 or 8 bytes, as many as it needs or more.
    fn put(out: &mut Vec<u8>, number: u64, size: u32) {
        let least = [6, 14, 30].iter().filter(|bits| number >> **bits != 0).count() as u32;
        let size = size.max(least);
        let bytes = (number | u64::from(size) << ((8 << size) - 2)).to_be_bytes();
        out.extend(&bytes[8 - (1 << size)..]);
    }

    /// The bytes of a frame of this type, without its last field if that takes the rest of the packet.
    fn write(out: &mut Vec<u8>, kind: u64, (number, size): (u64, u32), data: &[u8]) -> Parts {
        let mut parts = Parts::default();
        let length = data.len() as u64;
        put(out, kind, size);
        let integers = match kind {
            0x02 | 0x03 => {
                let ranges = number % 5;
                put(out, number, size);
                put(out, number, size);
                put(out, ranges, size);
                1 + 2 * ranges + if kind == 0x03 { 3 } else { 0 }
            }
            0x04 => 3,
            0x05 | 0x11 | 0x15 | 0x18 | 0x1c => 2,
            0x06 | 0x08..=0x0b | 0x10 | 0x12..=0x14 | 0x16 | 0x17 | 0x19 | 0x1d => 1,
            0x0c..=0x0f => 2,
            0xaf => 4,
            _ => 0,
        };
        (0..integers).for_each(|_| put(out, number, size));
        match kind {
            0x06 => parts.crypto = 1,
            0x08..=0x0f if length > 0 => parts.stream = 1,
            _ => {}
        }
        match kind {
            0x06 | 0x07 | 0x0a | 0x0b | 0x0e | 0x0f | 0x1c | 0x1d | 0x31 => {
                put(out, length, size);
                out.extend(data);
            }
            0x08 | 0x09 | 0x0c | 0x0d | 0x30 => out.extend(data),
            0x18 => {
                out.push(20);
                out.extend([0xff; 36]);
            }
            0x1a | 0x1b => out.extend([0xff; 8]),
            _ => {}
        }
        parts
    }

    fn frame() -> impl Strategy<Value = (u64, (u64, u32), Vec<u8>)> {
        let kind =
            prop_oneof![0..0x20u64, Just(0x30), Just(0x31), Just(0xaf), Just(0x06), 8..0x10u64];
        let number = prop_oneof![0..100u64, 0..1u64 << 62];
        (kind, (number, 0..4u32), prop::collection::vec(any::<u8>(), 0..40))
    }

    proptest! {
        #[test]
        fn frames_of_all_types_are_counted(frames in prop::collection::vec(frame(), 0..60)) {
            let (mut packet, mut parts) = (Vec::new(), Parts::default());
            for (kind, number, data) in &frames {
                let more = write(&mut packet, *kind, *number, data);
                parts.crypto += more.crypto;
                parts.stream += more.stream;
                // Those without a length take the rest of the packet.
                if matches!(kind, 0x08 | 0x09 | 0x0c | 0x0d | 0x30) {
                    break;
                }
            }
            prop_assert_eq!(Parts::of(&packet), parts);
        }

        #[test]
        fn any_bytes_are_counted(bytes in prop::collection::vec(prop_oneof![0..0x32u8, any::<u8>()], 0..200)) {
            let parts = Parts::of(&bytes);
            prop_assert!(parts.crypto as usize <= bytes.len() / 3);
            prop_assert!(parts.stream as usize <= bytes.len() / 3);
        }
    }
}
