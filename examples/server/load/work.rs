//! Sends the requests and measures them.

use std::{
    collections::BTreeMap,
    error::Error,
    net::SocketAddr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use futures::future::try_join_all;
use hdrhistogram::Histogram;
use hyper::body::Bytes;
use tokio::sync::oneshot;

use crate::{
    client::{Connection, cancel, never_read},
    target::{Memory, Target},
};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The first answer to an image.
type Answer = OnceLock<String>;

/// Malformed bodies: invalid JSON, another type, no image, an image of the wrong size, a number that is too large.
const MALFORMED: [&str; 5] = ["[[0, 1", "{\"image\": 1}", "[]", "[[0, 1, 2]]", "[[17]]"];

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Valid,
    Malformed,
}

/// The measurements of some requests.
#[derive(Default)]
pub(crate) struct Measured {
    /// The latencies of valid requests in microseconds, up to a minute with three digits.
    pub(crate) latencies: Option<Histogram<u64>>,
    pub(crate) statuses: BTreeMap<(Kind, u16), u64>,
    pub(crate) cancelled: u64,
    /// Valid requests whose answer differs from that of the first request with the same image.
    pub(crate) changed: u64,
    /// Requests without a response.
    pub(crate) lost: u64,
    pub(crate) took: Duration,
}

impl Measured {
    fn new() -> Result<Self> {
        Ok(Self {
            latencies: Some(Histogram::new_with_bounds(1, 60_000_000, 3)?),
            ..Self::default()
        })
    }

    fn add(&mut self, other: Self) {
        if let (Some(all), Some(own)) = (&mut self.latencies, &other.latencies) {
            // Both have the same bounds.
            _ = all.add(own);
        }
        for (key, count) in other.statuses {
            *self.statuses.entry(key).or_default() += count;
        }
        self.cancelled += other.cancelled;
        self.changed += other.changed;
        self.lost += other.lost;
    }
}

/// The measurements of the requests of all connections.
pub(crate) struct Together {
    pub(crate) measured: Measured,
    pub(crate) connections: u32,
    /// The memory after 10% of the requests, and after all.
    pub(crate) memory: [Memory; 2],
    /// The number of times that the server has disconnected the client that never reads.
    pub(crate) disconnected: u64,
    pub(crate) metrics: String,
}

/// The requests to a server.
pub(crate) struct Load {
    server: SocketAddr,
    bodies: Arc<Vec<Bytes>>,
    answers: Arc<Vec<Answer>>,
}

impl Load {
    pub(crate) fn new(server: SocketAddr, bodies: Vec<Bytes>) -> Self {
        let answers = bodies.iter().map(|_| Answer::new()).collect();
        Self { server, bodies: Arc::new(bodies), answers: Arc::new(answers) }
    }

    fn sender(&self) -> Result<Sender> {
        Ok(Sender {
            connection: Connection::new(self.server),
            server: self.server,
            bodies: self.bodies.clone(),
            answers: self.answers.clone(),
            measured: Measured::new()?,
        })
    }

    /// Sends valid requests one after the other.
    pub(crate) async fn one_at_a_time(&self, requests: u64) -> Result<Measured> {
        let (mut sender, start) = (self.sender()?, Instant::now());
        for number in 0..requests {
            sender.valid(number).await;
        }
        sender.measured.took = start.elapsed();
        Ok(sender.measured)
    }

    /// Sends requests from many connections at a time.
    pub(crate) async fn together(
        &self,
        requests: u64,
        connections: u32,
        target: &Target,
    ) -> Result<Together> {
        let next = Arc::new(AtomicU64::new(0));
        let (tenth, reached) = oneshot::channel();
        let mut tenth = Some(tenth);
        let disconnected = Arc::new(AtomicU64::new(0));
        let never = {
            let (server, disconnected) = (self.server, disconnected.clone());
            tokio::spawn(async move {
                loop {
                    never_read(server).await;
                    disconnected.fetch_add(1, Relaxed);
                }
            })
        };
        let start = Instant::now();
        let senders = (0..connections).map(|_| {
            let sender = self.sender()?;
            // One of the senders signals when a tenth of the requests has begun.
            Ok(tokio::spawn(sender.until(next.clone(), requests, tenth.take())))
        });
        let senders: Vec<_> = senders.collect::<Result<_>>()?;
        reached.await?;
        let early = target.memory().await;
        let mut measured = Measured::new()?;
        for ended in try_join_all(senders).await? {
            measured.add(ended);
        }
        measured.took = start.elapsed();
        let memory = [early, target.memory().await];
        never.abort();
        let metrics = target.metrics().await.unwrap_or_default();
        let disconnected = disconnected.load(Relaxed);
        Ok(Together { measured, connections, memory, disconnected, metrics })
    }
}

/// One connection with its measurements.
struct Sender {
    connection: Connection,
    server: SocketAddr,
    bodies: Arc<Vec<Bytes>>,
    answers: Arc<Vec<Answer>>,
    measured: Measured,
}

impl Sender {
    /// Takes numbers of requests and sends these requests, until there are no more.
    async fn until(
        mut self,
        next: Arc<AtomicU64>,
        requests: u64,
        mut tenth: Option<oneshot::Sender<()>>,
    ) -> Measured {
        loop {
            let number = next.fetch_add(1, Relaxed);
            if number >= requests / 10
                && let Some(tenth) = tenth.take()
            {
                // Never fails: the receiver waits for this signal.
                _ = tenth.send(());
            }
            if number >= requests {
                return self.measured;
            }
            match number % 100 {
                33 => self.cancelled(number).await,
                66 => self.malformed(number).await,
                _ => self.valid(number).await,
            }
        }
    }

    async fn valid(&mut self, number: u64) {
        let row = number as usize % self.bodies.len();
        let start = Instant::now();
        let response = self.connection.send("POST", "/classify", self.bodies[row].clone()).await;
        let micros = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
        let Ok(response) = response else {
            self.measured.lost += 1;
            return;
        };
        if let Some(latencies) = &mut self.measured.latencies {
            latencies.saturating_record(micros);
        }
        *self.measured.statuses.entry((Kind::Valid, response.status)).or_default() += 1;
        if response.status == 200 {
            let first = self.answers[row].get_or_init(|| response.body.clone());
            self.measured.changed += u64::from(*first != response.body);
        }
    }

    async fn malformed(&mut self, number: u64) {
        let body = MALFORMED[(number / 100) as usize % MALFORMED.len()];
        match self.connection.send("POST", "/classify", body.into()).await {
            Ok(answer) => {
                *self.measured.statuses.entry((Kind::Malformed, answer.status)).or_default() += 1
            }
            Err(_) => self.measured.lost += 1,
        }
    }

    async fn cancelled(&mut self, number: u64) {
        let row = number as usize % self.bodies.len();
        match cancel(self.server, &self.bodies[row]).await {
            Ok(()) => self.measured.cancelled += 1,
            Err(_) => self.measured.lost += 1,
        }
    }
}
