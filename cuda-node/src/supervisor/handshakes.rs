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

/// The time between the beginnings of two handshakes of one address, for each of its unproven connections.
///
/// An unproven connection uses about 40 KiB, for 3 seconds after its end, or for 50 if its client says that it
/// acknowledges late. So an address without an honest client begins about 50 handshakes per second, or 12, and has about
/// 150 unproven connections, or 620. The clients of an honest one are known within milliseconds: it has few.
const PAUSE_FOR_EACH: Duration = Duration::from_micros(128);

/// The received bytes that wait with a handshake for its turn. A client without 0-RTT sends 1 or 2 small packets.
const WAITING: u64 = 16 << 10;

/// The handshakes of a node.
///
/// One begins at a time, of one address after another. Of the handshakes of one address, the newest one begins first: its
/// client still waits for it. So a client waits for one handshake of its own address, and for one of each other address.
///
/// A handshake beyond the limit takes the place of another one: of the oldest one of the address that has the most, or of
/// the addresses that have as many. So clients that never end their handshakes keep no other address out. They keep a
/// client out only if they have its address, or [`HANDSHAKES`] addresses, and while they begin [`HANDSHAKES`] new ones
/// within the time of one handshake.
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
    addresses: BTreeMap<IpAddr, Address>,
}

struct UnderWay {
    address: IpAddr,
    stage: Stage,
    /// The address may have its turn to give.
    wake: Arc<Notify>,
    displaced: Arc<Notify>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It waits for the turn of its address.
    Waiting,
    /// It has the turn of its address, and waits for the turn of the node.
    Next,
    /// Its connection is unproven.
    Begun,
}

/// An address that has handshakes or unproven connections.
#[derive(Default)]
struct Address {
    handshakes: usize,
    /// The connections whose client is not known yet, and those that failed or were refused and whose memory is not free.
    unproven: usize,
    /// When its last handshake began.
    last: Option<Instant>,
}

/// A handshake. It counts until it is dropped.
pub(super) struct Handshake {
    handshakes: Arc<Handshakes>,
    number: u64,
    address: IpAddr,
    wake: Arc<Notify>,
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

    /// Counts a connection that counts for no tenant as unproven, until its memory is free.
    pub(super) async fn ended(&self, address: IpAddr, memory: ConnectionMemory) {
        let _unproven = Unproven::count(self, network(address));
        memory.freed().await;
    }

    /// Adds a handshake of a client at this address.
    pub(super) fn add(self: &Arc<Self>, address: IpAddr) -> Handshake {
        let mut state = self.state.lock();
        if state.under_way.len() >= HANDSHAKES {
            state.displace();
        }
        let (number, address) = (state.next, network(address));
        state.next += 1;
        state.addresses.entry(address).or_default().handshakes += 1;
        let (wake, displaced) = (Arc::<Notify>::default(), Arc::<Notify>::default());
        let handshake = Handshake {
            handshakes: self.clone(),
            number,
            address,
            wake: wake.clone(),
            displaced: displaced.clone(),
        };
        state
            .under_way
            .insert(number, UnderWay { address, stage: Stage::Waiting, wake, displaced });
        handshake
    }
}

impl State {
    /// Ends the oldest handshake of the address that has the most, or of the addresses that have as many.
    fn displace(&mut self) {
        let count = |one: &UnderWay| self.addresses.get(&one.address).map(|of| of.handshakes);
        let displaced =
            self.under_way.iter().max_by_key(|(number, one)| (count(one), Reverse(**number)));
        let Some(oldest) = displaced.map(|(number, _)| *number) else { return };
        let displaced = self.under_way[&oldest].displaced.clone();
        self.remove(oldest);
        displaced.notify_one();
    }

    fn remove(&mut self, number: u64) {
        let Some(UnderWay { address, stage, .. }) = self.under_way.remove(&number) else { return };
        self.count(address, |of| {
            of.handshakes -= 1;
            of.unproven -= usize::from(stage == Stage::Begun);
        });
        self.wake_newest(address);
    }

    /// Changes the counts of an address, which is forgotten when it has nothing any more.
    fn count(&mut self, address: IpAddr, change: impl FnOnce(&mut Address)) {
        let of = self.addresses.entry(address).or_default();
        change(of);
        if of.handshakes == 0 && of.unproven == 0 {
            self.addresses.remove(&address);
        }
    }

    /// Gives a handshake the turn of its address, if no other one has it and no newer one waits for it. Returns the time at
    /// which it may begin.
    fn take_turn(&mut self, number: u64) -> Option<Instant> {
        let address = self.under_way.get(&number)?.address;
        if self.newest_waiting(address) != Some(number) {
            return None;
        }
        self.under_way.get_mut(&number)?.stage = Stage::Next;
        let of = self.addresses.get(&address)?;
        let pause = PAUSE_FOR_EACH.saturating_mul(u32::try_from(of.unproven).unwrap_or(u32::MAX));
        Some(of.last.map_or_else(Instant::now, |last| last + pause))
    }

    /// Returns the handshake that gets the turn of an address, if no other one has it.
    fn newest_waiting(&self, address: IpAddr) -> Option<u64> {
        let mut of_address = self.under_way.iter().rev().filter(|(_, one)| one.address == address);
        let is_taken = of_address.clone().any(|(_, one)| one.stage == Stage::Next);
        let newest = of_address.find(|(_, one)| one.stage == Stage::Waiting);
        newest.filter(|_| !is_taken).map(|(number, _)| *number)
    }

    fn wake_newest(&self, address: IpAddr) {
        if let Some(newest) = self.newest_waiting(address) {
            self.under_way[&newest].wake.notify_one();
        }
    }

    fn has_begun(&mut self, number: u64) {
        let Some(one) = self.under_way.get_mut(&number) else { return };
        one.stage = Stage::Begun;
        let address = one.address;
        self.count(address, |of| {
            of.unproven += 1;
            of.last = Some(Instant::now());
        });
        self.wake_newest(address);
    }
}

/// The addresses that one client usually has: an IPv4 address, or the first half of an IPv6 address.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

/// Counts an ended connection as unproven until it is dropped.
struct Unproven<'a>(&'a Handshakes, IpAddr);

impl<'a> Unproven<'a> {
    fn count(handshakes: &'a Handshakes, address: IpAddr) -> Self {
        handshakes.state.lock().count(address, |of| of.unproven += 1);
        Self(handshakes, address)
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
        let turn_of_address = loop {
            let turn = self.handshakes.state.lock().take_turn(self.number);
            match turn {
                Some(turn) => break turn,
                None => self.wake.notified().await,
            }
        };
        tokio::time::sleep_until(turn_of_address).await;
        let _turn = self.handshakes.turn.lock().await;
        let begun = first_step();
        self.handshakes.state.lock().has_begun(self.number);
        if self.handshakes.require_retry() {
            tokio::time::sleep(PAUSE).await;
        }
        begun
    }

    /// Ends a handshake that has failed. Waits until its memory is free.
    pub(super) async fn fail(self, memory: ConnectionMemory) {
        let (handshakes, address) = (self.handshakes.clone(), self.address);
        drop(self);
        handshakes.ended(address, memory).await;
    }

    /// Waits until another handshake has taken the place of this one.
    pub(super) async fn displaced(&self) {
        self.displaced.notified().await;
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.handshakes.state.lock().remove(self.number);
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
        let at = |address: &str| handshakes.add(address.parse().unwrap());
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

    /// Adds handshakes whose turn of the node waits. Returns the order in which they have begun.
    async fn order_of(addresses: impl Iterator<Item = &'static str>) -> Vec<(usize, &'static str)> {
        let handshakes = Arc::new(Handshakes::default());
        let begun = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = tokio::task::JoinSet::new();
        let held = handshakes.turn.lock().await;
        for (number, address) in addresses.enumerate() {
            let (begun, handshake) = (begun.clone(), handshakes.add(address.parse().unwrap()));
            tasks.spawn(async move {
                handshake.begin(|| begun.lock().push((number, address))).await;
            });
            // Its task runs until it waits.
            tokio::task::yield_now().await;
        }
        drop(held);
        tasks.join_all().await;
        assert!(handshakes.state.lock().addresses.is_empty());
        Arc::into_inner(begun).unwrap().into_inner()
    }

    #[tokio::test(start_paused = true)]
    async fn handshakes_begin_one_address_after_another() {
        let addresses = ["10.0.0.1"; 100].into_iter().chain(["10.0.0.2", "10.0.0.3"]);
        let order: Vec<_> = order_of(addresses).await;
        assert_eq!(order[..3], [(0, "10.0.0.1"), (100, "10.0.0.2"), (101, "10.0.0.3")]);
        assert_eq!(order.len(), 102);
    }

    #[tokio::test(start_paused = true)]
    async fn newest_handshake_of_an_address_begins_first() {
        let order = order_of(["10.0.0.1"; 4].into_iter()).await;
        assert_eq!(order.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 3, 2, 1]);
    }

    /// The one that has the turn of its address ends, and the one that gets it next too.
    #[tokio::test(start_paused = true)]
    async fn handshake_that_ends_gives_the_turn_of_its_address_back() {
        let handshakes = Arc::new(Handshakes::default());
        let add = || handshakes.add("10.0.0.1".parse().unwrap());
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
    async fn address_with_unproven_connections_begins_handshakes_slowly() {
        let handshakes = Arc::new(Handshakes::default());
        let address = "127.0.0.1:0".parse().unwrap();
        let (config, _) = ServerTls::insecure().config_for(address).unwrap();
        let (mut configs, mut failed) = (Vec::new(), tokio::task::JoinSet::new());
        let started = Instant::now();
        for _ in 0..400 {
            let mut config = config.clone();
            let memory = ConnectionMemory::observe(&mut config);
            let handshake = handshakes.add(address.ip());
            handshake.begin(|| {}).await;
            failed.spawn(handshake.fail(memory));
            configs.push(config);
            tokio::task::yield_now().await;
        }
        // The sum of the pauses, which a clock of milliseconds rounds up.
        let least = PAUSE_FOR_EACH * (0..400).sum();
        assert!(started.elapsed() >= least, "{:?}", started.elapsed());
        // Another address does not wait, and this one does not after the end of the connections.
        for address in ["10.0.0.2", "127.0.0.1"] {
            let started = Instant::now();
            handshakes.add(address.parse().unwrap()).begin(|| {}).await;
            assert_eq!(started.elapsed().is_zero(), address == "10.0.0.2");
        }
        drop(configs);
        failed.join_all().await;
        assert!(handshakes.state.lock().addresses.is_empty());
    }

    /// The client has the highest address of all.
    #[test]
    fn of_addresses_with_as_many_handshakes_the_oldest_is_displaced() {
        let handshakes = Arc::new(Handshakes::default());
        let flood = |first: [u8; 4]| -> Vec<_> {
            let first = Ipv4Addr::from(first).to_bits();
            let addresses =
                (1..HANDSHAKES as u32).map(|number| Ipv4Addr::from_bits(first + number));
            addresses.map(|address| handshakes.add(address.into())).collect()
        };
        let earlier = flood([10, 0, 0, 0]);
        let client = handshakes.add("2001:db8::1".parse().unwrap());
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
