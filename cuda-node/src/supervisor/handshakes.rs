//! Handshakes: connections whose client is not known yet. Anyone who reaches the node can begin them.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// The maximum number of handshakes at a time. Each uses some tens of KiB.
const HANDSHAKES: usize = 512;

/// The number of handshakes from which on a client has to show that it receives packets at its address, by one more
/// round trip (RFC 9000, section 8.1.2). Before that, the node keeps nothing about it.
const RETRY: usize = 64;

/// The handshakes of a node.
///
/// A handshake beyond the limit takes the place of another one: of the oldest one of the address that has the most, or of
/// the addresses that have as many. So clients that never end their handshakes keep no other address out. They keep a
/// client out only if they have its address, or [`HANDSHAKES`] addresses, and while they begin [`HANDSHAKES`] new ones
/// within the time of one handshake.
#[derive(Default)]
pub(super) struct Handshakes(Mutex<State>);

#[derive(Default)]
struct State {
    next: u64,
    /// The handshakes, in the order of their beginning. To drop the sender displaces one.
    under_way: BTreeMap<u64, (IpAddr, oneshot::Sender<()>)>,
}

/// A handshake. It counts until it is dropped.
pub(super) struct Handshake {
    handshakes: Arc<Handshakes>,
    number: u64,
    place: oneshot::Receiver<()>,
}

impl Handshakes {
    /// Returns whether a client has to show its address before its handshake begins.
    pub(super) fn require_retry(&self) -> bool {
        self.0.lock().under_way.len() >= RETRY
    }

    /// Begins a handshake of a client at this address.
    pub(super) fn begin(self: &Arc<Self>, address: IpAddr) -> Handshake {
        let (sender, place) = oneshot::channel();
        let mut state = self.0.lock();
        if state.under_way.len() >= HANDSHAKES {
            state.displace();
        }
        let number = state.next;
        state.next += 1;
        state.under_way.insert(number, (network(address), sender));
        Handshake { handshakes: self.clone(), number, place }
    }
}

impl State {
    /// Ends the oldest handshake of the address that has the most, or of the addresses that have as many.
    fn displace(&mut self) {
        let mut counts = BTreeMap::<IpAddr, (usize, u64)>::new();
        for (number, (address, _)) in &self.under_way {
            counts.entry(*address).or_insert((0, *number)).0 += 1;
        }
        let displaced =
            counts.into_values().max_by_key(|(count, oldest)| (*count, Reverse(*oldest)));
        if let Some((_, oldest)) = displaced {
            self.under_way.remove(&oldest);
        }
    }
}

/// The addresses that one client usually has: an IPv4 address, or the first half of an IPv6 address.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

impl Handshake {
    /// Waits until another handshake has taken the place of this one.
    pub(super) async fn displaced(&mut self) {
        // Nothing is ever sent.
        _ = (&mut self.place).await;
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.handshakes.0.lock().under_way.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn is_displaced(handshake: &mut Handshake) -> bool {
        handshake.place.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    #[test]
    fn address_with_the_most_handshakes_loses_its_oldest() {
        let handshakes = Arc::new(Handshakes::default());
        let at = |address: &str| handshakes.begin(address.parse().unwrap());
        let mut client = at("10.0.0.1");
        let mut flood: Vec<_> = (0..HANDSHAKES - 1).map(|_| at("10.0.0.2")).collect();
        assert!(handshakes.require_retry());
        flood.extend((0..10).map(|_| at("10.0.0.2")));
        let another = at("10.0.0.3");
        assert!(!is_displaced(&mut client));
        let displaced: Vec<_> = flood.iter_mut().map(is_displaced).collect();
        assert!(displaced[..11].iter().all(|is| *is) && !displaced[11..].contains(&true));
        assert_eq!(handshakes.0.lock().under_way.len(), HANDSHAKES);
        drop((client, another, flood));
        assert!(handshakes.0.lock().under_way.is_empty() && !handshakes.require_retry());
    }

    /// The client has the highest address of all.
    #[test]
    fn of_addresses_with_as_many_handshakes_the_oldest_is_displaced() {
        let handshakes = Arc::new(Handshakes::default());
        let flood = |first: [u8; 4]| -> Vec<_> {
            let first = Ipv4Addr::from(first).to_bits();
            let addresses =
                (1..HANDSHAKES as u32).map(|number| Ipv4Addr::from_bits(first + number));
            addresses.map(|address| handshakes.begin(address.into())).collect()
        };
        let mut earlier = flood([10, 0, 0, 0]);
        let mut client = handshakes.begin("2001:db8::1".parse().unwrap());
        let mut later = flood([10, 1, 0, 0]);
        assert!(!is_displaced(&mut client));
        assert!(earlier.iter_mut().all(is_displaced) && !later.iter_mut().any(is_displaced));
    }

    #[test]
    fn addresses_of_one_network_count_as_one() {
        let same = |a: &str, b: &str| network(a.parse().unwrap()) == network(b.parse().unwrap());
        assert!(same("2001:db8::1", "2001:db8::2:3:4:5") && same("::ffff:10.0.0.1", "10.0.0.1"));
        assert!(!same("2001:db8::1", "2001:db8:0:1::1") && !same("10.0.0.1", "10.0.0.2"));
    }
}
