//! Requests leases.

use std::{
    net::{SocketAddr, ToSocketAddrs},
    time::Duration,
};

use cuda_core::{Device, Error, Result};
use tokio::sync::oneshot;

use super::{
    address::{Address, has_port},
    backend::LeaseProvider,
    certificate::Certificates,
    connection::{LeaseTerms, RESUME_WINDOW},
    lease::Lease,
    random::random,
    spans,
};
use crate::{
    authority::ClientTls,
    wire::{Allocate, Exclusivity, TraceContext},
};

/// The memory of a lease if the request states none: 256 MiB.
const DEFAULT_VRAM: u64 = 256 << 20;

/// The total time for which leases are renewed if the user states no other.
const DEFAULT_RENEWAL: Duration = Duration::from_secs(24 * 60 * 60);

/// The duration of a lease if the request states none, in seconds.
const DEFAULT_SECS: u32 = 60;

/// A request for a lease of a device of a node.
///
/// ```no_run
/// use cuda_lease::LeaseBuilder;
///
/// let lease = LeaseBuilder::new("gpu-node:5701").min_vram(1 << 30).lease_secs(60).acquire_blocking()?;
/// println!("{}", lease.device().info().name);
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a request does nothing until `acquire` or `acquire_blocking`"]
pub struct LeaseBuilder {
    node: String,
    min_vram: u64,
    lease_secs: u32,
    exclusivity: Exclusivity,
    device: Option<String>,
    wait: Duration,
    priority: i32,
    renew_up_to: Option<Duration>,
    resume_within: Duration,
    tls: ClientTls,
    trace: Option<TraceContext>,
}

impl LeaseBuilder {
    /// Creates a request to a node. `node` is `HOST:PORT`, such as `gpu-node:5701`. The lease has 256 MiB for 60
    /// seconds, and is renewed while its device is in use. Without [`tls`](Self::tls) the node has to be on a loopback
    /// address.
    pub fn new(node: impl Into<String>) -> Self {
        Self {
            node: node.into(),
            min_vram: DEFAULT_VRAM,
            lease_secs: DEFAULT_SECS,
            exclusivity: Exclusivity::Shared,
            device: None,
            wait: Duration::ZERO,
            priority: 0,
            renew_up_to: Some(DEFAULT_RENEWAL),
            resume_within: RESUME_WINDOW,
            tls: ClientTls::loopback(),
            trace: None,
        }
    }

    /// Reads a request from an address: `lease://HOST:PORT?min_vram=1GiB&lease_secs=60`. The other options are
    /// `exclusive` (`shared`, `session`, `device`), `device`, `wait` (seconds), `priority`, `renew_secs` (0: no
    /// renewal), `ca`, `cert`, `key` (PEM files) and `server_name`.
    ///
    /// # Errors
    /// [`Misuse::Setting`](cuda_core::Misuse::Setting) with the mistake in the address.
    pub fn parse(address: &str) -> Result<Self> {
        let parsed = Address::parse(address).map_err(invalid)?;
        let mut builder = Self::new(parsed.node);
        builder.min_vram = parsed.min_vram.unwrap_or(builder.min_vram);
        builder.lease_secs = parsed.lease_secs.unwrap_or(builder.lease_secs);
        builder.exclusivity = parsed.exclusivity.unwrap_or_default();
        builder.device = parsed.device;
        builder.wait = parsed.wait.unwrap_or_default();
        builder.priority = parsed.priority.unwrap_or_default();
        if let Some(renew) = parsed.renew {
            builder.renew_up_to = (!renew.is_zero()).then_some(renew);
        }
        match (parsed.ca, parsed.cert, parsed.key) {
            (None, None, None) => {}
            (Some(ca), None, None) => builder.tls = ClientTls::with_ca(ca),
            (Some(ca), Some(cert), Some(key)) => {
                builder.tls = ClientTls::with_ca(ca).client_certificate(cert, key);
            }
            _ => {
                let detail = "`cert` and `key` must both be set, together with `ca`; set all three, or `ca` alone";
                return Err(invalid(detail));
            }
        }
        if let Some(name) = parsed.server_name {
            builder.tls = builder.tls.server_name(name);
        }
        Ok(builder)
    }

    /// Sets the device memory in bytes. The lease has exactly this quota.
    pub fn min_vram(mut self, bytes: u64) -> Self {
        self.min_vram = bytes;
        self
    }

    /// Sets the duration of the lease in seconds. 0 requests the default of the node.
    pub fn lease_secs(mut self, seconds: u32) -> Self {
        self.lease_secs = seconds;
        self
    }

    /// Sets the exclusivity class.
    pub fn exclusive(mut self, exclusivity: Exclusivity) -> Self {
        self.exclusivity = exclusivity;
        self
    }

    /// Sets the device of the node, such as `cuda:0`. By default the node chooses.
    pub fn on_device(mut self, device: impl Into<String>) -> Self {
        self.device = Some(device.into());
        self
    }

    /// Sets the time that the request may wait in the queue of a node without free capacity. By default such a node
    /// refuses the request at once. A node shortens a wait of more than its limit, by default 10 minutes.
    pub fn wait(mut self, time: Duration) -> Self {
        self.wait = time;
        self
    }

    /// Sets the priority in the queue. Higher numbers come first; the default is 0.
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Sets the total time up to which the lease is renewed while its device is in use. The default is 24 hours.
    pub fn renew_up_to(mut self, time: Duration) -> Self {
        self.renew_up_to = Some(time);
        self
    }

    /// Lets the lease expire after its duration, without a renewal.
    pub fn without_renewal(mut self) -> Self {
        self.renew_up_to = None;
        self
    }

    /// Sets the maximum duration of an interruption. If the connection is not resumed within it, the lease is lost. The
    /// default is 10 seconds. Without a connection, the node keeps the lease no longer than its own reconnect window,
    /// whose default is also 10 seconds.
    pub fn resume_within(mut self, time: Duration) -> Self {
        self.resume_within = time;
        self
    }

    /// Sets the certificates of the connection.
    pub fn tls(mut self, tls: ClientTls) -> Self {
        self.tls = tls;
        self
    }

    /// Sets the span that the lease belongs to, in a trace of the program. The lease gets a span of its own in that
    /// trace. By default the lease begins a trace. The spans of the lease, in this program and on the node, have the
    /// ids of the trace and the span as fields.
    pub fn trace_parent(mut self, parent: TraceContext) -> Self {
        self.trace = Some(parent);
        self
    }

    /// Requests the lease and opens its device. Blocks the calling thread until the node has granted it.
    ///
    /// # Errors
    /// [`Error::Remote`] if the node refuses, with the [`Status`](cuda_core::protocol::Status), or
    /// [`Error::Unreachable`] if no node answers within 5 seconds.
    pub fn acquire_blocking(self) -> Result<Lease> {
        self.terms().map(LeaseProvider::new).and_then(|provider| Self::open(&provider))
    }

    fn open(provider: &LeaseProvider) -> Result<Lease> {
        let device = Device::open(provider, 0)?;
        let opened = provider.take();
        opened.map(|(connection, link)| Lease::new(device, connection, link)).ok_or_else(|| {
            let detail = "the provider opened no connection; report this as a bug of cuda-lease";
            Error::Host { what: "failed to open a lease".into(), detail: detail.into() }
        })
    }

    /// Requests the lease and opens its device, without blocking the calling thread: a new thread waits for the node. If
    /// the future is dropped, the request is withdrawn, and leaves the queue of the node. A lease whose worker starts at
    /// that moment ends when the node has waited 10 seconds for its client.
    ///
    /// # Errors
    /// The errors of [`acquire_blocking`](Self::acquire_blocking).
    pub async fn acquire(self) -> Result<Lease> {
        let (sender, receiver) = oneshot::channel();
        // Dropped with this future.
        let (_waits, withdrawn) = oneshot::channel();
        let span = tracing::Span::current();
        let open = move || Self::open(&LeaseProvider::withdrawn_by(self.terms()?, withdrawn));
        let acquire = move || _ = sender.send(span.in_scope(open));
        std::thread::Builder::new()
            .name("cuda-lease-acquire".into())
            .spawn(acquire)
            .map_err(|error| Error::host("failed to start the thread that requests the lease; raise the limit on threads", &error))?;
        receiver
            .await
            .unwrap_or_else(|_| Err(Error::Panicked { what: "the request for the lease".into() }))
    }

    pub(super) fn terms(&self) -> Result<LeaseTerms> {
        let socket = self.resolve()?;
        let host = self.node.rsplit_once(':').map_or("", |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let server_name = self.tls.server_name_for(host).map_err(invalid)?;
        let certificates = Certificates::read(self.tls.clone(), socket).map_err(invalid)?;
        Ok(LeaseTerms {
            address: self.node.clone(),
            socket,
            server_name,
            certificates,
            allocate: self.request()?,
            renew_up_to: self.renew_up_to,
            resume_within: self.resume_within,
        })
    }

    /// The message that requests the lease, with a nonce of its own.
    pub(super) fn request(&self) -> Result<Allocate> {
        Ok(Allocate {
            nonce: random()?,
            min_vram: self.min_vram,
            lease_secs: self.lease_secs,
            exclusivity: self.exclusivity,
            device: self.device.clone(),
            wait_ms: self.wait.as_millis().try_into().unwrap_or(u32::MAX),
            priority: self.priority,
            detached: false,
            trace: Some(spans::next(self.trace)?),
        })
    }

    fn resolve(&self) -> Result<SocketAddr> {
        if self.node.starts_with("lease://") {
            return Err(invalid(format!(
                "`{}` is the address of a lease; write HOST:PORT, such as gpu-node:5701",
                self.node
            )));
        }
        if !has_port(&self.node) {
            return Err(invalid(format!(
                "`{}` has no port; write HOST:PORT, such as gpu-node:5701",
                self.node
            )));
        }
        let failed = |cause: String| Error::Unreachable { address: self.node.clone(), cause };
        let mut found = self.node.to_socket_addrs().map_err(|error| failed(error.to_string()))?;
        let host = self.node.rsplit_once(':').map_or(&*self.node, |(host, _)| host);
        found
            .next()
            .ok_or_else(|| failed(format!("host name {host:?} has no IP address; check the name")))
    }
}

fn invalid(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::setting("a request for a lease", cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_without_a_port_is_refused_before_anything_is_sent() {
        for node in [
            "gpu-node",
            "gpu-node:",
            "gpu-node:http",
            "127.0.0.1:70000",
            "gpu-node:0",
            ":5701",
            "",
            "lease://gpu-node:5701",
        ] {
            let error = LeaseBuilder::new(node).acquire_blocking().unwrap_err();
            assert!(error.to_string().contains("write HOST:PORT"), "{node}: {error}");
            assert!(!error.is_retryable(), "{node}: {error}");
        }
    }
}
