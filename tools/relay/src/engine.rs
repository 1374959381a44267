//! The thread of a relay: waits for datagrams, for the next one that is due and for commands.

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use rustix::{
    event::{Timespec, epoll},
    time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags},
};

use crate::{
    Counters,
    link::{Batch, Link},
    options::RelayOptions,
    socket::{Buffers, Socket},
};

/// The limit of the clients of one relay. The relay drops datagrams of further clients.
pub const MAX_CLIENTS: usize = 1024;

/// The time before a datagram is due from which the thread polls instead of sleeping. It covers the latency of a timer.
const SPIN: Duration = Duration::from_micros(60);

const LISTEN: u64 = u64::MAX;
const TIMER: u64 = u64::MAX - 1;
const COMMANDS: u64 = u64::MAX - 2;

const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// A request of the handle. The thread answers when it has carried out the request.
pub(crate) enum Command {
    Configure(Box<RelayOptions>, mpsc::Sender<()>),
    Count(mpsc::Sender<Counters>),
    /// Gives every client a new socket to the server.
    Rebind(mpsc::Sender<()>),
    Stop,
}

struct Client {
    address: SocketAddr,
    upstream: Socket,
}

/// The state of the thread.
pub(crate) struct Engine {
    server: SocketAddr,
    listen: Socket,
    clients: Vec<Client>,
    by_address: HashMap<SocketAddr, usize>,
    to_server: Link,
    to_client: Link,
    seed: u64,
    epoll: OwnedFd,
    timer: OwnedFd,
    /// The time that the timer is set to.
    armed: Option<Instant>,
    wake: Arc<OwnedFd>,
    commands: mpsc::Receiver<Command>,
}

impl Engine {
    pub(crate) fn new(
        server: SocketAddr,
        options: &RelayOptions,
        wake: Arc<OwnedFd>,
        commands: mpsc::Receiver<Command>,
    ) -> io::Result<Self> {
        let loopback: std::net::IpAddr = match server {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        };
        let listen = Socket::bind(options.listen.unwrap_or((loopback, 0).into()))?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
        watch(&epoll, &listen, LISTEN)?;
        watch(&epoll, &timer, TIMER)?;
        watch(&epoll, &wake, COMMANDS)?;
        Ok(Self {
            server,
            listen,
            clients: Vec::new(),
            by_address: HashMap::new(),
            to_server: Link::new(options.to_server.clone(), options.seed),
            to_client: Link::new(options.to_client.clone(), !options.seed),
            seed: options.seed,
            epoll,
            timer,
            armed: None,
            wake,
            commands,
        })
    }

    pub(crate) fn local_address(&self) -> io::Result<SocketAddr> {
        self.listen.local_address()
    }

    /// Runs until a command stops it.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut buffers = Buffers::new();
        let mut events = Vec::with_capacity(64);
        loop {
            let now = Instant::now();
            self.send_due(now);
            let poll = self.arm(now)?;
            events.clear();
            let timeout = poll.then_some(&NO_TIME);
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                match event.data.u64() {
                    LISTEN => self.receive_from_clients(&mut buffers),
                    TIMER => drain(&self.timer),
                    COMMANDS => {
                        drain(&self.wake);
                        if !self.obey()? {
                            return Ok(());
                        }
                    }
                    client => self.receive_from_server(client as usize, &mut buffers),
                }
            }
        }
    }

    /// Sends the datagrams that are due.
    fn send_due(&mut self, now: Instant) {
        while let Some(entry) = self.to_server.take_due(now) {
            send_to_server(&self.clients, self.server, &mut self.to_server, entry.batch());
        }
        while let Some(entry) = self.to_client.take_due(now) {
            send_to_client(&self.clients, &self.listen, &mut self.to_client, entry.batch());
        }
    }

    /// Sets the timer to the next datagram that is due. True if the thread shall poll until then instead.
    fn arm(&mut self, now: Instant) -> io::Result<bool> {
        let next =
            [self.to_server.next_due(), self.to_client.next_due()].into_iter().flatten().min();
        let Some(due) = next else { return Ok(false) };
        let left = due.saturating_duration_since(now);
        if left <= SPIN {
            return Ok(true);
        }
        if self.armed != Some(due) {
            let value = Timespec::try_from(left - SPIN).map_err(io::Error::other)?;
            let setting = Itimerspec { it_interval: NO_TIME, it_value: value };
            rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &setting)?;
            self.armed = Some(due);
        }
        Ok(false)
    }

    fn receive_from_clients(&mut self, buffers: &mut Buffers) {
        let count = self.listen.receive(buffers);
        let now = Instant::now();
        for index in 0..count {
            let (address, batch) = buffers.message(index);
            let Some(client) = self.client(address) else {
                self.to_server.counters.overflowed += batch.datagrams();
                continue;
            };
            let batch = Batch { client, ..batch };
            if self.to_server.arrive(batch, now) {
                send_to_server(&self.clients, self.server, &mut self.to_server, batch);
            }
        }
    }

    fn receive_from_server(&mut self, client: usize, buffers: &mut Buffers) {
        let Some(Client { upstream, .. }) = self.clients.get(client) else { return };
        let count = upstream.receive(buffers);
        let now = Instant::now();
        for index in 0..count {
            let (address, batch) = buffers.message(index);
            if address != self.server {
                continue;
            }
            let batch = Batch { client, ..batch };
            if self.to_client.arrive(batch, now) {
                send_to_client(&self.clients, &self.listen, &mut self.to_client, batch);
            }
        }
    }

    /// The index of a client, which is added if it is new. `None` if there are too many, or no socket can be opened.
    fn client(&mut self, address: SocketAddr) -> Option<usize> {
        if let Some(&known) = self.by_address.get(&address) {
            return Some(known);
        }
        let index = self.clients.len();
        if index == MAX_CLIENTS {
            return None;
        }
        let upstream = self.open(index).ok()?;
        self.clients.push(Client { address, upstream });
        self.by_address.insert(address, index);
        Some(index)
    }

    fn open(&self, client: usize) -> io::Result<Socket> {
        let upstream = Socket::bind_for(self.server)?;
        watch(&self.epoll, &upstream, client as u64)?;
        Ok(upstream)
    }

    /// Carries out the commands. False if the thread shall end.
    fn obey(&mut self) -> io::Result<bool> {
        while let Ok(command) = self.commands.try_recv() {
            // The handle may have given up its wait, so an answer may fail.
            match command {
                Command::Configure(options, done) => {
                    self.configure(*options);
                    let _ = done.send(());
                }
                Command::Count(reply) => {
                    // Datagrams that came in since the start of this round may be due now.
                    self.send_due(Instant::now());
                    let (to_server, to_client) = (self.to_server.counters, self.to_client.counters);
                    let _ = reply.send(Counters { to_server, to_client });
                }
                Command::Rebind(done) => {
                    for client in 0..self.clients.len() {
                        self.clients[client].upstream = self.open(client)?;
                    }
                    let _ = done.send(());
                }
                Command::Stop => return Ok(false),
            }
        }
        Ok(true)
    }

    fn configure(&mut self, options: RelayOptions) {
        self.to_server.configure(options.to_server);
        self.to_client.configure(options.to_client);
        if options.seed != self.seed {
            self.seed = options.seed;
            self.to_server.reseed(self.seed);
            self.to_client.reseed(!self.seed);
        }
    }
}

fn send_to_server(clients: &[Client], server: SocketAddr, link: &mut Link, batch: Batch<'_>) {
    let sent = clients.get(batch.client).is_some_and(|client| client.upstream.send(server, batch));
    link.left(batch.datagrams(), batch.contents.len(), sent);
}

fn send_to_client(clients: &[Client], listen: &Socket, link: &mut Link, batch: Batch<'_>) {
    let sent = clients.get(batch.client).is_some_and(|client| listen.send(client.address, batch));
    link.left(batch.datagrams(), batch.contents.len(), sent);
}

fn watch(epoll: &OwnedFd, source: impl AsFd, data: u64) -> io::Result<()> {
    epoll::add(epoll, source, epoll::EventData::new_u64(data), epoll::EventFlags::IN)?;
    Ok(())
}

/// Reads the number of expirations or wakes, so that the descriptor is no longer ready.
fn drain(descriptor: impl AsFd) {
    let _ = rustix::io::read(descriptor, &mut [0; 8]);
}
