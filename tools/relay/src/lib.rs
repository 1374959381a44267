//! A UDP relay between clients and one server that behaves like a bad network, for tests and benchmarks.
//!
//! [`Relay::start`] runs the relay on its own thread. Clients send to [`Relay::address`]. The relay forwards each
//! client's datagrams to the server from a socket of its own, and the server's answers back to the client. Each
//! direction has an [`Impairment`]: delay, jitter, loss, reordering, duplicates, a bandwidth and a partition. They can
//! change at run time. Random decisions come from a seed.
//!
//! ```
//! use std::{net::UdpSocket, time::Duration};
//! use relay::{Relay, RelayOptions};
//!
//! let server = UdpSocket::bind("127.0.0.1:0")?;
//! let relay = Relay::start(server.local_addr()?, RelayOptions::with_delay(Duration::from_millis(1)))?;
//! let client = UdpSocket::bind("127.0.0.1:0")?;
//! client.send_to(b"hello", relay.address())?;
//! let mut buffer = [0; 16];
//! let (length, _) = server.recv_from(&mut buffer)?;
//! assert_eq!(&buffer[..length], b"hello");
//!
//! relay.update(|options| options.to_server.partitioned = true)?;
//! client.send_to(b"lost", relay.address())?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # Model
//! Each direction is one link, shared by all clients. A datagram passes these steps: partition, loss, bandwidth, delay
//! and jitter, reordering. The link keeps the order of datagrams, also with jitter. Only a datagram that is chosen for
//! reordering is overtaken, by those that follow it within [`Impairment::reorder_delay`].
//!
//! # Limits
//! At most [`MAX_CLIENTS`] clients, and [`Impairment::queue_bytes`] in flight in each direction. The relay drops and
//! counts datagrams beyond that. It keeps explicit congestion notifications and datagram sizes, and forbids
//! fragmentation.
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

mod engine;
mod handle;
mod link;
mod options;
mod socket;

pub use engine::MAX_CLIENTS;
pub use handle::Relay;
pub use link::DirectionCounters;
pub use options::{Impairment, RelayOptions};

/// Counters of both directions, since the start of the relay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams from clients to the server.
    pub to_server: DirectionCounters,
    /// Datagrams from the server to clients.
    pub to_client: DirectionCounters,
}
