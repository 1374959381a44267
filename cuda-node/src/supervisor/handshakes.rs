//! Handshakes: connections whose client is not known yet. Anyone who reaches the node can begin them.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

use super::connection_memory::ConnectionMemory;

/// The maximum number of handshakes at a time. Each uses some tens of KiB.
const HANDSHAKES: usize = 512;

/// The number of handshakes from which on a client has to show that it receives packets at its address, by one more
/// round trip (RFC 9000, section 8.1.2). Before that, the node keeps nothing about it.
const RETRY: usize = 64;

/// The time between the beginnings of two handshakes while clients have to show their addresses. The first step of one
/// takes some tenths of a millisecond, in which the endpoint reads no packet of any connection.
const PAUSE: Duration = Duration::from_millis(1);

/// The limits of a network. Those of the network of a client are lower than those of the network of a customer, so that one
/// client that fails again and again does not delay the others of its customer.
struct NetworkLimits {
    /// The handshakes that may wait for their turns. A client that is refused at once can try again in the time that it
    /// would wait behind more of them.
    waiting: usize,
    /// The number of unproven connections from which on the next client has to show its address, also if there are few
    /// handshakes. Otherwise packets with a forged source would slow down the clients of the network.
    retry: usize,
    /// The time between the beginnings of two handshakes, from a number of unproven connections on. So a flood from one
    /// network leaves the processors and the endpoint to the sessions of others. The clients of an honest network are known
    /// within milliseconds: it has few unproven connections.
    ///
    /// An unproven connection uses about 40 KiB, or 100 KiB if its client sends large certificates, for 3 seconds after its
    /// end, or for 50 if its client says that it acknowledges late. So one network fills no more than some hundreds of MiB.
    paces: [(usize, Duration); 2],
}

const OF_CLIENT: NetworkLimits = NetworkLimits {
    waiting: 128,
    retry: 8,
    paces: [(2048, Duration::from_millis(20)), (64, Duration::from_millis(5))],
};

const OF_CUSTOMER: NetworkLimits = NetworkLimits {
    waiting: 256,
    retry: 128,
    paces: [(4096, Duration::from_millis(20)), (1024, Duration::from_millis(5))],
};

/// The received bytes that wait with a handshake for its turn. A client without 0-RTT sends 1 or 2 small packets.
const WAITING: u64 = 16 << 10;

/// The handshakes of a node.
///
/// One begins at a time, of one address after another. So a client waits for the handshakes of its own address, and for
/// one of each other address.
///
/// A handshake beyond the limit takes the place of another one: of the oldest one of the address that has the most, or of
/// the addresses that have as many. So clients that never end their handshakes keep no other address out. They keep a
/// client of their own network out if they come faster than the [pace](NetworkLimits::paces) of the network, and then only
/// by chance: a client repeats a handshake that was refused or displaced.
#[derive(Default)]
pub(super) struct Handshakes {
    state: Mutex<State>,
    /// Locked by the handshake that begins. Fair.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    next: u64,
    /// The handshakes, in the order of their arrival.
    under_way: BTreeMap<u64, UnderWay>,
    /// Those of networks that have handshakes or unproven connections. So the limit and the paces bound their number.
    counts: BTreeMap<Network, Counts>,
}

struct UnderWay {
    networks: [Network; 2],
    has_begun: bool,
    displaced: Arc<Notify>,
}

/// Addresses whose handshakes count together. An IPv4 address is a network of both kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Network {
    /// The addresses that one client usually has: the first half of an IPv6 address (a /64).
    Client(IpAddr),
    /// The addresses that a provider gives one customer: the first 48 bits of an IPv6 address, with 65,536 networks of
    /// clients.
    Customer(IpAddr),
}

/// The counts of a network.
#[derive(Default)]
struct Counts {
    handshakes: usize,
    /// Those that have not begun.
    waiting: usize,
    /// The connections whose client is not known yet, and those that failed or were refused and whose memory is not free.
    unproven: usize,
    turn: Arc<Turn>,
}

/// When the last handshake of a network began. Locked by the one that is the next. Fair.
type Turn = tokio::sync::Mutex<Option<Instant>>;

/// A handshake. It counts until it is dropped.
pub(super) struct Handshake {
    handshakes: Arc<Handshakes>,
    number: u64,
    networks: [Network; 2],
    turns: [Arc<Turn>; 2],
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

    /// Returns whether a client at this address has to show that it has the address before its handshake begins.
    pub(super) fn require_retry(&self, address: IpAddr) -> bool {
        let state = self.state.lock();
        let is_suspicious =
            |of: Network| state.counts(of).is_some_and(|count| count.unproven >= of.limits().retry);
        state.are_many() || networks(address).into_iter().any(is_suspicious)
    }

    /// Counts a connection that counts for no tenant as unproven, until its memory is free.
    pub(super) async fn ended(&self, address: IpAddr, memory: ConnectionMemory) {
        let _unproven = Unproven::count(self, networks(address));
        memory.freed().await;
    }

    /// Adds a handshake of a client at this address. Returns `None` if too many of its networks wait.
    pub(super) fn add(self: &Arc<Self>, address: IpAddr) -> Option<Handshake> {
        let (mut state, networks) = (self.state.lock(), networks(address));
        let is_full = |of: Network| {
            state.counts(of).is_some_and(|count| count.waiting >= of.limits().waiting)
        };
        if networks.into_iter().any(is_full) {
            return None;
        }
        if state.under_way.len() >= HANDSHAKES {
            state.displace();
        }
        let number = state.next;
        state.next += 1;
        let turns = networks.map(|network| {
            let of = state.counts.entry(network).or_default();
            of.handshakes += 1;
            of.waiting += 1;
            of.turn.clone()
        });
        let displaced = Arc::<Notify>::default();
        let under_way = UnderWay { networks, has_begun: false, displaced: displaced.clone() };
        state.under_way.insert(number, under_way);
        Some(Handshake { handshakes: self.clone(), number, networks, turns, displaced })
    }
}

impl State {
    /// Whether there are so many handshakes that each client has to show its address.
    fn are_many(&self) -> bool {
        self.under_way.len() >= RETRY
    }

    fn counts(&self, of: Network) -> Option<&Counts> {
        self.counts.get(&of)
    }

    /// Ends the oldest handshake of the address that has the most, or of the addresses that have as many.
    fn displace(&mut self) {
        let count = |one: &UnderWay| self.counts(one.networks[0]).map(|of| of.handshakes);
        let displaced =
            self.under_way.iter().max_by_key(|(number, one)| (count(one), Reverse(**number)));
        if let Some(oldest) = displaced.map(|(number, _)| *number) {
            self.remove(oldest).into_iter().for_each(|one| one.displaced.notify_one());
        }
    }

    fn remove(&mut self, number: u64) -> Option<UnderWay> {
        let removed = self.under_way.remove(&number)?;
        self.count(removed.networks, |of| {
            of.handshakes -= 1;
            of.waiting -= usize::from(!removed.has_begun);
            of.unproven -= usize::from(removed.has_begun);
        });
        Some(removed)
    }

    /// Changes the counts of networks. One that has nothing any more is forgotten.
    fn count(&mut self, networks: [Network; 2], change: impl Fn(&mut Counts)) {
        for network in networks {
            let of = self.counts.entry(network).or_default();
            change(of);
            if of.handshakes == 0 && of.unproven == 0 {
                self.counts.remove(&network);
            }
        }
    }

    fn has_begun(&mut self, number: u64) {
        if let Some(one) = self.under_way.get_mut(&number) {
            one.has_begun = true;
            let networks = one.networks;
            self.count(networks, |of| {
                of.waiting -= 1;
                of.unproven += 1;
            });
        }
    }

    /// The time between the beginnings of two handshakes of a network.
    fn pause(&self, network: Network) -> Duration {
        let unproven = self.counts(network).map_or(0, |of| of.unproven);
        let pace = network.limits().paces.into_iter().find(|(count, _)| unproven >= *count);
        pace.map_or(Duration::ZERO, |(_, pause)| pause)
    }
}

impl Network {
    fn limits(self) -> NetworkLimits {
        match self {
            Network::Client(_) => OF_CLIENT,
            Network::Customer(_) => OF_CUSTOMER,
        }
    }
}

/// Returns the networks of an address: that of a client, and that of its customer.
fn networks(address: IpAddr) -> [Network; 2] {
    let first = |bits: u32| match address.to_canonical() {
        IpAddr::V6(address) => {
            let other = Ipv6Addr::BITS - bits;
            Ipv6Addr::from_bits(address.to_bits() >> other << other).into()
        }
        address => address,
    };
    [Network::Client(first(64)), Network::Customer(first(48))]
}

/// Counts an ended connection as unproven until it is dropped.
struct Unproven<'a>(&'a Handshakes, [Network; 2]);

impl<'a> Unproven<'a> {
    fn count(handshakes: &'a Handshakes, networks: [Network; 2]) -> Self {
        handshakes.state.lock().count(networks, |of| of.unproven += 1);
        Self(handshakes, networks)
    }
}

impl Drop for Unproven<'_> {
    fn drop(&mut self) {
        self.0.state.lock().count(self.1, |of| of.unproven -= 1);
    }
}

impl Handshake {
    /// Calls `first_step` in the turn of this handshake.
    pub(super) async fn begin<T>(&self, first_step: impl FnOnce() -> T) -> T {
        let ([client, customer], [of_client, of_customer]) = (self.networks, &self.turns);
        let mut last = of_client.lock().await;
        self.pause(client, *last).await;
        {
            // Only for the pause: of the clients of a customer, each waits for its own turn of the node.
            let mut last = of_customer.lock().await;
            self.pause(customer, *last).await;
            *last = Some(Instant::now());
        }
        let _turn = self.handshakes.turn.lock().await;
        let begun = first_step();
        *last = Some(Instant::now());
        drop(last);
        let are_many = {
            let mut state = self.handshakes.state.lock();
            state.has_begun(self.number);
            state.are_many()
        };
        if are_many {
            tokio::time::sleep(PAUSE).await;
        }
        begun
    }

    /// Waits until the pause of a network is over, whose last handshake began at `last`.
    async fn pause(&self, network: Network, last: Option<Instant>) {
        if let Some(last) = last {
            let pause = self.handshakes.state.lock().pause(network);
            tokio::time::sleep_until(last + pause).await;
        }
    }

    /// Ends a handshake that has failed. Waits until its memory is free.
    pub(super) async fn fail(self, memory: ConnectionMemory) {
        let (handshakes, networks) = (self.handshakes.clone(), self.networks);
        drop(self);
        let _unproven = Unproven::count(&handshakes, networks);
        memory.freed().await;
    }

    /// Waits until another handshake has taken the place of this one.
    pub(super) async fn displaced(&self) {
        self.displaced.notified().await;
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        _ = self.handshakes.state.lock().remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use cuda_lease::authority::ServerTls;

    use super::*;

    /// A handshake that has begun.
    fn begun(handshakes: &Arc<Handshakes>, address: IpAddr) -> Handshake {
        let handshake = handshakes.add(address).unwrap();
        handshakes.state.lock().has_begun(handshake.number);
        handshake
    }

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
        let at = |address: &str| begun(&handshakes, address.parse().unwrap());
        let client = at("10.0.0.1");
        let mut flood: Vec<_> = (0..HANDSHAKES - 1).map(|_| at("10.0.0.2")).collect();
        assert!(handshakes.state.lock().are_many());
        flood.extend((0..10).map(|_| at("10.0.0.2")));
        let another = at("10.0.0.3");
        assert!(!is_displaced(&client));
        let displaced: Vec<_> = flood.iter().map(is_displaced).collect();
        assert!(displaced[..11].iter().all(|is| *is) && !displaced[11..].contains(&true));
        assert_eq!(handshakes.state.lock().under_way.len(), HANDSHAKES);
        drop((client, another, flood));
        assert!(handshakes.state.lock().under_way.is_empty());
    }

    /// Adds handshakes whose turn of the node waits. Returns the order in which they have begun.
    async fn order_of(addresses: impl Iterator<Item = &'static str>) -> Vec<(usize, &'static str)> {
        let handshakes = Arc::new(Handshakes::default());
        let begun = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = tokio::task::JoinSet::new();
        let held = handshakes.turn.lock().await;
        for (number, address) in addresses.enumerate() {
            let (begun, handshake) =
                (begun.clone(), handshakes.add(address.parse().unwrap()).unwrap());
            tasks.spawn(async move {
                handshake.begin(|| begun.lock().push((number, address))).await;
            });
            // Its task runs until it waits.
            tokio::task::yield_now().await;
        }
        drop(held);
        tasks.join_all().await;
        assert!(handshakes.state.lock().counts.is_empty());
        Arc::into_inner(begun).unwrap().into_inner()
    }

    #[tokio::test(start_paused = true)]
    async fn handshakes_begin_one_address_after_another() {
        let addresses = ["10.0.0.1"; 100].into_iter().chain(["10.0.0.2", "10.0.0.3"]);
        let order: Vec<_> = order_of(addresses).await;
        assert_eq!(order[..3], [(0, "10.0.0.1"), (100, "10.0.0.2"), (101, "10.0.0.3")]);
        assert_eq!(order.len(), 102);
    }

    #[test]
    fn handshake_behind_too_many_of_its_address_is_refused_at_once() {
        let (handshakes, address) = (Arc::new(Handshakes::default()), Ipv4Addr::LOCALHOST.into());
        let mut waiting: Vec<_> =
            (0..=OF_CLIENT.waiting).map(|_| handshakes.add(address)).collect();
        assert!(waiting.pop().unwrap().is_none());
        assert!(handshakes.add(Ipv4Addr::BROADCAST.into()).is_some());
        let first = waiting.swap_remove(0).unwrap();
        handshakes.state.lock().has_begun(first.number);
        assert!(handshakes.add(address).is_some());
        drop((first, waiting));
        assert!(handshakes.state.lock().counts.is_empty());
    }

    /// The one that has the turn of its address ends, and the one that gets it next too.
    #[tokio::test(start_paused = true)]
    async fn handshake_that_ends_gives_the_turn_of_its_address_back() {
        let handshakes = Arc::new(Handshakes::default());
        let add = || handshakes.add("10.0.0.1".parse().unwrap()).unwrap();
        let held = handshakes.turn.lock().await;
        let mut tasks: Vec<_> = (0..3)
            .map(|_| add())
            .map(|one| tokio::spawn(async move { one.begin(|| {}).await }))
            .collect();
        tokio::task::yield_now().await;
        let first = tasks.remove(0);
        first.abort();
        first.await.unwrap_err();
        let newest = tasks.remove(1);
        newest.abort();
        newest.await.unwrap_err();
        drop(held);
        tasks.remove(0).await.unwrap();
    }

    /// Clients without a certificate begin handshakes and fail, without an end.
    #[tokio::test(start_paused = true)]
    async fn address_with_many_unproven_connections_begins_handshakes_slowly() {
        let handshakes = Arc::new(Handshakes::default());
        let (address, other) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let listen = "127.0.0.1:0".parse().unwrap();
        let (config, _) = ServerTls::insecure().config_for(listen).unwrap();
        let (mut configs, mut failed) = (Vec::new(), tokio::task::JoinSet::new());
        let time_of = async |address| {
            let (started, handshake) = (Instant::now(), handshakes.add(address).unwrap());
            handshake.begin(|| ()).await;
            (started.elapsed(), handshake)
        };
        for unproven in 0..2100 {
            let (time, handshake) = time_of(address).await;
            let least = match unproven {
                0..64 => Duration::ZERO,
                64..2048 => Duration::from_millis(4),
                _ => Duration::from_millis(19),
            };
            assert!(time >= least && time <= least + Duration::from_millis(2), "{time:?}");
            assert_eq!(handshakes.require_retry(address), unproven + 1 >= OF_CLIENT.retry);
            let mut config = config.clone();
            let memory = ConnectionMemory::observe(&mut config);
            failed.spawn(handshake.fail(memory));
            configs.push(config);
            tokio::task::yield_now().await;
        }
        // Another address does not wait, and this one does not after the end of the connections.
        assert!(time_of(other).await.0.is_zero() && !handshakes.require_retry(other));
        drop(configs);
        failed.join_all().await;
        assert!(time_of(address).await.0.is_zero());
        assert!(handshakes.state.lock().counts.is_empty());
    }

    /// A provider gives each customer up to 65,536 networks of IPv6.
    #[tokio::test(start_paused = true)]
    async fn customer_with_many_networks_begins_handshakes_slowly() {
        let handshakes = Arc::new(Handshakes::default());
        let of_customer = |number| Ipv6Addr::new(0x2001, 0xdb8, 1, number, 0, 0, 0, 1).into();
        let other = "2001:db8:2::1".parse().unwrap();
        let begin_two = async |first: IpAddr, second: IpAddr| {
            handshakes.add(first).unwrap().begin(|| ()).await;
            let started = Instant::now();
            handshakes.add(second).unwrap().begin(|| ()).await;
            started.elapsed()
        };
        let mut failed = Vec::new();
        let unproven = [(100, 0), (1024, 5), (4096, 20)];
        for (count, pause) in unproven {
            let more = (failed.len()..count).map(|number| of_customer(number as u16));
            failed.extend(more.map(|address| Unproven::count(&handshakes, networks(address))));
            assert_eq!(handshakes.require_retry(of_customer(9999)), count > 100);
            let time = begin_two(of_customer(9998), of_customer(9999)).await;
            let least = Duration::from_millis(pause);
            assert!(time >= least && time <= least + Duration::from_millis(2), "{count}: {time:?}");
            assert!(begin_two(of_customer(9999), other).await.is_zero());
            assert!(!handshakes.require_retry(other));
        }
        drop(failed);
        assert!(handshakes.state.lock().counts.is_empty());
    }

    /// The client has the highest address of all.
    #[test]
    fn of_addresses_with_as_many_handshakes_the_oldest_is_displaced() {
        let handshakes = Arc::new(Handshakes::default());
        let flood = |first: [u8; 4]| -> Vec<_> {
            let first = Ipv4Addr::from(first).to_bits();
            let addresses =
                (1..HANDSHAKES as u32).map(|number| Ipv4Addr::from_bits(first + number));
            addresses.map(|address| begun(&handshakes, address.into())).collect()
        };
        let earlier = flood([10, 0, 0, 0]);
        let client = begun(&handshakes, "2001:db8::1".parse().unwrap());
        let later = flood([10, 1, 0, 0]);
        assert!(!is_displaced(&client));
        assert!(earlier.iter().all(is_displaced) && !later.iter().any(is_displaced));
    }

    #[test]
    fn addresses_of_one_network_count_as_one() {
        let same = |a: &str, b: &str| {
            let [[client, customer], [other, of_other]] =
                [a, b].map(|address| networks(address.parse().unwrap()));
            (client == other, customer == of_other)
        };
        assert_eq!(same("2001:db8::1", "2001:db8::2:3:4:5"), (true, true));
        assert_eq!(same("::ffff:10.0.0.1", "10.0.0.1"), (true, true));
        assert_eq!(same("2001:db8::1", "2001:db8:0:1::1"), (false, true));
        assert_eq!(same("2001:db8::1", "2001:db8:1::1"), (false, false));
        assert_eq!(same("10.0.0.1", "10.0.0.2"), (false, false));
    }
}
