//! The signals that end the server.

use std::io;

/// Returns a future that is ready after Ctrl-C or SIGTERM. The signals are handled from this call on.
#[cfg(unix)]
pub(crate) fn shutdown() -> io::Result<impl Future<Output = ()> + Send> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut interrupt, mut terminate) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

/// Returns a future that is ready after Ctrl-C.
#[cfg(not(unix))]
pub(crate) fn shutdown() -> io::Result<impl Future<Output = ()> + Send> {
    Ok(async {
        // Without a handler there is no signal to wait for, and the process ends at Ctrl-C.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending().await
        }
    })
}
