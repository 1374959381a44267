//! Nodes that break the protocol, or answer nothing, and the leases of their clients.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::channel,
    },
    thread,
    time::{Duration, Instant},
};

use cuda_async::prelude::*;
use cuda_core::{
    DeviceInfo, Error, Ticket,
    protocol::{Control, MemoryInfo, Notice, Reply, Request, Status},
};
use cuda_lease::{
    Job, Lease, LeaseBuilder,
    authority::ServerTls,
    internals::transport,
    wire::{
        Allocate, Attach, Attached, Command, Event, FrameBuffer, Granted, Header, Hello, Lane,
        Limits, PutBlob, Refused, Submit, Submitted, VERSION, Welcome, Writer,
        opcode::{self, REPLY},
        put_frame,
    },
};
use quinn::{Connection, RecvStream, SendStream, TransportConfig};
use tokio::runtime::Runtime;

use crate::harness::{LONG, wait_until};

/// A node that serves each connection with a function, whose second argument is the number of the connection.
struct FalseNode {
    address: SocketAddr,
    _runtime: Runtime,
}

impl FalseNode {
    fn start<Served: Future<Output = ()> + Send + 'static>(
        serve: fn(Connection, usize) -> Served,
    ) -> Self {
        Self::start_with(transport::connection(), serve)
    }

    /// Starts a node whose connections have these settings.
    fn start_with<Served: Future<Output = ()> + Send + 'static>(
        settings: Arc<TransportConfig>,
        serve: fn(Connection, usize) -> Served,
    ) -> Self {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
        let listen = ([127, 0, 0, 1], 0).into();
        let (mut config, _) = ServerTls::insecure().config_for(listen).unwrap();
        config.transport_config(settings);
        let entered = runtime.enter();
        let endpoint =
            transport::endpoint(listen, Some((config, transport::ResetKey::derive(&[0; 32]))))
                .unwrap();
        drop(entered);
        let address = endpoint.local_addr().unwrap();
        runtime.spawn(async move {
            let mut number = 0;
            while let Some(incoming) = endpoint.accept().await {
                let Ok(connection) = incoming.await else { continue };
                tokio::spawn(serve(connection, number));
                number += 1;
            }
        });
        Self { address, _runtime: runtime }
    }

    fn lease(&self) -> LeaseBuilder {
        LeaseBuilder::new(self.address.to_string()).min_vram(1 << 20)
    }
}

/// A stream of a client.
struct Stream {
    send: SendStream,
    receive: RecvStream,
    buffer: FrameBuffer,
}

/// A frame of a client.
struct Received {
    opcode: u16,
    sequence: u64,
    body: Vec<u8>,
}

impl Stream {
    async fn accept(connection: &Connection) -> Option<Self> {
        let (send, receive) = connection.accept_bi().await.ok()?;
        Some(Self { send, receive, buffer: FrameBuffer::default() })
    }

    async fn next(&mut self) -> Option<Received> {
        loop {
            if let Some(frames) = self.buffer.take_first().unwrap() {
                let frame = frames.iter().next().unwrap();
                let Header { opcode, sequence, .. } = frame.header;
                return Some(Received { opcode, sequence, body: frame.body.to_vec() });
            }
            let chunk = self.receive.read_chunk(usize::MAX, true).await.ok()??;
            self.buffer.extend(&chunk.bytes);
        }
    }

    async fn send(
        &mut self,
        opcode: u16,
        epoch: u32,
        sequence: u64,
        body: impl FnOnce(&mut Vec<u8>),
    ) {
        let mut out = Vec::new();
        put_frame(&mut out, opcode, epoch, sequence, body);
        _ = self.send.write_all(&out).await;
    }

    async fn event(&mut self, epoch: u32, sequence: u64, event: impl Into<Event>) {
        let event = event.into();
        self.send(event.opcode(), epoch, sequence, |out| event.encode(out)).await;
    }
}

/// Accepts the stream of requests, and answers the greeting.
async fn greet(connection: &Connection) -> Option<Stream> {
    let mut requests = Stream::accept(connection).await?;
    let hello = requests.next().await?;
    assert_eq!(hello.opcode, Hello::OPCODE);
    let (node, certificate_ends_in_ms) = ("false".into(), None);
    let welcome = Welcome { version: VERSION, features: 0, node, certificate_ends_in_ms };
    requests.send(Hello::OPCODE | REPLY, 0, hello.sequence, |out| welcome.encode(out)).await;
    Some(requests)
}

/// A lease.
fn granted() -> Granted {
    let limits = Limits {
        submissions_in_flight: 64,
        host_bytes_in_flight: 1 << 20,
        memory: 1 << 20,
        streams: 64,
        module_bytes: 1 << 20,
    };
    let device = DeviceInfo::new("cpu", "a processor");
    let (lease, token, features) = (1, vec![1; 8].into(), None);
    let (generation, expires_in_ms) = (1, 60_000);
    Granted { lease, token, generation, expires_in_ms, device, limits, features }
}

/// Answers the request for a lease.
async fn grant(requests: &mut Stream, granted: Granted) -> Option<()> {
    let request = requests.next().await?;
    assert_eq!(request.opcode, Allocate::OPCODE);
    requests.send(Allocate::OPCODE | REPLY, 0, request.sequence, |out| granted.encode(out)).await;
    Some(())
}

/// Accepts both lanes of a session. Returns them, and the epoch.
async fn attach(connection: &Connection) -> Option<(Stream, Stream, u32)> {
    let (mut commands, mut bulk, mut epoch) = (None, None, 0);
    while commands.is_none() || bulk.is_none() {
        let mut lane = Stream::accept(connection).await?;
        let frame = lane.next().await?;
        assert_eq!(frame.opcode, Attach::OPCODE);
        let attach = Attach::decode(&frame.body).unwrap();
        let attached = Attached { received: 0 };
        lane.send(Attach::OPCODE | REPLY, 0, 0, |out| attached.encode(out)).await;
        epoch = attach.epoch;
        match attach.lane {
            Lane::Commands => commands = Some(lane),
            Lane::Bulk => bulk = Some(lane),
        }
    }
    Some((commands?, bulk?, epoch))
}

/// Runs `call` on a thread, and waits for its result.
fn in_time<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = channel();
    thread::spawn(move || sender.send(call()));
    receiver.recv_timeout(LONG).expect("the call does not return")
}

/// The error that lost a lease.
fn lost(lease: &Lease) -> Error {
    let mut found = None;
    wait_until("the lease is lost", || {
        found = lease.device().new_stream().map(drop).err();
        found.is_some()
    });
    found.unwrap()
}

#[test]
fn session_that_never_resumes_is_lost() {
    async fn serve(connection: Connection, number: usize) {
        let served = async {
            let mut requests = greet(&connection).await?;
            if number == 0 {
                grant(&mut requests, granted()).await?;
                attach(&connection).await?;
            } else {
                Stream::accept(&connection).await?;
            }
            Some(())
        };
        served.await;
        connection.close(transport::CONNECT_AGAIN, b"the node restarts");
    }
    let node = FalseNode::start(serve);
    let lease = node.lease().resume_within(Duration::from_millis(200)).acquire_blocking().unwrap();
    let error = lost(&lease);
    assert!(matches!(error, Error::Disconnected { .. }), "{error}");
    assert!(error.to_string().contains("the node restarts"), "{error}");
}

/// A node that reports more than was sent to it. Later progress could not be told from it.
#[test]
fn progress_of_submissions_that_were_not_sent_loses_the_lease() {
    async fn serve(connection: Connection, _: usize) {
        let served = async {
            let mut requests = greet(&connection).await?;
            grant(&mut requests, granted()).await?;
            let (mut commands, _bulk, epoch) = attach(&connection).await?;
            let mut events = 0;
            while let Some(Received { opcode, body, .. }) = commands.next().await {
                let command = Command::decode(opcode, &body).unwrap();
                if let Command::Control(Control::CreateStream { id, .. }) = command {
                    let (stream, accepted, complete) = (id, u64::MAX, u64::MAX);
                    events += 1;
                    let notice = Notice::Progress { stream, accepted, complete };
                    commands.event(epoch, events, notice).await;
                }
            }
            Some(())
        };
        served.await;
        connection.closed().await;
    }
    let node = FalseNode::start(serve);
    let lease = node.lease().acquire_blocking().unwrap();
    let read = move || zeros::<u8>(1).then(to_host).sync_on(&lease.device().new_stream()?);
    let error = in_time(read).expect_err("the node has sent no bytes");
    assert!(error.to_string().contains("broke the protocol"), "{error}");
}

/// A node that closes a connection, and takes its session on the next one.
#[test]
fn client_connects_again_and_resumes_its_session() {
    async fn serve(connection: Connection, number: usize) {
        let served = async {
            let mut requests = greet(&connection).await?;
            if number == 0 {
                grant(&mut requests, granted()).await?;
                attach(&connection).await?;
                connection.close(transport::CONNECT_AGAIN, b"connect again");
                return None;
            }
            let (mut commands, _bulk, epoch) = attach(&connection).await?;
            while let Some(Received { opcode, body, .. }) = commands.next().await {
                let command = Command::decode(opcode, &body).unwrap();
                if let Command::Request { id, request: Request::Memory } = command {
                    let reply = Reply::Memory(MemoryInfo { used: 1, free: 2, total: 3 });
                    commands.event(epoch, 1, Event::Reply { id, reply: Ok(reply) }).await;
                }
            }
            Some(())
        };
        served.await;
        connection.closed().await;
    }
    let node = FalseNode::start(serve);
    let lease = node.lease().acquire_blocking().unwrap();
    let memory = in_time(move || lease.device().memory());
    assert_eq!(memory.unwrap().free, 2);
}

/// A node that reads no more of the request stream, when the client renews its lease.
#[test]
fn lease_closes_while_a_renewal_waits_for_its_node() {
    static HAS_BEGUN: AtomicBool = AtomicBool::new(false);
    async fn serve(connection: Connection, _: usize) {
        let served = async {
            let mut requests = greet(&connection).await?;
            // The renewal has the token, and more bytes than the stream takes.
            let token = vec![1; 4 << 10].into();
            grant(&mut requests, Granted { token, expires_in_ms: 1, ..granted() }).await?;
            _ = requests.receive.read_chunk(1, true).await;
            HAS_BEGUN.store(true, Ordering::Relaxed);
            Some(requests)
        };
        let _open = served.await;
        connection.closed().await;
    }
    let mut settings = TransportConfig::default();
    settings.stream_receive_window(1000u16.into());
    let node = FalseNode::start_with(settings.into(), serve);
    let lease = node.lease().acquire_blocking().unwrap();
    wait_until("the client renews its lease", || HAS_BEGUN.load(Ordering::Relaxed));
    in_time(move || lease.close());
}

/// Otherwise a program that waits for credit takes any amount of memory.
#[test]
fn client_limits_work_in_flight_whatever_its_node_allows() {
    async fn serve(connection: Connection, _: usize) {
        let served = async {
            let mut requests = greet(&connection).await?;
            let limits = Limits {
                submissions_in_flight: u64::MAX,
                host_bytes_in_flight: u64::MAX,
                ..granted().limits
            };
            grant(&mut requests, Granted { limits, ..granted() }).await
        };
        served.await;
        connection.closed().await;
    }
    let node = FalseNode::start(serve);
    let lease = node.lease().acquire_blocking().unwrap();
    let capabilities = lease.device().capabilities();
    assert!(capabilities.host_bytes_in_flight <= 256 << 20);
    assert!(capabilities.submissions_in_flight <= 1 << 16);
}

/// A stream keeps the errors of thousands of submissions.
#[test]
fn long_error_of_a_submission_is_cut() {
    /// The body of a failure with an error of almost a frame.
    fn failed(ticket: Ticket) -> Vec<u8> {
        let (text, mut fault, mut body) = ("x".repeat(200 << 10), Vec::new(), Vec::new());
        Writer::new(&mut fault).put_text(&text).put(0u8).put(Some(text.clone()));
        Writer::new(&mut fault).put(Some(text.clone())).put(false);
        Writer::new(&mut body).put(ticket.stream.0).put(ticket.number);
        Writer::new(&mut body).put(24u16).put_text(&text).put_bytes(&fault);
        body
    }
    async fn serve(connection: Connection, _: usize) {
        let served = async {
            let mut requests = greet(&connection).await?;
            grant(&mut requests, granted()).await?;
            let (mut commands, _bulk, epoch) = attach(&connection).await?;
            let mut events = 0;
            while let Some(Received { opcode, body, .. }) = commands.next().await {
                if let Ok(Command::Submit { ticket, .. }) = Command::decode(opcode, &body) {
                    let failed = failed(ticket);
                    let write = |out: &mut Vec<u8>| out.extend(failed);
                    commands.send(opcode::FAILED, epoch, events + 1, write).await;
                    let Ticket { stream, number: complete } = ticket;
                    let notice = Notice::Progress { stream, accepted: complete, complete };
                    commands.event(epoch, events + 2, notice).await;
                    events += 2;
                }
            }
            Some(())
        };
        served.await;
        connection.closed().await;
    }
    let node = FalseNode::start(serve);
    let lease = node.lease().acquire_blocking().unwrap();
    let fill = move || zeros::<u8>(16).sync_on(&lease.device().new_stream().unwrap()).err();
    let bytes = in_time(fill).unwrap().to_string().len();
    assert!(bytes < 72 << 10, "the error has {bytes} bytes");
}

/// A node that ends an upload because another tenant waits for its memory.
#[test]
fn upload_that_gave_way_is_sent_again() {
    static UPLOADS: AtomicUsize = AtomicUsize::new(0);
    async fn answer(stream: &mut Stream, opcode: u16) {
        let uploads = UPLOADS.load(Ordering::Relaxed);
        match (opcode, uploads) {
            (Submit::OPCODE, 2) => {
                let (status, text, output) = (Status::Ok, String::new(), vec![7].into());
                let submitted = Submitted { status, text, output, following_bytes: 0 };
                stream.send(opcode | REPLY, 0, 0, |out| submitted.encode(out)).await;
            }
            (PutBlob::OPCODE, 1) => stream.send(opcode | REPLY, 0, 0, |_| {}).await,
            _ => {
                let is_upload = opcode == PutBlob::OPCODE;
                let status = if is_upload { Status::CapacityExceeded } else { Status::NotFound };
                let refused = Refused { status, detail: String::new() };
                stream.send(Refused::OPCODE, 0, 0, |out| refused.encode(out)).await;
            }
        }
        UPLOADS.fetch_add(usize::from(opcode == PutBlob::OPCODE), Ordering::Relaxed);
    }
    async fn serve(connection: Connection, _: usize) {
        let served = async {
            let mut requests = greet(&connection).await?;
            grant(&mut requests, granted()).await?;
            let _lanes = attach(&connection).await?;
            loop {
                let mut stream = Stream::accept(&connection).await?;
                let Received { opcode, .. } = stream.next().await?;
                answer(&mut stream, opcode).await;
            }
        };
        let _: Option<()> = served.await;
    }
    let node = FalseNode::start(serve);
    let lease = node.lease().acquire_blocking().unwrap();
    let job = Job::from_cubin("kernel", vec![0; 600 << 10]).max_output(1);
    let output = in_time(move || lease.submit_job(job).launch_blocking()).unwrap().output;
    assert_eq!((&*output, UPLOADS.load(Ordering::Relaxed)), (&[7][..], 2));
}

/// Otherwise client and node do nothing else than handshakes.
#[test]
fn connections_that_end_at_once_follow_each_other_with_pauses() {
    static CONNECTIONS: AtomicUsize = AtomicUsize::new(0);
    async fn serve(connection: Connection, number: usize) {
        let served = async {
            let mut requests = greet(&connection).await?;
            if number == 0 {
                grant(&mut requests, granted()).await?;
            }
            let _lanes = attach(&connection).await?;
            CONNECTIONS.store(number + 1, Ordering::Relaxed);
            // The session runs.
            tokio::time::sleep(Duration::from_millis(5)).await;
            Some(())
        };
        served.await;
        connection.close(transport::CONNECT_AGAIN, b"connect again");
    }
    let node = FalseNode::start(serve);
    let _lease = node.lease().acquire_blocking().unwrap();
    let begun = Instant::now();
    wait_until("the client has resumed its session", || CONNECTIONS.load(Ordering::Relaxed) > 20);
    let elapsed = begun.elapsed();
    assert!(elapsed >= Duration::from_millis(600), "20 connections in {elapsed:?}");
}
