//! A client that sends any bytes.

use std::time::Duration;

use bytes::Bytes;
use cuda_core::protocol::Status;
use cuda_lease::{
    authority::ClientTls,
    wire::{
        Allocate, Attach, Exclusivity, FrameBuffer, Granted, Hello, Lane, Refused, VERSION,
        put_frame,
    },
};
use quinn::{Connection, ConnectionError, Endpoint, RecvStream, SendStream, TransportConfig};

pub struct RawClient {
    pub connection: Connection,
    pub control: Stream,
    _endpoint: Endpoint,
}

/// A bidirectional stream.
pub struct Stream {
    pub send: SendStream,
    receive: RecvStream,
    buffer: FrameBuffer,
    connection: Connection,
}

/// A reply: its opcode and body, or the reason for which the connection ended.
pub type Reply = Result<(u16, Vec<u8>), String>;

/// Runs a test beside the threads of its connections. So a test that computes for long keeps them alive.
pub fn block_on(test: impl Future<Output = ()>) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.unwrap().block_on(test);
}

impl RawClient {
    /// Connects and greets, without features.
    pub async fn connect(address: &str) -> Self {
        Self::connect_with(address, 0).await
    }

    /// Connects and greets, with these features.
    pub async fn connect_with(address: &str, features: u64) -> Self {
        Self::connect_silently(address).await.greet(features).await
    }

    /// Greets, with these features.
    pub async fn greet(mut self, features: u64) -> Self {
        let hello = Hello { oldest: VERSION, newest: VERSION, features, program: "test".into() };
        self.control.frame(Hello::OPCODE, 0, 1, |out| hello.encode(out)).await;
        self.control.reply().await.unwrap();
        self
    }

    /// Connects, and sends nothing.
    pub async fn connect_silently(address: &str) -> Self {
        Self::connect_tuned(address, TransportConfig::default()).await
    }

    /// Connects with these settings, and sends nothing.
    pub async fn connect_tuned(address: &str, transport: TransportConfig) -> Self {
        Self::connect_as(address, ClientTls::loopback(), transport).await.unwrap()
    }

    /// Connects with these certificates and settings, and sends nothing.
    pub async fn connect_as(
        address: &str,
        tls: ClientTls,
        transport: TransportConfig,
    ) -> Result<Self, ConnectionError> {
        let socket = address.parse().unwrap();
        let endpoint = Endpoint::client(([127, 0, 0, 1], 0).into()).unwrap();
        let name = tls.server_name_for("127.0.0.1").unwrap();
        let mut config = tls.config_for(socket).unwrap();
        config.transport_config(transport.into());
        let connecting = endpoint.connect_with(config, socket, &name);
        let connection = connecting.unwrap().await?;
        let (send, receive) = connection.open_bi().await?;
        let control = Stream::new(&connection, send, receive);
        Ok(Self { connection, control, _endpoint: endpoint })
    }

    pub async fn allocate(&mut self) -> Granted {
        self.send(&request()).await;
        self.granted().await
    }

    /// Sends a request for a lease.
    pub async fn send(&mut self, request: &Allocate) {
        self.control.frame(Allocate::OPCODE, 0, 2, |out| request.encode(out)).await;
    }

    /// The lease that was requested.
    pub async fn granted(&mut self) -> Granted {
        let (opcode, body) = self.control.reply().await.unwrap();
        assert_ne!(opcode, Refused::OPCODE, "{:?}", Refused::decode(&body));
        Granted::decode(&body).unwrap()
    }

    /// Attaches a lane. Returns its stream and the reply.
    pub async fn attach(&self, lease: u64, token: Bytes, lane: Lane) -> (Stream, Reply) {
        self.attach_with(Attach { lease, token, lane, epoch: 1, is_resumed: false, received: 0 })
            .await
    }

    /// Attaches a lane that existed on an earlier connection.
    pub async fn resume(
        &self,
        lease: u64,
        token: Bytes,
        lane: Lane,
        received: u64,
    ) -> (Stream, Reply) {
        self.attach_with(Attach { lease, token, lane, epoch: 1, is_resumed: true, received }).await
    }

    pub async fn attach_with(&self, attach: Attach) -> (Stream, Reply) {
        let mut stream = Stream::open(&self.connection).await;
        stream.frame(Attach::OPCODE, 0, 0, |out| attach.encode(out)).await;
        let reply = stream.reply().await;
        (stream, reply)
    }
}

impl Stream {
    pub async fn open(connection: &Connection) -> Self {
        Self::try_open(connection).await.unwrap()
    }

    /// Fails if the connection ends first.
    pub async fn try_open(connection: &Connection) -> Result<Self, ConnectionError> {
        let (send, receive) = connection.open_bi().await?;
        Ok(Self::new(connection, send, receive))
    }

    fn new(connection: &Connection, send: SendStream, receive: RecvStream) -> Self {
        let connection = connection.clone();
        Self { send, receive, buffer: FrameBuffer::default(), connection }
    }

    pub async fn frame(
        &mut self,
        opcode: u16,
        epoch: u32,
        sequence: u64,
        body: impl FnOnce(&mut Vec<u8>),
    ) {
        let mut out = Vec::new();
        put_frame(&mut out, opcode, epoch, sequence, body);
        self.bytes(&out).await;
    }

    /// Sends bytes. The connection may have ended.
    pub async fn bytes(&mut self, bytes: &[u8]) {
        _ = self.send.write_all(bytes).await;
    }

    /// The reason for which the connection ends. If only the stream ended, says so after a while.
    async fn end(&self) -> String {
        let closed = tokio::time::timeout(Duration::from_secs(5), self.connection.closed()).await;
        closed.map_or_else(|_| "the stream ended".into(), |reason| reason.to_string())
    }

    /// Reads some bytes, and returns their number: 0 at the end of the stream, or if that was reset.
    pub async fn read(&mut self, most: usize) -> usize {
        let chunk = self.receive.read_chunk(most, true).await.ok().flatten();
        chunk.map_or(0, |chunk| chunk.bytes.len())
    }

    /// The next frame.
    pub async fn reply(&mut self) -> Reply {
        loop {
            let frames = self.buffer.take_first().map_err(|error| error.to_string())?;
            if let Some(frame) = frames.as_ref().and_then(|frames| frames.iter().next()) {
                return Ok((frame.header.opcode, frame.body.to_vec()));
            }
            match self.receive.read_chunk(usize::MAX, true).await {
                Ok(Some(chunk)) => self.buffer.extend(&chunk.bytes),
                _ => return Err(self.end().await),
            }
        }
    }
}

/// The status of a refusal.
pub fn refusal(reply: &Reply) -> Status {
    match reply {
        Ok((Refused::OPCODE, body)) => Refused::decode(body).unwrap().status,
        other => panic!("no refusal: {other:?}"),
    }
}

/// A new request for a lease.
pub fn request() -> Allocate {
    Allocate {
        nonce: rand(),
        min_vram: 1 << 20,
        lease_secs: 60,
        exclusivity: Exclusivity::Shared,
        device: None,
        wait_ms: 0,
        priority: 0,
        detached: false,
        trace: None,
    }
}

fn rand() -> [u8; 16] {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).unwrap();
    bytes
}
