//! The server under load, and its memory.

use std::{error::Error, net::SocketAddr, time::Duration};

use server_example::{Classifier, Limits, serve};
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle};

use crate::client::Connection;

/// The connections beyond those of the load: for the metrics, the client that never reads and cancelled requests.
const FURTHER_CONNECTIONS: u32 = 448;

/// The time after which the server in this process disconnects the client that never reads. A run takes a few seconds,
/// and the client should come back several times.
const WRITE: Duration = Duration::from_secs(1);

/// A server, in this process or another one.
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    /// The process whose memory is reported.
    pid: Option<String>,
    own: Option<(oneshot::Sender<()>, JoinHandle<cuda_async::Result<usize>>)>,
}

/// The memory of a server in bytes. A part is `None` if it cannot be read.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Memory {
    pub(crate) resident: Option<u64>,
    pub(crate) device: Option<u64>,
}

impl Target {
    pub(crate) fn running(address: SocketAddr, pid: Option<u32>) -> Self {
        Self { address, pid: pid.map(|pid| pid.to_string()), own: None }
    }

    /// Starts a server in this process, with a limit of connections that the load does not reach.
    pub(crate) async fn start(
        device: Option<String>,
        connections: u32,
    ) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let classifier = Classifier::open(device).await?;
        println!("server in this process, device {}\n", classifier.address());
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let connections = (connections + FURTHER_CONNECTIONS) as usize;
        let limits = Limits { connections, write: WRITE, ..Limits::default() };
        let (stop, stopped) = oneshot::channel();
        let shutdown = async { stopped.await.unwrap_or_default() };
        let server = serve(listener, limits, async { Ok(classifier) }, shutdown);
        let own = Some((stop, tokio::spawn(server)));
        Ok(Self { address, pid: Some("self".into()), own })
    }

    pub(crate) async fn memory(&self) -> Memory {
        let metrics = self.metrics().await.unwrap_or_default();
        let device = value(&metrics, "digits_device_memory_bytes").map(|bytes| bytes as u64);
        Memory { resident: self.resident(), device }
    }

    /// Returns the resident memory of the server's process. Only Linux has the file.
    fn resident(&self) -> Option<u64> {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.pid.as_ref()?)).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib << 10)
    }

    pub(crate) async fn metrics(&self) -> Option<String> {
        let mut connection = Connection::new(self.address);
        Some(connection.send("GET", "/metrics", "".into()).await.ok()?.body)
    }

    /// Ends the server if it is in this process.
    pub(crate) async fn stop(self) -> Result<(), Box<dyn Error + Send + Sync>> {
        if let Some((stop, server)) = self.own {
            drop(stop);
            server.await??;
        }
        Ok(())
    }
}

/// Returns the value of a metric.
pub(crate) fn value(metrics: &str, name: &str) -> Option<f64> {
    let text = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    text?.parse().ok()
}
