//! The status endpoints of a node, over HTTP: metrics, JSON and a page.
//!
//! | path | content |
//! |---|---|
//! | `/metrics` | OpenMetrics text |
//! | `/status.json` | the [`Snapshot`] as JSON |
//! | `/` | a page that shows the snapshot and reads it again each second |
//!
//! The endpoints only read, and show no tokens, keys or addresses of clients. They do show the names of tenants, so
//! `cuda-node` serves them only where its operator asks for it. The folder uses `metrics` and nothing else of the node.
//! [`serve`] answers each request from a snapshot that the supervisor makes.

use std::{
    future::Future,
    io,
    net::IpAddr,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::{Request, State},
    http::{
        HeaderName, StatusCode,
        header::{
            CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, REFERRER_POLICY,
            X_CONTENT_TYPE_OPTIONS,
        },
        uri::Authority,
    },
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
use bytes::Bytes;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Mutex,
    task::{AbortHandle, JoinSet},
};

use crate::metrics::{self, Snapshot, open_metrics};

/// The age up to which a snapshot serves further requests. It bounds the load of the lease table.
const MAX_AGE: Duration = Duration::from_millis(100);

/// The page may load its own script, style and data, and nothing else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The maximum number of connections. A later one takes the place of the one whose last request is the longest ago.
const CONNECTIONS: usize = 64;

/// The time for which no later connection takes the place of one that has begun or sent a request.
const UNDISTURBED: Duration = Duration::from_millis(20);

/// The time within which a client sends a request.
const REQUEST: Duration = Duration::from_secs(5);

/// The time after which a connection ends with the request that it serves.
const LIFETIME: Duration = Duration::from_secs(60);

/// The time in which a client reads that last reply.
const LAST_REPLY: Duration = Duration::from_secs(5);

/// The pause after an error of the listener, which may be a lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Makes snapshots, and keeps the latest with its texts for a short time.
struct Source {
    snapshot: Box<dyn Fn() -> Snapshot + Send + Sync>,
    latest: Arc<Mutex<Latest>>,
}

#[derive(Default)]
struct Latest {
    snapshot: Snapshot,
    /// The time of the last text. `None`: there is no snapshot yet.
    at: Option<Instant>,
    metrics: Option<Bytes>,
    json: Option<Bytes>,
}

impl Latest {
    fn is_fresh(&self) -> bool {
        self.at.is_some_and(|at| at.elapsed() < MAX_AGE)
    }
}

/// A text of a snapshot.
struct Text {
    of: fn(&mut Latest) -> &mut Option<Bytes>,
    write: fn(&Snapshot) -> Result<String, Box<dyn std::error::Error + Send + Sync>>,
}

const METRICS: Text = Text {
    of: |latest| &mut latest.metrics,
    write: |snapshot| Ok(open_metrics(snapshot.clone())?),
};

const JSON: Text =
    Text { of: |latest| &mut latest.json, write: |snapshot| Ok(serde_json::to_string(snapshot)?) };

impl Source {
    /// Returns a text of a snapshot. The text of many tenants takes a while, so one at a time is written, on a thread
    /// that blocks no task of the node.
    async fn text(
        self: Arc<Self>,
        text: Text,
    ) -> Result<Bytes, Box<dyn std::error::Error + Send + Sync>> {
        let mut latest = self.latest.clone().lock_owned().await;
        if latest.is_fresh()
            && let Some(written) = (text.of)(&mut latest)
        {
            return Ok(written.clone());
        }
        let write = move || {
            if !latest.is_fresh() {
                *latest = Latest { snapshot: (self.snapshot)(), ..Latest::default() };
            }
            let written = Bytes::from((text.write)(&latest.snapshot)?);
            *(text.of)(&mut latest) = Some(written.clone());
            latest.at.get_or_insert_with(Instant::now);
            Ok(written)
        };
        tokio::task::spawn_blocking(write).await?
    }
}

/// Serves the status endpoints on a bound socket, until the returned future is dropped. `snapshot` is called at most
/// ten times a second, for a request. Serves requests for an address of the loopback network, the address that the
/// connection has reached, `localhost` and the host names in `names`.
///
/// # Errors
/// The socket cannot be used by the runtime.
///
/// # Panics
/// Outside of a tokio runtime.
pub fn serve(
    listener: std::net::TcpListener,
    names: Vec<String>,
    snapshot: impl Fn() -> Snapshot + Send + Sync + 'static,
) -> io::Result<impl Future<Output = ()> + Send> {
    serve_with(listener, names, snapshot, UNDISTURBED)
}

fn serve_with(
    listener: std::net::TcpListener,
    names: Vec<String>,
    snapshot: impl Fn() -> Snapshot + Send + Sync + 'static,
    undisturbed: Duration,
) -> io::Result<impl Future<Output = ()> + Send> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let source = Source { snapshot: Box::new(snapshot), latest: Arc::default() };
    let page = |kind, text| get(move || async move { reply(kind, text) });
    let routes = Router::new()
        .route("/", page("text/html; charset=utf-8", include_str!("page/index.html")))
        .route("/page.js", page("text/javascript; charset=utf-8", include_str!("page/page.js")))
        .route("/page.css", page("text/css; charset=utf-8", include_str!("page/page.css")))
        .route("/metrics", get(text))
        .route("/status.json", get(json))
        .with_state(Arc::new(source));
    Ok(accept(listener, routes, names.into(), undisturbed))
}

/// Checks the host that a request names. A browser sends the name of a foreign site if the owner of that name has given
/// it an address of this node (DNS rebinding), and would show the reply to the pages of that site.
fn check_host(request: &Request, reached: Option<IpAddr>, names: &[String]) -> Result<(), String> {
    let mut hosts = request.headers().get_all(HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok()).unwrap_or_default();
    let authority = host.parse::<Authority>().ok();
    let name = authority.as_ref().map_or("", Authority::host);
    let is_address = |ip: IpAddr| {
        let ip = ip.to_canonical();
        ip.is_loopback() || Some(ip) == reached
    };
    let is_own = match name.trim_matches(['[', ']']).parse() {
        Ok(ip) => is_address(ip),
        Err(_) => ["localhost"]
            .into_iter()
            .chain(names.iter().map(String::as_str))
            .any(|own| own.eq_ignore_ascii_case(name)),
    };
    let is_only = hosts.next().is_none();
    let is_of_target = request.uri().authority().is_none_or(|of| Some(of) == authority.as_ref());
    if is_own && is_only && is_of_target {
        return Ok(());
    }
    Err(format!(
        "the node does not serve its status for the host {host:?}; use an address of the node, or start `cuda-node` with `--metrics-name NAME`\n"
    ))
}

async fn text(State(source): State<Arc<Source>>) -> Response {
    match source.text(METRICS).await {
        Ok(text) => reply(metrics::CONTENT_TYPE, text),
        Err(error) => failed(&*error),
    }
}

async fn json(State(source): State<Arc<Source>>) -> Response {
    match source.text(JSON).await {
        Ok(text) => reply("application/json", text),
        Err(error) => failed(&*error),
    }
}

fn reply(kind: &'static str, body: impl IntoResponse) -> Response {
    let headers: [(HeaderName, &str); 5] = [
        (CONTENT_TYPE, kind),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
    ];
    (headers, body).into_response()
}

fn failed(error: &(dyn std::error::Error + Send + Sync)) -> Response {
    tracing::error!(%error, "the status of the node cannot be written");
    StatusCode::INTERNAL_SERVER_ERROR.into_response()
}

/// A connection that is served.
struct Place {
    /// The time of the last request, or of the begin.
    used: Arc<parking_lot::Mutex<Instant>>,
    serving: AbortHandle,
}

/// Serves connections until the future is dropped, which ends them. Limits on their number and on their time let status
/// clients leave the node its file descriptors, and let none keep the others out.
async fn accept(
    listener: TcpListener,
    routes: Router,
    names: Arc<[String]>,
    undisturbed: Duration,
) {
    let mut places = Vec::<Place>::new();
    let mut connections = JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                make_place(&mut places, &mut connections, undisturbed).await;
                let used = Arc::new(parking_lot::Mutex::new(Instant::now()));
                let (names, reached) = (names.clone(), stream.local_addr().ok());
                let reached = reached.map(|address| address.ip().to_canonical());
                let of_requests = used.clone();
                let check = move |request: Request, next: Next| {
                    *of_requests.lock() = Instant::now();
                    let checked = check_host(&request, reached, &names);
                    async move {
                        match checked {
                            Ok(()) => next.run(request).await,
                            Err(text) => {
                                let refused = reply("text/plain; charset=utf-8", text);
                                (StatusCode::MISDIRECTED_REQUEST, refused).into_response()
                            }
                        }
                    }
                };
                let routes = routes.clone().layer(middleware::from_fn(check));
                let serving = connections.spawn(connection(stream, routes));
                places.push(Place { used, serving });
            }
            Err(error) => {
                tracing::debug!(%error, "a connection to the status endpoints failed");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Waits until there is a place for a further connection, or takes that of the one whose last request is the longest ago.
/// Further ones wait in the queue of the listener meanwhile.
async fn make_place(places: &mut Vec<Place>, connections: &mut JoinSet<()>, undisturbed: Duration) {
    loop {
        while connections.try_join_next().is_some() {}
        places.retain(|place| !place.serving.is_finished());
        let oldest = places.iter().min_by_key(|place| *place.used.lock());
        let Some(oldest) = oldest.filter(|_| places.len() >= CONNECTIONS) else { return };
        let left = undisturbed.saturating_sub(oldest.used.lock().elapsed());
        if left.is_zero() {
            oldest.serving.abort();
            connections.join_next().await;
        } else {
            // Returns early when a connection ends.
            _ = tokio::time::timeout(left, connections.join_next()).await;
        }
    }
}

async fn connection(stream: TcpStream, routes: Router) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(REQUEST);
    let served = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    let mut served = pin!(served);
    if tokio::time::timeout(LIFETIME, served.as_mut()).await.is_ok() {
        return;
    }
    served.as_mut().graceful_shutdown();
    _ = tokio::time::timeout(LAST_REPLY, served).await;
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net,
    };

    use super::*;

    /// The status line of the reply to a request with these headers.
    fn reply_to(address: net::SocketAddr, target: &str, headers: &str) -> String {
        let mut stream = net::TcpStream::connect(address).unwrap();
        let request = format!("GET {target} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    }

    /// Serves the status endpoints under these names until the runtime is dropped.
    fn serving(names: Vec<String>) -> (tokio::runtime::Runtime, net::SocketAddr) {
        serving_with(names, UNDISTURBED)
    }

    fn serving_with(
        names: Vec<String>,
        undisturbed: Duration,
    ) -> (tokio::runtime::Runtime, net::SocketAddr) {
        let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
        let entered = runtime.enter();
        runtime.spawn(serve_with(listener, names, Snapshot::default, undisturbed).unwrap());
        drop(entered);
        (runtime, address)
    }

    #[test]
    fn idle_connections_keep_nobody_out() {
        let (_runtime, address) = serving(Vec::new());
        let idle = || net::TcpStream::connect(address).unwrap();
        let mut first = idle();
        let _others: Vec<_> = (1..3 * CONNECTIONS).map(|_| idle()).collect();
        let started = Instant::now();
        assert!(reply_to(address, "/", "Host: localhost\r\n").starts_with("HTTP/1.1 200"));
        assert!(started.elapsed() < REQUEST, "the request has waited for the ends of others");
        // It has lost its place.
        assert!(first.read(&mut [0]).map_or(true, |bytes| bytes == 0));
    }

    /// Clients that connect again and again would end each request while it is read.
    #[test]
    fn later_connections_end_no_new_request() {
        let (_runtime, address) = serving_with(Vec::new(), Duration::from_secs(600));
        let mut stream = net::TcpStream::connect(address).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n").unwrap();
        let _others: Vec<_> =
            (0..CONNECTIONS + 8).map(|_| net::TcpStream::connect(address).unwrap()).collect();
        // The node has accepted as many as it serves. The next one would take the first place.
        std::thread::sleep(Duration::from_millis(100));
        stream.write_all(b"Connection: close\r\n\r\n").unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    }

    #[tokio::test]
    async fn text_is_written_once_and_not_by_a_task() {
        let of_task = std::thread::current().id();
        let snapshot = move || {
            assert_ne!(std::thread::current().id(), of_task, "the snapshot is made by a task");
            Snapshot::default()
        };
        let source = Arc::new(Source { snapshot: Box::new(snapshot), latest: Arc::default() });
        let started = Instant::now();
        for text in [|| METRICS, || JSON] {
            // Unless the time of a text is just over.
            loop {
                let one = source.clone().text(text()).await.unwrap();
                let two = source.clone().text(text()).await.unwrap();
                if one.as_ptr() == two.as_ptr() {
                    break;
                }
                assert!(started.elapsed() < 10 * REQUEST, "each request has a text of its own");
            }
        }
    }

    #[test]
    fn only_names_of_the_node_are_served() {
        let (_runtime, address) = serving(vec!["Gpu-Node.example".to_owned()]);
        let of_host = |host: &str| reply_to(address, "/", &format!("Host: {host}\r\n"));
        for host in [
            &address.to_string(),
            "127.0.0.1",
            "127.1.2.3:80",
            "[::1]:9400",
            "localhost:1",
            "LOCALHOST",
            "gpu-node.example",
            "gpu-node.example:9400",
        ] {
            assert!(of_host(host).starts_with("HTTP/1.1 200"), "{host}: {}", of_host(host));
        }
        for host in [
            "evil.example",
            "evil.example:9400",
            "10.0.0.1",
            "[::2]",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "gpu-node.example.",
            "",
        ] {
            let reply = of_host(host);
            assert!(reply.starts_with("HTTP/1.1 421"), "{host}: {reply}");
            assert!(reply.contains("--metrics-name"), "{reply}");
        }
        let both = "Host: localhost\r\nHost: evil.example\r\n";
        for (target, headers) in
            [("/", ""), ("/", both), ("http://evil.example/", "Host: localhost\r\n")]
        {
            let reply = reply_to(address, target, headers);
            assert!(!reply.starts_with("HTTP/1.1 200"), "{target} {headers}: {reply}");
        }
    }
}
