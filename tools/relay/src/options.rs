//! Options of a relay.

use std::{net::SocketAddr, time::Duration};

/// Options of a relay. The default forwards every datagram immediately.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RelayOptions {
    /// The address to listen on. `None` chooses a free port of the loopback address, of the server's family. Changes at
    /// run time have no effect.
    pub listen: Option<SocketAddr>,
    /// The seed of random decisions. A change at run time starts a new sequence.
    pub seed: u64,
    /// The link from clients to the server.
    pub to_server: Impairment,
    /// The link from the server to clients.
    pub to_client: Impairment,
}

impl RelayOptions {
    /// Options with this delay in each direction, so that a round trip takes twice as long.
    pub fn with_delay(delay: Duration) -> Self {
        let link = Impairment { delay, ..Impairment::default() };
        Self { to_server: link.clone(), to_client: link, ..Self::default() }
    }

    /// Changes both directions in the same way.
    pub fn both(&mut self, mut change: impl FnMut(&mut Impairment)) {
        change(&mut self.to_server);
        change(&mut self.to_client);
    }
}

/// The faults of one direction. The default has none.
#[derive(Clone, Debug, PartialEq)]
pub struct Impairment {
    /// The delay of every datagram.
    pub delay: Duration,
    /// The upper limit of an additional random delay. The order of datagrams is kept, so a datagram may wait for the
    /// one before it.
    pub jitter: Duration,
    /// The probability that a datagram is lost, from 0 to 1.
    pub loss: f64,
    /// The probability that a datagram is sent twice, from 0 to 1. The copy follows its original.
    pub duplicate: f64,
    /// The probability that later datagrams overtake a datagram, from 0 to 1.
    pub reorder: f64,
    /// The additional delay of a datagram that is overtaken.
    pub reorder_delay: Duration,
    /// The bandwidth in bytes of datagram contents per second, or `None` without a limit. Datagrams wait for those
    /// before them.
    pub bytes_per_second: Option<u64>,
    /// Drops every datagram. Setting it also drops the datagrams in flight.
    pub partitioned: bool,
    /// The limit of the bytes in flight. A datagram beyond it is dropped.
    pub queue_bytes: usize,
}

impl Default for Impairment {
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            reorder_delay: Duration::from_millis(1),
            bytes_per_second: None,
            partitioned: false,
            queue_bytes: 64 << 20,
        }
    }
}

impl Impairment {
    /// True if each datagram of a batch needs its own decision.
    pub(crate) fn splits_batches(&self) -> bool {
        self.loss > 0.0
            || self.duplicate > 0.0
            || self.reorder > 0.0
            || !self.jitter.is_zero()
            || self.bytes_per_second.is_some()
    }
}
