//! Runs a server from its start to its shutdown.

use cuda_async::{Error, Result};
use tokio::{
    net::TcpListener,
    time::{Instant, timeout_at},
};

use crate::{classifier::Classifier, connections::Connections, limits::Limits, routes::routes};

/// Serves until `shutdown` is ready, and then until every started request is answered, or the grace time is over. While
/// `load` loads the model, the server listens and refuses requests. Returns the number of connections that
/// were closed during a request.
///
/// # Errors
/// The error of `load`, or the error that lost the device. Such an error also starts the shutdown. A lost GPU or a lost
/// lease is only usable again in a new process, so the supervisor of the process has to start it again.
pub async fn serve(
    listener: TcpListener,
    limits: Limits,
    load: impl Future<Output = Result<Classifier>> + Send + 'static,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<usize> {
    let (router, batches) = routes(limits);
    let mut connections = Connections::new(router, limits, batches.metrics.connections.clone());
    let mut batches = tokio::spawn(async move { batches.run(load.await?).await });
    let ended = tokio::select! {
        never = connections.accept(listener) => match never {},
        () = shutdown => None,
        ended = &mut batches => Some(ended),
    };
    let end = Instant::now() + limits.grace;
    let cut = connections.close().await;
    // With the last handler the queue is closed, and the batches end with the last answer.
    let ended = match ended {
        Some(ended) => Some(ended),
        None => timeout_at(end, &mut batches).await.ok(),
    };
    batches.abort();
    ended.transpose().map_err(Error::other)?.transpose()?;
    Ok(cut)
}
