//! The memory of connections: of open ones whose clients make it grow, and of those that have ended.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use cuda_lease::internals::transport;

use super::streams::disconnect;

/// The time between two looks at the memory of a connection that has ended.
const LOOK: Duration = Duration::from_millis(250);

/// The time between two looks at the ids of an open connection. Until then the rate of packets limits their number: it
/// remains below some thousands, each of which uses some hundreds of bytes.
const LOOK_AT_IDS: Duration = Duration::from_millis(100);

/// The ids of its connection that a client may retire. `quinn` retires one when the address of the client changes.
const RETIRED_IDS: u64 = 256;

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

    /// Closes a connection whose client retires too many ids. Returns when the connection has ended.
    ///
    /// `quinn` issues a new id for each one that a client retires, also for ids that it could not send yet. If the client
    /// acknowledges nothing, the ids wait in memory, however many there are.
    pub(super) async fn limit_ids(connection: quinn::Connection) {
        while tokio::time::timeout(LOOK_AT_IDS, connection.closed()).await.is_err() {
            let retired = connection.stats().frame_rx.retire_connection_id;
            if retired > RETIRED_IDS {
                let reason = format!(
                    "the client has retired {retired} ids of its connection, the limit is {RETIRED_IDS}; connect again"
                );
                return disconnect(&connection, &reason);
            }
        }
    }

    /// Waits until the memory is free. The caller has no handle of the connection.
    pub(super) async fn freed(self) {
        while self.0.strong_count() > 0 {
            tokio::time::sleep(LOOK).await;
        }
    }
}
