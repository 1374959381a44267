//! The connection of a lease to its node: its terms, the side that the handles of the lease see, and the thread that
//! sends, receives, renews and reconnects.

use std::{
    cell::{Cell, RefCell},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
        mpsc::{SyncSender, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use cuda_core::{Error, NoticeSink, Result, protocol::Status};
use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use tokio::sync::{
    mpsc,
    oneshot::{self, error::RecvError},
    watch,
};
use tracing::{Instrument, Span};

use super::{
    certificate::Certificates,
    end::{End, Refusal, is_ended_handshake, lost, unavailable},
    link::Link,
    random::random,
    spans,
    streams::{
        Access, LaneStream, OutgoingRequest, Received, RequestStream, Unanswered, put_blob,
        unanswered,
    },
    submit::{Channel, Current},
};
use crate::{
    transport,
    wire::{Allocate, Free, Granted, Hash, Lane, Renew, Renewed, TraceContext, features},
};

/// The time within which a lost connection is resumed if the user states no other.
pub(super) const RESUME_WINDOW: Duration = Duration::from_secs(10);

/// The time that a request for a new connection takes at most, and a handshake with its repetitions.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The time in which a node answers a request for a lease once there is a place for it: it may start a worker.
const GRANT: Duration = Duration::from_secs(60);

/// The time in which a node answers this request for a lease.
pub(super) fn grant_within(request: &Allocate) -> Duration {
    GRANT + Duration::from_millis(request.wait_ms.into())
}

/// The maximum number of handshakes for one connection.
const HANDSHAKES: usize = 5;

/// The pause between two attempts to reconnect.
const RECONNECT_PAUSE: Duration = Duration::from_millis(50);

/// The same pause if the tenant or the node has too many connections. The node may count the lost one until it has heard
/// nothing of it for a while.
const FULL_PAUSE: Duration = Duration::from_millis(500);

/// The time that the end of a lease may take until the connection is closed anyway.
const FREE_TIMEOUT: Duration = Duration::from_secs(1);

/// The reply to a request, when it arrives.
type Reply = oneshot::Receiver<Result<Bytes, Refusal>>;

/// A connection to a node, and its thread. Dropping it ends the connection.
pub(super) struct Connection {
    requests: Mutex<Option<mpsc::UnboundedSender<OutgoingRequest>>>,
    pub(super) channel: Channel,
    /// `None` once a caller waits for its end.
    thread: Mutex<Option<thread::JoinHandle<()>>>,
}

/// A lease that was granted, and its connection. Dropping it ends the lease.
pub(super) struct LeaseConnection {
    pub(super) connection: Connection,
    pub(super) grant: Arc<Grant>,
    /// The trace of the lease.
    pub(super) trace: Option<TraceContext>,
}

/// A lease that was granted: its terms and its session.
pub(super) struct Opened {
    pub(super) granted: Granted,
    /// The features that the client, the node and the device all have, as in [`features`].
    pub(super) features: u64,
    pub(super) link: Arc<Link>,
    pub(super) connection: Arc<LeaseConnection>,
}

impl Connection {
    /// Creates the connection of the runtime that calls this.
    pub(super) fn new(requests: mpsc::UnboundedSender<OutgoingRequest>, channel: Channel) -> Self {
        Self { requests: Mutex::new(Some(requests)), channel, thread: Mutex::default() }
    }

    /// Stores the thread of the connection, for [`close`](Self::close).
    pub(super) fn set_thread(&self, thread: thread::JoinHandle<()>) {
        *self.thread.lock() = Some(thread);
    }

    /// Sends a request to the node.
    ///
    /// # Errors
    /// The connection has ended.
    pub(super) fn request(&self, opcode: u16, body: Vec<u8>) -> Result<Reply> {
        let (reply, receiver) = oneshot::channel();
        let request = OutgoingRequest { opcode, body, reply };
        let sent = self.requests.lock().as_ref().map(|requests| requests.send(request));
        match sent {
            Some(Ok(())) => Ok(receiver),
            _ => Err(self.channel.ended(false)),
        }
    }

    /// Ends the connection.
    pub(super) fn end(&self) {
        *self.requests.lock() = None;
    }

    /// Ends the connection, and waits until its thread has ended. On that thread itself, does not wait.
    pub(super) fn close(&self) {
        self.end();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread.filter(|_| self.channel.check_thread().is_ok()) {
            _ = thread.join();
        }
    }
}

impl LeaseConnection {
    /// Sends the request that renews the lease for `lease_secs` seconds from now on.
    ///
    /// # Errors
    /// The errors of [`request`](Connection::request).
    pub(super) fn request_renewal(&self, lease_secs: u32) -> Result<Reply> {
        self.connection.request(Renew::OPCODE, self.grant.renew_request(lease_secs))
    }

    /// Checks the reply to a renewal, if it has arrived before the end of the connection. The thread of the connection
    /// has taken the new token from it.
    pub(super) fn renewed(&self, reply: Result<Result<Bytes, Refusal>, RecvError>) -> Result<()> {
        let channel = &self.connection.channel;
        let renewed = reply.map_err(|_| channel.ended(true))?.and_then(|reply| {
            Renewed::decode(&reply).map_err(|error| (Status::Internal, error.to_string()))
        });
        renewed.map(drop).map_err(|refused| channel.refused(refused))
    }
}

/// Starts a thread that serves a connection, and waits until `serve` has sent what the connection is for its user.
///
/// # Errors
/// [`Error::Host`] if the thread cannot be started, or the error that `serve` has sent.
pub(super) fn start<T: Send + 'static, Served: Future<Output = ()>>(
    name: &str,
    address: &str,
    serve: impl FnOnce(SyncSender<Result<T>>) -> Served + Send + 'static,
) -> Result<(T, thread::JoinHandle<()>)> {
    let failed = |error| Error::host("failed to start the thread of a connection", &error);
    let (opened, receiver) = sync_channel(1);
    let run = move || match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(async { serve(opened).await }),
        Err(error) => _ = opened.send(Err(failed(error))),
    };
    let thread = thread::Builder::new().name(name.into()).spawn(run).map_err(failed)?;
    let opened = receiver.recv().unwrap_or_else(|_| {
        let (address, cause) = (address.to_owned(), "the thread of the connection ended".into());
        Err(Error::Disconnected { address, cause, may_have_run: false })
    })?;
    Ok((opened, thread))
}

/// The address and the terms of a lease.
#[derive(Clone)]
pub(super) struct LeaseTerms {
    /// The address of the node as the user wrote it, for messages.
    pub(super) address: String,
    pub(super) socket: SocketAddr,
    pub(super) server_name: String,
    pub(super) certificates: Certificates,
    pub(super) allocate: Allocate,
    /// The total time up to which the lease is renewed. `None`: it is not renewed.
    pub(super) renew_up_to: Option<Duration>,
    /// The maximum duration of an interruption of the connection.
    pub(super) resume_within: Duration,
}

/// Opens the socket for connections to a node.
///
/// # Errors
/// [`Error::Host`] if the system refuses the socket.
pub(super) fn endpoint(terms: &LeaseTerms) -> Result<quinn::Endpoint> {
    let any: SocketAddr = match terms.socket {
        SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        SocketAddr::V6(_) => ([0u16; 8], 0).into(),
    };
    let endpoint = transport::endpoint(any, None);
    let mut endpoint =
        endpoint.map_err(|error| Error::host("failed to open a UDP socket", &error))?;
    endpoint.set_default_client_config(terms.certificates.config());
    Ok(endpoint)
}

/// Connects to a node, and opens the request stream.
pub(super) async fn connect(
    endpoint: &quinn::Endpoint,
    terms: &LeaseTerms,
) -> Result<(quinn::Connection, RequestStream), End> {
    // A peer that sends packets and never completes the handshake keeps it from timing out.
    let shaken = tokio::time::timeout(CONNECT_TIMEOUT, shake_hands(endpoint, terms)).await;
    let silent = |_| End::Lost(unanswered("the handshake", CONNECT_TIMEOUT));
    let connection = shaken.map_err(silent)??;
    let stream = RequestStream::open(&connection).await?;
    if let Some(ends_in) = stream.certificate_ends_in {
        let (certificates, connected) = (terms.certificates.clone(), connection.clone());
        tokio::spawn(
            async move { certificates.warn_before_end(connected.closed(), ends_in).await },
        );
    }
    Ok((connection, stream))
}

/// Connects to a node. Repeats a handshake that the node ended because it has too many.
async fn shake_hands(
    endpoint: &quinn::Endpoint,
    terms: &LeaseTerms,
) -> Result<quinn::Connection, End> {
    for _ in 1..HANDSHAKES {
        match endpoint.connect(terms.socket, &terms.server_name)?.await {
            Err(error) if is_ended_handshake(&error) => tokio::time::sleep(RECONNECT_PAUSE).await,
            connected => return Ok(connected?),
        }
    }
    Ok(endpoint.connect(terms.socket, &terms.server_name)?.await?)
}

/// The current state of a lease that was granted. A renewal changes it.
pub(super) struct Grant {
    pub(super) lease: u64,
    token: Mutex<Bytes>,
    generation: AtomicU32,
    expires: Mutex<Instant>,
}

impl Grant {
    pub(super) fn new(granted: &Granted) -> Self {
        Self {
            lease: granted.lease,
            token: Mutex::new(granted.token.clone()),
            generation: AtomicU32::new(granted.generation),
            expires: Mutex::new(Instant::now() + Duration::from_millis(granted.expires_in_ms)),
        }
    }

    pub(super) fn token(&self) -> Bytes {
        self.token.lock().clone()
    }

    pub(super) fn expires_in(&self) -> Duration {
        self.expires.lock().saturating_duration_since(Instant::now())
    }

    pub(super) fn generation(&self) -> u32 {
        self.generation.load(Ordering::Relaxed)
    }

    /// The body of the request that renews the lease for `lease_secs` seconds from now on.
    fn renew_request(&self, lease_secs: u32) -> Vec<u8> {
        let renew = Renew { lease: self.lease, token: self.token(), lease_secs };
        let mut body = Vec::new();
        renew.encode(&mut body);
        body
    }

    /// Takes the reply to a renewal. One of an earlier generation is ignored: its token ends before the present one. A
    /// renewal never shortens the lease.
    fn renewed(&self, renewed: &Renewed) {
        if renewed.generation < self.generation() {
            return;
        }
        *self.token.lock() = renewed.token.clone();
        self.generation.store(renewed.generation, Ordering::Relaxed);
        let expires = Instant::now() + Duration::from_millis(renewed.expires_in_ms);
        let mut latest = self.expires.lock();
        *latest = expires.max(*latest);
    }
}

/// Requests a lease, and starts the thread of its connection. When `withdrawn` completes before the node has granted the
/// lease, withdraws the request.
///
/// # Errors
/// [`Error::Remote`] if the node refuses the lease, [`Error::Unreachable`] if no node answers,
/// [`Error::Host`] if the thread cannot be started.
pub(super) fn open(
    terms: LeaseTerms,
    sink: Arc<dyn NoticeSink>,
    withdrawn: impl Future<Output = ()> + Send + 'static,
) -> Result<Opened> {
    let address = terms.address.clone();
    let span = spans::lease(terms.allocate.trace.as_ref(), &address);
    let run = move |opened| ConnectionThread::run(terms, sink, withdrawn, opened).instrument(span);
    let (opened, thread) = start("cuda-lease", &address, run)?;
    opened.connection.connection.set_thread(thread);
    Ok(opened)
}

/// The thread's side of the connection.
struct ConnectionThread {
    terms: LeaseTerms,
    endpoint: quinn::Endpoint,
    link: Arc<Link>,
    grant: Arc<Grant>,
    received: Received,
    epoch: u32,
    unanswered: Unanswered,
    requests: mpsc::UnboundedReceiver<OutgoingRequest>,
    /// Blobs that the node needs and does not have yet.
    needed: RefCell<FxHashSet<Hash>>,
    /// The time without a connection since the session last ran. A busy worker resumes its session late: the time with a
    /// connection is no part of it.
    interrupted: Cell<Duration>,
    /// Publishes the current connection.
    current: watch::Sender<Current>,
    renewal: Renewal,
}

impl ConnectionThread {
    /// Requests the lease, sends the result to `opened`, and serves the lease.
    async fn run(
        terms: LeaseTerms,
        sink: Arc<dyn NoticeSink>,
        withdrawn: impl Future<Output = ()>,
        opened: SyncSender<Result<Opened>>,
    ) {
        let endpoint = match endpoint(&terms) {
            Ok(endpoint) => endpoint,
            Err(error) => {
                _ = opened.send(Err(error));
                return;
            }
        };
        let withdrawn = async {
            let address = terms.address.clone();
            withdrawn.await;
            Err(unavailable(&address, End::Lost("the request was withdrawn".into())))
        };
        let acquired = tokio::select! {
            acquired = Self::acquire(terms.clone(), sink, endpoint.clone()) => acquired,
            withdrawn = withdrawn => withdrawn,
        };
        match acquired {
            Ok((this, first, result)) => {
                _ = opened.send(Ok(result));
                drop(opened);
                this.drive(first).await;
            }
            Err(error) => {
                _ = opened.send(Err(error));
                // The node counts a connection, and keeps its request in the queue, until it hears of the end.
                close(&endpoint).await;
            }
        }
    }

    /// Connects and requests the lease.
    async fn acquire(
        mut terms: LeaseTerms,
        sink: Arc<dyn NoticeSink>,
        endpoint: quinn::Endpoint,
    ) -> Result<(Self, (quinn::Connection, RequestStream), Opened)> {
        let address = terms.address.clone();
        let fail = |end: End| unavailable(&address, end);
        let within = grant_within(&terms.allocate);
        let requested = request(&endpoint, &mut terms, within).await;
        let (connection, stream, reply) = requested.map_err(fail)?;
        let reply = reply.map_err(|(status, detail)| fail(End::Refused(status, detail)))?;
        let granted = Granted::decode(&reply).map_err(|error| fail(error.into()))?;
        Span::current().record("lease", granted.lease);

        let (sender, requests) = mpsc::unbounded_channel();
        let [jitter, epoch @ ..] = random::<5>()?;
        let epoch = u32::from_le_bytes(epoch).max(1);
        let link = Link::new(address.clone(), epoch, sink);
        let grant = Arc::new(Grant::new(&granted));
        let (channel, current) = Channel::new(address.clone());
        let trace = terms.allocate.trace;
        let connection_of_user = Arc::new(LeaseConnection {
            connection: Connection::new(sender, channel),
            grant: grant.clone(),
            trace,
        });
        let this = Self {
            terms,
            endpoint,
            link: link.clone(),
            grant,
            received: Received::new(epoch),
            epoch,
            unanswered: Unanswered::default(),
            requests,
            needed: RefCell::default(),
            interrupted: Cell::default(),
            current,
            renewal: Renewal::new(f64::from(jitter) / 255.0, granted.expires_in_ms),
        };
        let features = features::usable(stream.features, granted.features);
        let opened = Opened { granted, features, link, connection: connection_of_user };
        Ok((this, (connection, stream), opened))
    }

    /// Serves the lease until it is dropped or lost.
    async fn drive(mut self, (mut connection, mut stream): (quinn::Connection, RequestStream)) {
        let started = Instant::now();
        let mut is_resumed = false;
        loop {
            let (generation, connected) = (self.grant.generation(), Instant::now());
            let end = match self.serve(&connection, &mut stream, is_resumed, started).await {
                Ok(()) => return self.free(&connection, &mut stream).await,
                Err(end) => end,
            };
            if self.link.lost().is_some() {
                return self.finish().await;
            }
            let end = match end {
                End::Closed => reason(&connection).await,
                end => end,
            };
            tracing::debug!(?end, address = self.terms.address, "the connection ended");
            let resumed = match end {
                End::Lost(cause) => self.reconnect(cause, connected).await,
                // Renewals have overtaken a request with an earlier token.
                End::Refused(Status::Unauthorized, cause)
                    if self.grant.generation() != generation =>
                {
                    self.reconnect(cause, connected).await
                }
                end => Err(end),
            };
            match resumed {
                Ok(resumed) => (connection, stream) = resumed,
                Err(end) => {
                    self.lose(lost(&self.terms.address, end));
                    return self.finish().await;
                }
            }
            is_resumed = true;
        }
    }

    /// Serves one connection. Returns `Ok` when the lease was dropped.
    async fn serve(
        &mut self,
        connection: &quinn::Connection,
        stream: &mut RequestStream,
        is_resumed: bool,
        started: Instant,
    ) -> Result<(), End> {
        self.current.send_replace(Some(Ok(connection.clone())));
        let Self { link, received, needed, grant, requests, unanswered, interrupted, .. } = self;
        let access = Access { lease: grant.lease, token: grant.token(), epoch: self.epoch };
        let open = |lane| LaneStream::open(connection, &access, lane, is_resumed, received, link);
        let (ask, mut asked) = mpsc::unbounded_channel();
        let need = |hash| {
            if needed.borrow_mut().insert(hash) {
                _ = ask.send(hash);
            }
        };
        needed.borrow().iter().for_each(|hash| _ = ask.send(*hash));
        let blobs = async {
            while let Some(hash) = asked.recv().await {
                if let Some(image) = link.image(&hash) {
                    let put = put_blob(connection, grant.lease, grant.token(), hash, image);
                    // The module would never load, and its launches would wait for ever.
                    let refused = |(status, detail)| End::Refused(status, detail);
                    put.await?.map_err(refused)?;
                }
                needed.borrow_mut().remove(&hash);
            }
            Ok::<(), End>(())
        };
        let (renew, mut renewals) = mpsc::unbounded_channel();
        let renewing = renew_in_time(&mut self.renewal, grant, &self.terms, started, renew);
        let answered = async {
            let served = serve_requests(stream, unanswered, requests, &mut renewals, grant).await;
            // The lease was dropped: the other parts end too.
            served.and(Err::<(), _>(Ended::Dropped))
        };
        // A lane resumes when the worker has read what is on its way: that of uploads may wait for a kernel. The lease is
        // renewed meanwhile.
        let lane = async |lane| {
            let opened = open(lane).await?;
            if lane == Lane::Commands {
                interrupted.set(Duration::ZERO);
            }
            tokio::try_join!(opened.send(link), opened.receive(link, received, &need)).map(drop)
        };
        let parts = async {
            tokio::try_join!(lane(Lane::Commands), lane(Lane::Bulk), blobs, renewing)
                .map(drop)
                .map_err(Ended::Connection)
        };
        match tokio::try_join!(answered, parts) {
            Ok(_) | Err(Ended::Dropped) => Ok(()),
            Err(Ended::Connection(end)) => Err(end),
        }
    }

    /// Tries to connect again, until the window is over or the lease is dropped. `connected` is the time of the last
    /// connection.
    async fn reconnect(
        &mut self,
        cause: String,
        connected: Instant,
    ) -> Result<(quinn::Connection, RequestStream), End> {
        let (lost, earlier) = (Instant::now(), self.interrupted.get());
        if !earlier.is_zero() || connected.elapsed() < RECONNECT_PAUSE {
            // The last connection was lost before the session resumed, or at once after it.
            tokio::time::sleep(RECONNECT_PAUSE).await;
        }
        self.terms.certificates.read_again();
        self.endpoint.set_default_client_config(self.terms.certificates.config());
        // A lease that was dropped meanwhile is not resumed.
        let is_over = || self.requests.is_closed();
        let within = self.terms.resume_within.saturating_sub(earlier);
        let connected = connect_again((lost, cause), within, is_over, async || {
            let (connection, mut stream) = connect(&self.endpoint, &self.terms).await?;
            self.renew_token(&mut stream).await?;
            Ok((connection, stream))
        });
        let connected = connected.await;
        self.interrupted.set(earlier + lost.elapsed());
        connected
    }

    /// If the certificate was renewed with another key, gets a token for that key.
    async fn renew_token(&self, stream: &mut RequestStream) -> Result<(), End> {
        if self.terms.certificates.has_key_of(&self.grant.token()) {
            return Ok(());
        }
        // A renewal never shortens the lease.
        let reply = stream.ask(Renew::OPCODE, &self.grant.renew_request(1)).await?;
        let reply = reply.map_err(|(status, detail)| End::Refused(status, detail))?;
        self.grant.renewed(&Renewed::decode(&reply)?);
        Ok(())
    }

    /// Ends the lease at the node.
    async fn free(self, connection: &quinn::Connection, stream: &mut RequestStream) {
        let free = Free { lease: self.grant.lease, token: self.grant.token() };
        let mut body = Vec::new();
        free.encode(&mut body);
        let freed = stream.ask(Free::OPCODE, &body);
        _ = tokio::time::timeout(FREE_TIMEOUT, freed).await;
        connection.close(0u32.into(), b"freed");
        self.finish().await;
    }

    async fn finish(self) {
        self.end("the lease was dropped");
        close(&self.endpoint).await;
    }

    /// Ends everything in flight, unless the lease is lost already.
    fn end(&self, cause: &str) {
        let (address, cause) = (self.terms.address.clone(), cause.to_owned());
        let error = Error::Disconnected { address, cause, may_have_run: true };
        self.lose(self.link.lost().unwrap_or(error));
    }

    /// Gives everything in flight, and later requests, the error that lost the lease.
    fn lose(&self, error: Error) {
        let cause = match &error {
            Error::Disconnected { cause, .. } => cause.clone(),
            Error::Remote { status, detail, .. } => format!("{status}: {detail}"),
            error => error.to_string(),
        };
        self.current.send_replace(Some(Err(cause)));
        self.link.lose(error);
    }
}

impl Drop for ConnectionThread {
    /// If the thread of the connection panics, everything in flight ends with an error.
    fn drop(&mut self) {
        self.end("the thread of the connection ended");
    }
}

/// Closes the connections of an endpoint, and waits until their peers know it.
async fn close(endpoint: &quinn::Endpoint) {
    endpoint.close(0u32.into(), b"");
    _ = tokio::time::timeout(FREE_TIMEOUT, endpoint.wait_idle()).await;
}

/// Connects and requests the lease, which the node grants within a time. If the connection is lost, for example because
/// the node starts again, requests the lease again: the node recognizes the request.
async fn request(
    endpoint: &quinn::Endpoint,
    terms: &mut LeaseTerms,
    within: Duration,
) -> Result<(quinn::Connection, RequestStream, Result<Bytes, Refusal>), End> {
    let (mut connection, mut stream) = connect(endpoint, terms).await?;
    let begun = Instant::now();
    let until = begun + Duration::from_millis(terms.allocate.wait_ms.into());
    let (mut pause, mut earlier) = (RECONNECT_PAUSE, None);
    loop {
        let mut body = Vec::new();
        terms.allocate.encode(&mut body);
        let left = within.saturating_sub(begun.elapsed());
        let reply = tokio::time::timeout(left, stream.ask(Allocate::OPCODE, &body)).await;
        let cause = match reply {
            Ok(Ok(reply)) => return Ok((connection, stream, reply)),
            Err(_) => {
                let unanswered = unanswered("the request for a lease", within);
                return Err(End::Lost(match earlier {
                    Some(cause) => format!("{unanswered}; an earlier connection was lost: {cause}"),
                    None => unanswered,
                }));
            }
            Ok(Err(End::Lost(cause))) => cause,
            Ok(Err(End::Closed)) => match reason(&connection).await {
                End::Lost(cause) => cause,
                end => return Err(end),
            },
            Ok(Err(end)) => return Err(end),
        };
        // A node that loses the connection at each request would get it for ever.
        if begun.elapsed() >= within {
            return Err(End::Lost(cause));
        }
        tracing::debug!(cause, address = terms.address, "a request for a lease is repeated");
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(FULL_PAUSE);
        let again = async || connect(endpoint, terms).await;
        earlier = Some(cause.clone());
        let lost = (Instant::now(), cause);
        (connection, stream) = connect_again(lost, terms.resume_within, || false, again).await?;
        let left = until.saturating_duration_since(Instant::now()).as_millis();
        terms.allocate.wait_ms = left.try_into().unwrap_or(u32::MAX);
    }
}

/// Tries to connect again, within a time since the loss of a connection and until `is_over`.
async fn connect_again<T>(
    (begun, cause): (Instant, String),
    within: Duration,
    is_over: impl Fn() -> bool,
    connect: impl AsyncFn() -> Result<T, End>,
) -> Result<T, End> {
    let mut last = End::Lost(cause);
    loop {
        let left = within.saturating_sub(begun.elapsed());
        if left.is_zero() || is_over() {
            return Err(last);
        }
        match tokio::time::timeout(left.min(CONNECT_TIMEOUT), connect()).await {
            Ok(Ok(connected)) => return Ok(connected),
            Ok(Err(end @ (End::Lost(_) | End::Full(..)))) => last = end,
            Ok(Err(end)) => return Err(end),
            Err(_) => {}
        }
        let is_full = matches!(last, End::Full(..));
        tokio::time::sleep(if is_full { FULL_PAUSE } else { RECONNECT_PAUSE }).await;
    }
}

/// The time within which the reason for the end of a stream arrives.
const REASON: Duration = Duration::from_secs(1);

/// The reason for which the node closed a stream.
async fn reason(connection: &quinn::Connection) -> End {
    match tokio::time::timeout(REASON, connection.closed()).await {
        Ok(closed) => closed.into(),
        Err(_) => End::Closed,
    }
}

/// The end of the parts of a connection.
enum Ended {
    Dropped,
    Connection(End),
}

/// Serves the request stream, with the requests of the user and of the renewal.
async fn serve_requests(
    stream: &mut RequestStream,
    unanswered: &mut Unanswered,
    requests: &mut mpsc::UnboundedReceiver<OutgoingRequest>,
    renewals: &mut mpsc::UnboundedReceiver<OutgoingRequest>,
    grant: &Grant,
) -> Result<(), Ended> {
    // The earlier token ends soon, also if the caller of the renewal or its connection has gone meanwhile.
    let answered = |opcode, body: &Bytes| {
        if opcode == Renew::OPCODE
            && let Ok(renewed) = Renewed::decode(body)
        {
            grant.renewed(&renewed);
        }
    };
    stream.serve(unanswered, requests, renewals, answered).await.map_err(Ended::Connection)
}

/// Renews the lease in time, up to its cap.
async fn renew_in_time(
    renewal: &mut Renewal,
    grant: &Grant,
    terms: &LeaseTerms,
    started: Instant,
    requests: mpsc::UnboundedSender<OutgoingRequest>,
) -> Result<(), End> {
    let Some(cap) = terms.renew_up_to else { return std::future::pending().await };
    let mut pause = renewal.until_due(grant.expires_in());
    loop {
        tokio::time::sleep(pause).await;
        let left = cap.saturating_sub(started.elapsed()).as_secs();
        let Some(lease_secs) = renewal.secs(terms.allocate.lease_secs, left) else {
            return std::future::pending().await;
        };
        let (reply, receiver) = oneshot::channel();
        let body = grant.renew_request(lease_secs);
        if requests.send(OutgoingRequest { opcode: Renew::OPCODE, body, reply }).is_err() {
            return std::future::pending().await;
        }
        let renewed = match receiver.await {
            Ok(Ok(reply)) => Renewed::decode(&reply).map_err(|error| error.to_string()),
            Ok(Err((status, detail))) => Err(format!("{status}: {detail}")),
            Err(_) => Err("the connection ended".into()),
        };
        pause = match renewed {
            Ok(renewed) => {
                renewal.granted_ms = renewal.granted_ms.min(renewed.expires_in_ms);
                renewal.after_success(grant.expires_in())
            }
            Err(error) => {
                tracing::warn!(error, address = terms.address, "the lease was not renewed");
                renewal.after_failure(grant.expires_in())
            }
        };
    }
}

/// The pause after the first failure of a renewal.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause after a failed renewal.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Plans the renewals of one lease: after 70 to 75 percent of its duration, with jitter; after a failure again, with
/// increasing pauses. It has no clock and no network.
#[derive(Debug)]
struct Renewal {
    /// The part of the jitter that this lease uses, from 0 to 1. It spreads the renewals of many leases.
    jitter: f64,
    failures: u32,
    /// The duration that the last grant or renewal gave.
    duration: Duration,
    /// The shortest time that the node has granted at once, in ms: at most the default of the node, if the lease has that.
    granted_ms: u64,
}

impl Renewal {
    /// `jitter` is a random number from 0 to 1. The node has granted the lease for `granted_ms` at first.
    fn new(jitter: f64, granted_ms: u64) -> Self {
        let duration = Duration::from_millis(granted_ms);
        Self { jitter: jitter.clamp(0.0, 1.0), failures: 0, duration, granted_ms }
    }

    /// The seconds to request for a lease of `requested` seconds, of which `left` remain at most. `None` if none are left.
    /// 0 requests the default of the node, as the lease did. The operator may have lowered it meanwhile, and the node
    /// refuses the former number then.
    fn secs(&self, requested: u32, left: u64) -> Option<u32> {
        let is_default = requested == 0;
        let secs = if is_default { self.granted_ms.div_ceil(1000) } else { requested.into() };
        match left.min(secs) {
            0 => None,
            all if is_default && all == secs => Some(0),
            rest => Some(rest.try_into().unwrap_or(u32::MAX)),
        }
    }

    /// The time until the next renewal of a lease that was renewed just now, and expires in `expires_in`.
    fn after_success(&mut self, expires_in: Duration) -> Duration {
        (self.failures, self.duration) = (0, expires_in);
        self.until_due(expires_in)
    }

    /// The time until the next renewal of a lease that expires in `expires_in`. A new connection does not postpone it.
    fn until_due(&self, expires_in: Duration) -> Duration {
        // A renewal is due when 25 to 30 percent of the duration are left. The pause protects a node that grants no time.
        expires_in.saturating_sub(self.duration.mul_f64(0.25 + 0.05 * self.jitter)).max(FIRST_PAUSE)
    }

    /// The time until the next attempt, after one that failed. `left` is the time until the lease expires.
    fn after_failure(&mut self, left: Duration) -> Duration {
        let pause = FIRST_PAUSE.saturating_mul(1 << self.failures.min(16)).min(LONGEST_PAUSE);
        self.failures += 1;
        // Several attempts fit into the rest. The pauses do not shrink to zero before the end.
        pause.mul_f64(0.75 + 0.5 * self.jitter).min(left / 4).max(FIRST_PAUSE / 2)
    }
}

#[cfg(test)]
mod tests {
    use cuda_core::DeviceInfo;

    use super::*;
    use crate::{
        authority::ServerTls,
        client::LeaseBuilder,
        wire::{FrameBuffer, Hello, Limits, VERSION, Welcome, opcode, put_frame},
    };

    const SECOND: Duration = Duration::from_secs(1);

    /// Answers the first packet of each client with PING frames, one each second, and with nothing else.
    async fn ping_for_ever(peer: tokio::net::UdpSocket) {
        let address = peer.local_addr().unwrap();
        let crypto = ServerTls::insecure().config_for(address).unwrap().0.crypto;
        let mut packet = [0; 2048];
        loop {
            let (_, client) = peer.recv_from(&mut packet).await.unwrap();
            // The version, and the connection ids of the peer and of the client with their lengths.
            let version = u32::from_be_bytes(packet[1..5].try_into().unwrap());
            let (of_peer, rest) = packet[6..].split_at(packet[5].into());
            let of_client = &rest[..1 + usize::from(rest[0])];
            let keys = crypto.initial_keys(version, &quinn::ConnectionId::new(of_peer));
            let keys = keys.unwrap_or_else(|_| panic!("the version is one of QUIC"));
            for number in 0..60u8 {
                let mut out = [&[0xc3, 0, 0, 0, 1], of_client, &[1, 7, 0]].concat();
                let (at, length) = (out.len() + 2, 1200 - out.len() - 2);
                out.extend((0x4000 | length as u16).to_be_bytes());
                out.extend([0, 0, 0, number]);
                let header = out.len();
                // A PING frame, padding, and the tag.
                out.push(1);
                out.resize(1200, 0);
                keys.packet.local.encrypt(number.into(), &mut out, header);
                keys.header.local.encrypt(at, &mut out);
                peer.send_to(&out, client).await.unwrap();
                tokio::time::sleep(SECOND).await;
            }
        }
    }

    #[tokio::test]
    async fn handshake_that_never_completes_ends() {
        let peer = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let terms = LeaseBuilder::new(peer.local_addr().unwrap().to_string()).terms().unwrap();
        let client = endpoint(&terms).unwrap();
        let connected =
            async { tokio::time::timeout(4 * CONNECT_TIMEOUT, connect(&client, &terms)).await };
        let connected = tokio::select! {
            () = ping_for_ever(peer) => unreachable!("the peer has no end"),
            connected = connected => connected.expect("the handshake goes on for ever"),
        };
        let error = unavailable("peer", connected.err().unwrap());
        let Error::Unreachable { cause, .. } = error else { panic!("{error}") };
        assert_eq!(cause, "the node has not answered the handshake within 5 s");
    }

    /// A node that ends at each request, for example because of a fault, would get it for ever.
    #[tokio::test]
    async fn request_whose_connection_is_always_lost_ends() {
        let address = ([127, 0, 0, 1], 0).into();
        let (config, _) = ServerTls::insecure().config_for(address).unwrap();
        let node = quinn::Endpoint::server(config, address).unwrap();
        let mut terms = LeaseBuilder::new(node.local_addr().unwrap().to_string()).terms().unwrap();
        let client = endpoint(&terms).unwrap();
        let serve = async {
            while let Some(incoming) = node.accept().await {
                let connection = incoming.await.unwrap();
                let (mut send, mut receive) = connection.accept_bi().await.unwrap();
                let (node, certificate_ends_in_ms) = ("false".into(), None);
                let (version, features) = (VERSION, 0);
                let welcome = Welcome { version, features, node, certificate_ends_in_ms };
                let mut out = Vec::new();
                let opcode = Hello::OPCODE | opcode::REPLY;
                put_frame(&mut out, opcode, 0, 0, |out| welcome.encode(out));
                send.write_all(&out).await.unwrap();
                // The greeting, and the request.
                let mut buffer = FrameBuffer::default();
                for _ in 0..2 {
                    while buffer.take_first().unwrap().is_none() {
                        let chunk = receive.read_chunk(usize::MAX, true).await.unwrap().unwrap();
                        buffer.extend(&chunk.bytes);
                    }
                }
                connection.close(transport::CONNECT_AGAIN, b"the node restarts");
            }
        };
        let requested = tokio::select! {
            () = serve => unreachable!("the endpoint is open"),
            requested = request(&client, &mut terms, SECOND) => requested.err().unwrap(),
        };
        assert!(
            matches!(&requested, End::Lost(cause) if cause.contains("the node restarts")),
            "{requested:?}"
        );
    }

    #[test]
    fn renewal_that_is_older_than_the_present_one_is_ignored() {
        let limits = Limits {
            submissions_in_flight: 1,
            host_bytes_in_flight: 1,
            memory: 1,
            streams: 1,
            module_bytes: 1,
        };
        let granted = Granted {
            lease: 1,
            token: Bytes::from_static(b"first"),
            generation: 1,
            expires_in_ms: 10_000,
            device: DeviceInfo::new("cpu", "a processor"),
            limits,
            features: None,
        };
        let grant = Grant::new(&granted);
        let renew = |token: &'static str, generation, expires_in_ms| {
            let token = Bytes::from_static(token.as_bytes());
            grant.renewed(&Renewed { token, generation, expires_in_ms });
        };
        renew("third", 3, 600_000);
        renew("second", 2, 900_000);
        assert_eq!((&grant.token()[..], grant.generation()), (&b"third"[..], 3));
        assert!(grant.expires_in() <= 600 * SECOND);
        // A repeated renewal has the same generation, and may be for another key.
        renew("other key", 3, 20_000);
        assert_eq!((&grant.token()[..], grant.generation()), (&b"other key"[..], 3));
        assert!(grant.expires_in() > 500 * SECOND);
    }

    #[test]
    fn lease_is_renewed_at_three_quarters_of_its_time() {
        for jitter in [0.0, 0.5, 1.0] {
            let at = Renewal::new(jitter, 0).after_success(100 * SECOND);
            assert!((70 * SECOND..=75 * SECOND).contains(&at), "{at:?}");
        }
        assert_eq!(Renewal::new(0.5, 0).after_success(Duration::ZERO), FIRST_PAUSE);
    }

    /// A lease whose connection is lost again and again is renewed as early as another one.
    #[test]
    fn later_connection_does_not_postpone_the_renewal() {
        let renewal = Renewal::new(0.0, 60_000);
        let pauses = [60, 40, 16, 15, 5].map(|left| renewal.until_due(left * SECOND));
        assert_eq!(pauses, [45 * SECOND, 25 * SECOND, SECOND, FIRST_PAUSE, FIRST_PAUSE]);
    }

    #[test]
    fn lease_of_the_default_time_is_renewed_for_the_default_time() {
        let renewal = Renewal::new(0.5, 59_999);
        let secs = |requested| [100, 60, 59, 0].map(|left| renewal.secs(requested, left));
        assert_eq!(secs(0), [Some(0), Some(0), Some(59), None]);
        assert_eq!(secs(70), [Some(70), Some(60), Some(59), None]);
    }

    #[test]
    fn attempts_after_failures_come_at_growing_pauses_and_before_the_end() {
        let mut renewal = Renewal::new(0.5, 0);
        let pauses: Vec<_> = (0..5).map(|_| renewal.after_failure(1000 * SECOND)).collect();
        assert!(pauses.windows(2).all(|two| two[0] < two[1]), "{pauses:?}");
        assert!(renewal.after_failure(SECOND) <= SECOND / 4);
        assert!(renewal.after_failure(Duration::ZERO) >= FIRST_PAUSE / 2);
        assert!((0..40).all(|_| renewal.after_failure(1000 * SECOND) <= LONGEST_PAUSE * 2));
    }
}
