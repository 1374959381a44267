//! The settings of QUIC.

use std::time::Duration;

/// The bytes of one lane that may be on the way to a side that does not read them yet.
const STREAM_WINDOW: u32 = 16 << 20;

/// The bytes of a connection that may be on the way: those of all its streams.
const CONNECTION_WINDOW: u32 = 64 << 20;

/// A connection on which nothing arrives for this time is lost.
const IDLE: Duration = Duration::from_secs(5);

/// Returns the settings of client and node.
pub(crate) fn config() -> quinn::TransportConfig {
    let mut config = quinn::TransportConfig::default();
    config
        .stream_receive_window(STREAM_WINDOW.into())
        .receive_window(CONNECTION_WINDOW.into())
        .send_window(u64::from(CONNECTION_WINDOW))
        .keep_alive_interval(Some(IDLE / 5))
        .max_concurrent_bidi_streams(64u8.into())
        .max_concurrent_uni_streams(0u8.into())
        .datagram_receive_buffer_size(None)
        .max_idle_timeout(IDLE.try_into().ok());
    config
}
