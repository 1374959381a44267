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
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use parking_lot::Mutex;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
};

use crate::metrics::{self, Snapshot, open_metrics};

/// The age up to which a snapshot serves further requests. It bounds the load of the lease table.
const MAX_AGE: Duration = Duration::from_millis(100);

/// The page may load its own script, style and data, and nothing else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The maximum number of connections. Later ones wait.
const CONNECTIONS: usize = 64;

/// The time within which a client sends a request.
const REQUEST: Duration = Duration::from_secs(5);

/// The time after which a connection ends with the request that it serves.
const LIFETIME: Duration = Duration::from_secs(60);

/// The time in which a client reads that last reply.
const LAST_REPLY: Duration = Duration::from_secs(5);

/// The pause after an error of the listener, which may be a lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Makes snapshots, and keeps the latest for a short time.
struct Source {
    snapshot: Box<dyn Fn() -> Snapshot + Send + Sync>,
    latest: Mutex<Option<(Instant, Snapshot)>>,
}

impl Source {
    fn get(&self) -> Snapshot {
        let mut latest = self.latest.lock();
        match &*latest {
            Some((at, snapshot)) if at.elapsed() < MAX_AGE => snapshot.clone(),
            _ => {
                let snapshot = (self.snapshot)();
                *latest = Some((Instant::now(), snapshot.clone()));
                snapshot
            }
        }
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
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let source = Source { snapshot: Box::new(snapshot), latest: Mutex::default() };
    let page = |kind, text| get(move || async move { reply(kind, text) });
    let routes = Router::new()
        .route("/", page("text/html; charset=utf-8", include_str!("page/index.html")))
        .route("/page.js", page("text/javascript; charset=utf-8", include_str!("page/page.js")))
        .route("/page.css", page("text/css; charset=utf-8", include_str!("page/page.css")))
        .route("/metrics", get(text))
        .route("/status.json", get(json))
        .with_state(Arc::new(source));
    Ok(accept(listener, routes, names.into()))
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
    match open_metrics(source.get()) {
        Ok(text) => reply(metrics::CONTENT_TYPE, text),
        Err(error) => failed(&error),
    }
}

async fn json(State(source): State<Arc<Source>>) -> Response {
    match serde_json::to_string(&source.get()) {
        Ok(text) => reply("application/json", text),
        Err(error) => failed(&error),
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

fn failed(error: &dyn std::error::Error) -> Response {
    tracing::error!(%error, "the status of the node cannot be written");
    StatusCode::INTERNAL_SERVER_ERROR.into_response()
}

/// Serves connections until the future is dropped, which ends them. Limits on their number and on their time let status
/// clients leave the node its file descriptors, and let none keep the others out.
async fn accept(listener: TcpListener, routes: Router, names: Arc<[String]>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    // The semaphore is never closed.
    while let Ok(place) = places.clone().acquire_owned().await {
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, _)) => {
                let (names, reached) = (names.clone(), stream.local_addr().ok());
                let reached = reached.map(|address| address.ip().to_canonical());
                let check = move |request: Request, next: Next| {
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
                connections.spawn(async move {
                    connection(stream, routes).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "a connection to the status endpoints failed");
                tokio::time::sleep(PAUSE).await;
            }
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

    #[test]
    fn only_names_of_the_node_are_served() {
        let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
        let _entered = runtime.enter();
        let names = vec!["Gpu-Node.example".to_owned()];
        runtime.spawn(serve(listener, names, Snapshot::default).unwrap());
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
