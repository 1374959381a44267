//! The handle of a running relay.

use std::{
    io,
    net::SocketAddr,
    os::fd::OwnedFd,
    sync::{Arc, mpsc},
    thread::JoinHandle,
};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};

use crate::{
    Counters,
    engine::{Command, Engine},
    options::RelayOptions,
};

/// A running relay. Dropping it ends its thread and closes its sockets; datagrams in flight are lost.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    options: Mutex<RelayOptions>,
    commands: mpsc::Sender<Command>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Starts a relay to a server, on its own thread.
    ///
    /// # Errors
    /// The error of the operating system if the address cannot be bound or the thread cannot be started.
    pub fn start(server: SocketAddr, options: RelayOptions) -> io::Result<Self> {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (commands, receiver) = mpsc::channel();
        let engine = Engine::new(server, &options, Arc::clone(&wake), receiver)?;
        let address = engine.local_address()?;
        let run = move || {
            if let Err(error) = engine.run() {
                eprintln!("the relay at {address} has stopped: {error}");
            }
        };
        let thread =
            std::thread::Builder::new().name(format!("relay-{}", address.port())).spawn(run)?;
        let options = Mutex::new(options);
        Ok(Self { address, options, commands, wake, thread: Some(thread) })
    }

    /// The address that clients send to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The current options.
    pub fn options(&self) -> RelayOptions {
        self.options.lock().clone()
    }

    /// Changes the options. They apply to every datagram that the relay receives after this call has returned.
    ///
    /// Datagrams in flight keep their times, except that a partition drops them.
    ///
    /// # Errors
    /// The relay's thread has stopped.
    pub fn update(&self, change: impl FnOnce(&mut RelayOptions)) -> io::Result<()> {
        let mut options = self.options.lock();
        change(&mut options);
        self.request(|done| Command::Configure(Box::new(options.clone()), done))
    }

    /// Starts or ends a partition of both directions.
    ///
    /// # Errors
    /// The relay's thread has stopped.
    pub fn partition(&self, partitioned: bool) -> io::Result<()> {
        self.update(|options| options.both(|link| link.partitioned = partitioned))
    }

    /// Gives every client a new port toward the server, as a router does that has lost its table.
    ///
    /// # Errors
    /// The relay's thread has stopped.
    pub fn rebind(&self) -> io::Result<()> {
        self.request(Command::Rebind)
    }

    /// The counters of both directions.
    ///
    /// They include every datagram that has left the relay. The relay first sends the received datagrams that are due,
    /// so without a delay each received datagram counts as forwarded or dropped.
    ///
    /// # Errors
    /// The relay's thread has stopped.
    pub fn counters(&self) -> io::Result<Counters> {
        self.request(Command::Count)
    }

    /// Sends a command and waits for its answer.
    fn request<T>(&self, command: impl FnOnce(mpsc::Sender<T>) -> Command) -> io::Result<T> {
        let (sender, receiver) = mpsc::channel();
        self.send(command(sender));
        receiver.recv().map_err(|_| {
            io::Error::new(
                io::ErrorKind::BrokenPipe,
                "the relay's thread has stopped; start a new relay",
            )
        })
    }

    fn send(&self, command: Command) {
        // If the thread has stopped, the command is dropped, and with it the sender of its answer.
        let _ = self.commands.send(command);
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.send(Command::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
