//! Handshakes: connections whose client is not known yet. Anyone who reaches the node can begin them.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::connection_memory::ConnectionMemory;

/// The maximum number of handshakes at a time. Each uses some tens of KiB.
const HANDSHAKES: usize = 512;

/// The number of handshakes from which on a client has to show that it receives packets at its address, by one more
/// round trip (RFC 9000, section 8.1.2). Before that, the node keeps nothing about it.
const RETRY: usize = 64;

/// The time between the beginnings of two handshakes while clients have to show their addresses. The first step of one
/// takes some tenths of a millisecond, in which the endpoint reads no packet of any connection.
const PAUSE: Duration = Duration::from_millis(1);

/// The number of connections that have failed or were refused, and whose memory is not free, from which on the handshakes of
/// an address begin [`SLOW`]ly. Each uses about 40 KiB, for 3 seconds, or for 50 if its client says that it acknowledges
/// late.
const ENDED: usize = 2048;

/// The time between the beginnings of two handshakes of one address while the memory of [`ENDED`] is not free. So one
/// address fills no more than some hundreds of MiB. Other addresses do not wait for it.
const SLOW: Duration = Duration::from_millis(20);

/// The received bytes that wait with a handshake for its turn. A client without 0-RTT sends 1 or 2 small packets.
const WAITING: u64 = 16 << 10;

/// The handshakes of a node.
///
/// One begins at a time, of one address after another. So a client waits for the handshakes of its own address, and for
/// one of each other address.
///
/// A handshake beyond the limit takes the place of another one: of the oldest one of the address that has the most, or of
/// the addresses that have as many. So clients that never end their handshakes keep no other address out. They keep a
/// client out only if they have its address, or [`HANDSHAKES`] addresses, and while they begin [`HANDSHAKES`] new ones
/// within the time of one handshake.
#[derive(Default)]
pub(super) struct Handshakes {
    state: Mutex<State>,
    /// Locked by the handshake that begins. Fair.
    turn: Turn,
    /// Each connection that has failed or was refused has a clone until its memory is free.
    ended: Arc<()>,
}

type Turn = tokio::sync::Mutex<()>;

#[derive(Default)]
struct State {
    next: u64,
    /// The handshakes, in the order of their beginning.
    under_way: BTreeMap<u64, UnderWay>,
}

struct UnderWay {
    address: IpAddr,
    /// Locked by the handshake of the address that waits for the turn of the node, or has it.
    turn: Arc<Turn>,
    displaced: Arc<Notify>,
}

/// A handshake. It counts until it is dropped.
pub(super) struct Handshake {
    handshakes: Arc<Handshakes>,
    number: u64,
    turn: Arc<Turn>,
    displaced: Arc<Notify>,
}

impl Handshakes {
    /// Limits the memory of the handshakes that wait for their turns.
    pub(super) fn limit(config: &mut quinn::ServerConfig) {
        config
            .max_incoming(8 * HANDSHAKES)
            .incoming_buffer_size(WAITING)
            .incoming_buffer_size_total(WAITING * HANDSHAKES as u64);
    }

    /// Returns whether a client has to show its address before its handshake begins.
    pub(super) fn require_retry(&self) -> bool {
        self.state.lock().under_way.len() >= RETRY
    }

    fn is_slow(&self) -> bool {
        Arc::strong_count(&self.ended) > ENDED
    }

    /// Counts a connection that counts for no tenant, until its memory is free.
    pub(super) async fn ended(&self, memory: ConnectionMemory) {
        let _ended = self.ended.clone();
        memory.freed().await;
    }

    /// Begins a handshake of a client at this address.
    pub(super) fn begin(self: &Arc<Self>, address: IpAddr) -> Handshake {
        let mut state = self.state.lock();
        if state.under_way.len() >= HANDSHAKES {
            state.displace();
        }
        let (number, address) = (state.next, network(address));
        state.next += 1;
        let mut under_way = state.under_way.values();
        let turn = under_way.find(|one| one.address == address).map(|one| one.turn.clone());
        let turn = turn.unwrap_or_default();
        let displaced = Arc::default();
        let under_way = UnderWay { address, turn, displaced };
        let (turn, displaced) = (under_way.turn.clone(), under_way.displaced.clone());
        state.under_way.insert(number, under_way);
        Handshake { handshakes: self.clone(), number, turn, displaced }
    }
}

impl State {
    /// Ends the oldest handshake of the address that has the most, or of the addresses that have as many.
    fn displace(&mut self) {
        let mut counts = BTreeMap::<IpAddr, (usize, u64)>::new();
        for (number, one) in &self.under_way {
            counts.entry(one.address).or_insert((0, *number)).0 += 1;
        }
        let displaced =
            counts.into_values().max_by_key(|(count, oldest)| (*count, Reverse(*oldest)));
        if let Some((_, oldest)) = displaced {
            self.under_way.remove(&oldest).into_iter().for_each(|one| one.displaced.notify_one());
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
    /// Calls `first_step` in the turn of this handshake.
    pub(super) async fn begin<T>(&self, first_step: impl FnOnce() -> T) -> T {
        let _turn_of_address = self.turn.lock().await;
        let turn = self.handshakes.turn.lock().await;
        let begun = first_step();
        if self.handshakes.require_retry() {
            tokio::time::sleep(PAUSE).await;
        }
        drop(turn);
        if self.handshakes.is_slow() {
            tokio::time::sleep(SLOW).await;
        }
        begun
    }

    /// Ends a handshake that has failed. Waits until its memory is free.
    pub(super) async fn fail(self, memory: ConnectionMemory) {
        let handshakes = self.handshakes.clone();
        drop(self);
        handshakes.ended(memory).await;
    }

    /// Waits until another handshake has taken the place of this one.
    pub(super) async fn displaced(&self) {
        self.displaced.notified().await;
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.handshakes.state.lock().under_way.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use cuda_lease::authority::ServerTls;

    use super::*;

    fn is_displaced(handshake: &Handshake) -> bool {
        let mut displaced = std::pin::pin!(handshake.displaced());
        displaced
            .as_mut()
            .poll(&mut std::task::Context::from_waker(std::task::Waker::noop()))
            .is_ready()
    }

    #[test]
    fn address_with_the_most_handshakes_loses_its_oldest() {
        let handshakes = Arc::new(Handshakes::default());
        let at = |address: &str| handshakes.begin(address.parse().unwrap());
        let client = at("10.0.0.1");
        let mut flood: Vec<_> = (0..HANDSHAKES - 1).map(|_| at("10.0.0.2")).collect();
        assert!(handshakes.require_retry());
        flood.extend((0..10).map(|_| at("10.0.0.2")));
        let another = at("10.0.0.3");
        assert!(!is_displaced(&client));
        let displaced: Vec<_> = flood.iter().map(is_displaced).collect();
        assert!(displaced[..11].iter().all(|is| *is) && !displaced[11..].contains(&true));
        assert_eq!(handshakes.state.lock().under_way.len(), HANDSHAKES);
        drop((client, another, flood));
        assert!(handshakes.state.lock().under_way.is_empty() && !handshakes.require_retry());
    }

    #[tokio::test]
    async fn handshakes_begin_one_address_after_another() {
        let handshakes = Arc::new(Handshakes::default());
        let begun = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = tokio::task::JoinSet::new();
        let held = handshakes.turn.lock().await;
        for address in ["10.0.0.1"; 100].into_iter().chain(["10.0.0.2", "10.0.0.3"]) {
            let (begun, handshake) = (begun.clone(), handshakes.begin(address.parse().unwrap()));
            tasks.spawn(async move {
                handshake.begin(|| begun.lock().push(address)).await;
            });
        }
        // The tasks of this thread run until all of them wait.
        tokio::task::yield_now().await;
        drop(held);
        tasks.join_all().await;
        assert_eq!(begun.lock()[..3], ["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
        assert_eq!(begun.lock().len(), 102);
    }

    /// Clients without a certificate begin handshakes and fail, without an end.
    #[tokio::test]
    async fn handshakes_begin_slowly_while_the_memory_of_many_is_not_free() {
        let handshakes = Arc::new(Handshakes::default());
        let address = "127.0.0.1:0".parse().unwrap();
        let (config, _) = ServerTls::insecure().config_for(address).unwrap();
        let (mut configs, mut failed) = (Vec::new(), tokio::task::JoinSet::new());
        for _ in 0..ENDED {
            assert!(!handshakes.is_slow());
            let mut config = config.clone();
            let memory = ConnectionMemory::observe(&mut config);
            failed.spawn(handshakes.begin(address.ip()).fail(memory));
            configs.push(config);
            tokio::task::yield_now().await;
        }
        assert!(handshakes.is_slow());
        assert!(handshakes.state.lock().under_way.is_empty());
        drop(configs);
        failed.join_all().await;
        assert!(!handshakes.is_slow());
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
        let earlier = flood([10, 0, 0, 0]);
        let client = handshakes.begin("2001:db8::1".parse().unwrap());
        let later = flood([10, 1, 0, 0]);
        assert!(!is_displaced(&client));
        assert!(earlier.iter().all(is_displaced) && !later.iter().any(is_displaced));
    }

    #[test]
    fn addresses_of_one_network_count_as_one() {
        let same = |a: &str, b: &str| network(a.parse().unwrap()) == network(b.parse().unwrap());
        assert!(same("2001:db8::1", "2001:db8::2:3:4:5") && same("::ffff:10.0.0.1", "10.0.0.1"));
        assert!(!same("2001:db8::1", "2001:db8:0:1::1") && !same("10.0.0.1", "10.0.0.2"));
    }
}
