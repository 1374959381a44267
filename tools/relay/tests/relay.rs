//! Relays between real sockets.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{
    fs, io,
    net::{SocketAddr, UdpSocket},
    time::{Duration, Instant},
};

use relay::{Impairment, Relay, RelayOptions};

/// The limit of a wait for a datagram that must arrive.
const LIMIT: Duration = Duration::from_secs(20);

/// Datagrams of a test with random decisions. They all fit into the default receive buffer of a socket.
const MANY: u16 = 200;

struct Network {
    server: UdpSocket,
    client: UdpSocket,
    relay: Relay,
}

impl Network {
    fn new(options: RelayOptions) -> Self {
        Self::at("127.0.0.1:0", options)
    }

    fn at(any: &str, options: RelayOptions) -> Self {
        let server = UdpSocket::bind(any).unwrap();
        let client = UdpSocket::bind(any).unwrap();
        for socket in [&server, &client] {
            socket.set_read_timeout(Some(LIMIT)).unwrap();
        }
        let relay = Relay::start(server.local_addr().unwrap(), options).unwrap();
        client.connect(relay.address()).unwrap();
        Self { server, client, relay }
    }

    fn with(change: impl FnMut(&mut Impairment)) -> Self {
        let mut options = RelayOptions::default();
        options.both(change);
        Self::new(options)
    }

    /// Sends numbered datagrams to the server and waits until the relay has received them.
    fn send_many(&self) {
        for number in 0..MANY {
            self.client.send(&number.to_le_bytes()).unwrap();
        }
        let started = Instant::now();
        while self.relay.counters().unwrap().to_server.received < MANY.into() {
            assert!(started.elapsed() < LIMIT);
        }
    }

    /// The next `count` numbers that the server receives.
    fn receive_many(&self, count: u64) -> Vec<u16> {
        (0..count)
            .map(|_| u16::from_le_bytes(receive(&self.server).0.try_into().unwrap()))
            .collect()
    }
}

fn receive(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = vec![0; 65_536];
    let (length, from) = socket.recv_from(&mut buffer).expect("a datagram arrives");
    buffer.truncate(length);
    (buffer, from)
}

/// True if no datagram waits at the socket. The caller has waited until the relay has decided about all of them.
fn is_empty(socket: &UdpSocket) -> bool {
    socket.set_nonblocking(true).unwrap();
    let received = socket.recv(&mut [0; 16]);
    socket.set_nonblocking(false).unwrap();
    received.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

#[test]
fn answers_return_to_their_client() {
    for any in ["127.0.0.1:0", "[::1]:0"] {
        let network = Network::at(any, RelayOptions::default());
        let second = UdpSocket::bind(any).unwrap();
        second.set_read_timeout(Some(LIMIT)).unwrap();
        second.connect(network.relay.address()).unwrap();
        network.client.send(b"one").unwrap();
        second.send(b"two").unwrap();
        let requests = [receive(&network.server), receive(&network.server)];
        assert_ne!(requests[0].1, requests[1].1);
        for (contents, from) in requests {
            network.server.send_to(&[&contents[..], b"!"].concat(), from).unwrap();
        }
        assert_eq!(receive(&network.client).0, b"one!");
        assert_eq!(receive(&second).0, b"two!");
    }
}

#[test]
fn datagrams_keep_their_sizes() {
    let network = Network::new(RelayOptions::default());
    for size in [0, 1, 1200, 60_000] {
        network.client.send(&vec![7; size]).unwrap();
        assert_eq!(receive(&network.server).0, vec![7; size]);
    }
    let counters = network.relay.counters().unwrap().to_server;
    assert_eq!((counters.received, counters.forwarded), (4, 4));
    assert_eq!(counters.forwarded_bytes, 61_201);
}

#[test]
fn delay_is_a_lower_bound_in_each_direction() {
    for delay in [Duration::from_millis(1), Duration::from_millis(30)] {
        let network = Network::new(RelayOptions::with_delay(delay));
        for _ in 0..5 {
            let sent = Instant::now();
            network.client.send(b"a").unwrap();
            let (_, from) = receive(&network.server);
            assert!(sent.elapsed() >= delay);
            let answered = Instant::now();
            network.server.send_to(b"b", from).unwrap();
            receive(&network.client);
            assert!(answered.elapsed() >= delay);
        }
    }
}

#[test]
fn order_is_kept_with_delay_and_jitter() {
    let network = Network::with(|link| {
        link.delay = Duration::from_millis(2);
        link.jitter = Duration::from_millis(5);
    });
    network.send_many();
    let received = network.receive_many(MANY.into());
    assert!(received.is_sorted());
}

#[test]
fn reordering_lets_datagrams_overtake() {
    let network = Network::with(|link| {
        link.delay = Duration::from_millis(1);
        link.reorder = 0.2;
    });
    network.send_many();
    let mut received = network.receive_many(MANY.into());
    assert!(!received.is_sorted());
    received.sort_unstable();
    assert!(received.into_iter().eq(0..MANY));
    assert!(network.relay.counters().unwrap().to_server.reordered > 0);
}

#[test]
fn loss_of_all_drops_all() {
    let network = Network::with(|link| link.loss = 1.0);
    network.send_many();
    let counters = network.relay.counters().unwrap().to_server;
    assert_eq!((counters.lost, counters.forwarded), (MANY.into(), 0));
    assert!(is_empty(&network.server));
}

#[test]
fn partial_loss_and_duplicates_are_counted() {
    let network = Network::with(|link| {
        link.loss = 0.25;
        link.duplicate = 0.25;
    });
    network.send_many();
    let counters = network.relay.counters().unwrap().to_server;
    assert!(counters.lost > 0 && counters.duplicated > 0, "{counters:?}");
    assert_eq!(counters.forwarded, u64::from(MANY) - counters.lost + counters.duplicated);
    let received = network.receive_many(counters.forwarded);
    assert!(received.is_sorted());
    let copies = received.windows(2).filter(|pair| pair[0] == pair[1]).count();
    assert_eq!(copies as u64, counters.duplicated);
    assert!(is_empty(&network.server));
}

#[test]
fn partition_of_one_direction_heals() {
    let network = Network::new(RelayOptions::default());
    network.client.send(b"a").unwrap();
    let (_, from) = receive(&network.server);

    network.relay.update(|options| options.to_client.partitioned = true).unwrap();
    network.server.send_to(b"lost", from).unwrap();
    network.client.send(b"b").unwrap();
    assert_eq!(receive(&network.server).0, b"b");
    let started = Instant::now();
    while network.relay.counters().unwrap().to_client.partitioned == 0 {
        assert!(started.elapsed() < LIMIT);
    }

    network.relay.partition(false).unwrap();
    network.server.send_to(b"c", from).unwrap();
    assert_eq!(receive(&network.client).0, b"c");
}

#[test]
fn bandwidth_is_an_upper_bound() {
    let network = Network::with(|link| link.bytes_per_second = Some(100_000));
    let started = Instant::now();
    for _ in 0..5 {
        network.client.send(&[0; 1000]).unwrap();
    }
    (0..5).for_each(|_| assert_eq!(receive(&network.server).0.len(), 1000));
    assert!(started.elapsed() >= Duration::from_millis(50));
}

#[test]
fn rebind_changes_the_address_of_a_client() {
    let network = Network::new(RelayOptions::default());
    network.client.send(b"a").unwrap();
    let (_, before) = receive(&network.server);
    network.relay.rebind().unwrap();
    network.client.send(b"b").unwrap();
    let (_, after) = receive(&network.server);
    assert_ne!(before, after);
    network.server.send_to(b"c", after).unwrap();
    assert_eq!(receive(&network.client).0, b"c");
}

#[test]
fn drop_ends_the_thread_and_closes_the_sockets() {
    let Network { server, client, relay } = Network::new(RelayOptions::default());
    client.send(b"a").unwrap();
    let (_, upstream) = receive(&server);
    relay.update(|options| options.to_server.delay = Duration::from_secs(3600)).unwrap();
    client.send(b"in flight").unwrap();
    let address = relay.address();
    assert_eq!(threads_of(address), 1);
    drop(relay);

    // The kernel removes an ended thread from the list shortly after it is joined.
    let started = Instant::now();
    while threads_of(address) > 0 {
        assert!(started.elapsed() < LIMIT);
    }
    // The ports are free again, so no socket of the relay is open.
    UdpSocket::bind(address).unwrap();
    UdpSocket::bind(("0.0.0.0", upstream.port())).unwrap();
}

/// The number of threads of the relay at this address.
fn threads_of(relay: SocketAddr) -> usize {
    let name = format!("relay-{}\n", relay.port());
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    tasks
        .filter(|task| fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm == name))
        .count()
}
