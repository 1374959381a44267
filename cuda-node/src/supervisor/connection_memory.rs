//! The memory of connections that have ended.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use cuda_lease::internals::transport;

/// The time between two looks at the memory of a connection that has ended.
const LOOK: Duration = Duration::from_millis(250);

/// The memory that `quinn` has for one connection. It keeps all buffers of a connection after the end, for three probe
/// timeouts (RFC 9000, section 10.2). A client that acknowledges late makes them as long as 50 seconds. So an ended one
/// counts until its memory is free: otherwise a client that connects again and again would fill the memory of the node.
pub(super) struct ConnectionMemory(Weak<quinn::TransportConfig>);

impl ConnectionMemory {
    /// Gives a connection that begins its own settings, which `quinn` keeps as long as its memory.
    pub(super) fn observe(config: &mut quinn::ServerConfig) -> Self {
        let settings = transport::narrow_connection();
        let own = Self(Arc::downgrade(&settings));
        config.transport_config(settings);
        own
    }

    /// Waits until the memory is free. The caller has no handle of the connection.
    pub(super) async fn freed(self) {
        while self.0.strong_count() > 0 {
            tokio::time::sleep(LOOK).await;
        }
    }
}
