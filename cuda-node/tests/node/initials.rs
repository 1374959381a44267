//! Packets of handshakes with forged frames. Anyone who reaches the node can send them, from any address.

use std::{
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    ops::Range,
    time::Duration,
};

use rustls::{
    crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256,
    quic::{Keys, Version},
};

use crate::{
    forged_frames::{SEGMENT, split},
    harness::{LONG, Node, Signal, wait_until},
    hostile::{attack, memory, plain_part, processor_time_of, small_parts},
};

/// The bytes of the frames of a packet: a datagram of the node has at most 6,450 bytes.
const FRAMES: usize = 6380;

/// The bytes of the tag of a packet.
const TAG: usize = 16;

/// A handshake that begins, and does not end.
struct Handshake {
    socket: UdpSocket,
    id: [u8; 8],
    keys: Keys,
    next: u32,
}

impl Handshake {
    fn new(node: SocketAddr, number: u8) -> Self {
        // Of each address, the first handshakes need no token.
        let socket = UdpSocket::bind((Ipv4Addr::new(127, 0, 1, 1 + number / 4), 0)).unwrap();
        socket.connect(node).unwrap();
        let id = [number + 1; 8];
        let suite = TLS13_AES_128_GCM_SHA256.tls13().unwrap().quic_suite().unwrap();
        let keys = suite.keys(&id, rustls::Side::Client, Version::V1);
        Self { socket, id, keys, next: 0 }
    }

    /// Sends a packet of the type Initial with these frames (RFC 9000, section 17.2.2).
    fn send(&mut self, frames: &[u8]) {
        self.send_behind(Vec::new(), frames);
    }

    /// As [`send`](Self::send), behind these bytes.
    fn send_behind(&mut self, mut datagrams: Vec<u8>, frames: &[u8]) {
        let number = self.next.to_be_bytes();
        self.next += 1;
        let mut packet = vec![0xc3, 0, 0, 0, 1, 8];
        packet.extend(self.id);
        // The id of the client, and no token.
        packet.extend([8, 9, 9, 9, 9, 9, 9, 9, 9, 0]);
        let length = (number.len() + frames.len() + TAG) as u16 | 0x4000;
        packet.extend(length.to_be_bytes());
        let at = packet.len();
        packet.extend(number);
        let mut payload = frames.to_vec();
        let key = &self.keys.local.packet;
        let tag = key.encrypt_in_place((self.next - 1).into(), &packet, &mut payload).unwrap();
        packet.extend(payload);
        packet.extend(tag.as_ref());
        let (header, rest) = packet.split_at_mut(at);
        let (number, sample) = rest.split_at_mut(4);
        let key = &self.keys.local.header;
        key.encrypt_in_place(&sample[..16], &mut header[0], number).unwrap();
        datagrams.extend(packet);
        self.socket.send(&datagrams).unwrap();
    }
}

/// Sends a packet with these frames in each of some handshakes, and returns them.
fn begin(node: &Node, numbers: Range<u8>, frames: &[u8]) -> Vec<Handshake> {
    let address = node.address.parse().unwrap();
    let begun = numbers.map(|number| {
        let mut handshake = Handshake::new(address, number);
        handshake.send(frames);
        std::thread::sleep(Duration::from_millis(2));
        handshake
    });
    begun.collect()
}

/// `quinn` sorts and copies the parts of a stream again and again if each one has a small part of its packet. That takes
/// 10 ms of processor time for one packet, in the first step of a handshake, in which the endpoint reads no packet of
/// others.
#[test]
fn first_packets_with_many_small_parts_take_no_more_time_than_others() {
    attack(async |node| {
        let mut begun = Vec::new();
        let mut cost = |numbers, frames: &[u8]| {
            processor_time_of(node, || begun.extend(begin(node, numbers, frames)))
        };
        let plain = cost(0..20, &plain_part(FRAMES));
        let forged = cost(20..40, &small_parts(FRAMES));
        assert!(
            forged < 5 * plain.max(Duration::from_millis(40)),
            "20 packets take {plain:?}, 20 forged ones {forged:?}"
        );
    });
}

/// A reload replaces the cryptography of the node.
#[test]
fn first_packet_with_too_many_parts_has_no_answer_also_after_a_reload() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit");
    let node = Node::start(&["--spares", "0", "--audit", log.to_str().unwrap()]);
    for first in [0, 8] {
        let with = |parts: usize, number| {
            let mut frames = small_parts(5 * parts);
            frames.resize(FRAMES, 0);
            begin(&node, number..number + 1, &frames).remove(0).socket
        };
        let (refused, allowed) = (with(9, first), with(8, first + 4));
        allowed.set_read_timeout(Some(LONG)).unwrap();
        allowed.recv(&mut [0; 2048]).expect("a packet with 8 parts has no answer");
        // This one came earlier.
        refused.set_nonblocking(true).unwrap();
        assert!(refused.recv(&mut [0; 2048]).is_err(), "a packet with 9 parts has an answer");
        // The last step of a reload switches to a new log.
        std::fs::rename(&log, folder.path().join("earlier")).unwrap();
        let pid = rustix::process::Pid::from_raw(node.pid() as i32).unwrap();
        rustix::process::kill_process(pid, Signal::HUP).unwrap();
        wait_until("the log is a new one", || {
            drop(node.lease().acquire_blocking().unwrap());
            log.metadata().is_ok_and(|log| log.len() > 0)
        });
    }
}

/// As `small_parts_keep_no_memory_of_datagrams_beside_their_own`, of anyone who reaches the node.
#[test]
fn small_parts_of_handshakes_keep_no_memory_of_datagrams_beside_their_own() {
    attack(async |node| {
        let mut handshakes = begin(node, 0..4, &plain_part(FRAMES));
        handshakes.iter().for_each(|handshake| split(&handshake.socket));
        let (before, mut most) = (memory(node), 0);
        for number in 0..2000u16 {
            // One byte behind a gap.
            let [high, low] = (2 * (number / 4) + 1000).to_be_bytes();
            let part = [0x06, 0x40 | high, low, 1, 0];
            let handshake = &mut handshakes[usize::from(number % 4)];
            handshake.send_behind(vec![0; 9 * SEGMENT], &part);
            if number % 100 == 0 {
                most = most.max(memory(node));
            }
        }
        most = most.max(memory(node));
        let grown = most.saturating_sub(before);
        assert!(grown < 32 << 20, "the memory has grown by {grown} bytes");
    });
}
