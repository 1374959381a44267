//! Requests a lease, and starts the thread of its connection, which sends, receives, renews and reconnects.

use std::{
    cell::RefCell,
    sync::Arc,
    time::{Duration, Instant},
};

use cuda_core::{Error, NoticeSink, Result};
use rustc_hash::FxHashSet;
use tokio::sync::{mpsc, oneshot, watch};
use tracing::{Instrument, Span};

use super::{
    Connection, LeaseConnection, Opened,
    dial::{LeaseTerms, connect, endpoint},
    grant::Grant,
    renewal::Renewal,
    start,
};
use crate::{
    client::{
        end::{End, lost, unavailable},
        link::Link,
        random::random,
        spans,
        streams::{
            blob::put_blob,
            lanes::{Access, LaneStream, Received},
            requests::{OutgoingRequest, RequestStream, Unanswered},
        },
        submit::{Channel, Current},
    },
    wire::{Allocate, Free, Granted, Hash, Lane, Renew, Renewed, features},
};

/// The time that a request for a new connection takes at most.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The pause between two attempts to reconnect.
const RECONNECT_PAUSE: Duration = Duration::from_millis(50);

/// The time that the end of a lease may take until the connection is closed anyway.
const FREE_TIMEOUT: Duration = Duration::from_secs(1);

/// The time in which the reason for the end of a stream arrives.
const REASON: Duration = Duration::from_secs(1);

/// Requests a lease, and starts the thread of its connection.
///
/// # Errors
/// [`Error::Remote`] if the node refuses the lease, [`Error::Unreachable`] if no node answers,
/// [`Error::Host`] if the thread cannot be started.
pub(in crate::client) fn open(terms: LeaseTerms, sink: Arc<dyn NoticeSink>) -> Result<Opened> {
    let address = terms.address.clone();
    let span = spans::lease(terms.allocate.trace.as_ref(), &address);
    let run = move |opened| ConnectionThread::run(terms, sink, opened).instrument(span);
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
    /// Publishes the current connection.
    current: watch::Sender<Current>,
    renewal: Renewal,
}

impl ConnectionThread {
    /// Requests the lease, sends the result to `opened`, and serves the lease.
    async fn run(
        terms: LeaseTerms,
        sink: Arc<dyn NoticeSink>,
        opened: std::sync::mpsc::SyncSender<Result<Opened>>,
    ) {
        match Self::acquire(terms, sink).await {
            Ok((this, first, result)) => {
                _ = opened.send(Ok(result));
                drop(opened);
                this.drive(first).await;
            }
            Err(error) => _ = opened.send(Err(error)),
        }
    }

    /// Connects and requests the lease.
    async fn acquire(
        terms: LeaseTerms,
        sink: Arc<dyn NoticeSink>,
    ) -> Result<(Self, (quinn::Connection, RequestStream), Opened)> {
        let address = terms.address.clone();
        let fail = |end: End| unavailable(&address, end);
        let endpoint = endpoint(&terms)?;
        let (connection, mut stream) = connect(&endpoint, &terms).await.map_err(fail)?;
        let mut body = Vec::new();
        terms.allocate.encode(&mut body);
        let reply = stream.ask(Allocate::OPCODE, &body).await.map_err(fail)?;
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
            current,
            renewal: Renewal::new(f64::from(jitter) / 255.0),
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
                End::Lost(cause) => self.reconnect(cause).await,
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
        let Self { link, received, needed, grant, requests, unanswered, .. } = self;
        let access = Access { lease: grant.lease, token: grant.token(), epoch: self.epoch };
        let open = |lane| LaneStream::open(connection, &access, lane, is_resumed, received, link);
        let (commands, bulk) = tokio::try_join!(open(Lane::Commands), open(Lane::Bulk))?;
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
                    // A refusal shows as a module that does not load.
                    _ = put_blob(connection, grant.lease, grant.token(), hash, image).await?;
                }
                needed.borrow_mut().remove(&hash);
            }
            Ok::<(), End>(())
        };
        let (renew, mut renewals) = mpsc::unbounded_channel();
        let renewing = renew_in_time(&mut self.renewal, grant, &self.terms, started, renew);
        let answered = async {
            let served = serve_requests(stream, unanswered, requests, &mut renewals).await;
            // The lease was dropped: the other parts end too.
            served.and(Err::<(), _>(Ended::Dropped))
        };
        let parts = async {
            tokio::try_join!(
                commands.send(link),
                commands.receive(link, received, &need),
                bulk.send(link),
                bulk.receive(link, received, &need),
                blobs,
                renewing,
            )
            .map(drop)
            .map_err(Ended::Connection)
        };
        match tokio::try_join!(answered, parts) {
            Ok(_) | Err(Ended::Dropped) => Ok(()),
            Err(Ended::Connection(end)) => Err(end),
        }
    }

    /// Tries to connect again, until the window is over or the lease is dropped.
    async fn reconnect(
        &mut self,
        mut cause: String,
    ) -> Result<(quinn::Connection, RequestStream), End> {
        let begun = Instant::now();
        loop {
            let left = self.terms.resume_within.saturating_sub(begun.elapsed());
            // A lease that was dropped meanwhile is not resumed.
            if left.is_zero() || self.requests.is_closed() {
                return Err(End::Lost(cause));
            }
            let limit = left.min(CONNECT_TIMEOUT);
            match tokio::time::timeout(limit, connect(&self.endpoint, &self.terms)).await {
                Ok(Ok(connected)) => return Ok(connected),
                Ok(Err(End::Lost(error))) => cause = error,
                Ok(Err(end)) => return Err(end),
                Err(_) => {}
            }
            tokio::time::sleep(RECONNECT_PAUSE).await;
        }
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
        self.endpoint.close(0u32.into(), b"");
        _ = tokio::time::timeout(FREE_TIMEOUT, self.endpoint.wait_idle()).await;
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
) -> Result<(), Ended> {
    stream.serve(unanswered, requests, renewals).await.map_err(Ended::Connection)
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
    let mut pause = renewal.after_success(grant.expires_in());
    loop {
        tokio::time::sleep(pause).await;
        let left = cap.saturating_sub(started.elapsed()).as_secs();
        let lease_secs = u64::from(terms.allocate.lease_secs).min(left) as u32;
        if lease_secs == 0 {
            return std::future::pending().await;
        }
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
                grant.renewed(&renewed);
                renewal.after_success(grant.expires_in())
            }
            Err(error) => {
                tracing::warn!(error, address = terms.address, "the lease was not renewed");
                renewal.after_failure(grant.expires_in())
            }
        };
    }
}
