//! The connection to a node, for requests that have a stream of their own.

use std::sync::mpsc::sync_channel;

use cuda_core::Error;
use tokio::{runtime::Handle, sync::watch};

/// The current connection to a node, and the runtime of its thread.
#[derive(Clone)]
pub(crate) struct Channel {
    /// The address of the node as the user wrote it.
    pub(super) address: String,
    runtime: Handle,
    /// The sender is dropped when no further connection comes.
    connections: watch::Receiver<Option<quinn::Connection>>,
}

impl Channel {
    /// Creates a channel on the runtime that calls this, and the sender of its connections.
    pub(crate) fn new(address: String) -> (Self, watch::Sender<Option<quinn::Connection>>) {
        let (sender, connections) = watch::channel(None);
        (Self { address, runtime: Handle::current(), connections }, sender)
    }

    /// Waits for a connection that this value has not returned before.
    ///
    /// # Errors
    /// No further connection comes.
    pub(super) async fn next(&mut self) -> Result<quinn::Connection, Error> {
        loop {
            let current = self.connections.borrow_and_update().clone();
            if let Some(connection) = current
                && connection.close_reason().is_none()
            {
                return Ok(connection);
            }
            self.connections.changed().await.map_err(|_| self.ended())?;
        }
    }

    /// Starts `work` on the thread of the connection. The result arrives in `reply`.
    pub(super) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
        reply: impl FnOnce(T) + Send + 'static,
    ) {
        // If the runtime has ended, the task is dropped, and `reply` with it.
        self.runtime.spawn(async move { reply(work.await) });
    }

    /// Runs `work` on the thread of the connection, and blocks the calling thread until it is done. Unlike
    /// `blocking_recv` it does not panic inside of another runtime.
    ///
    /// # Errors
    /// The connection has ended.
    pub(crate) fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Error> {
        let (sender, receiver) = sync_channel(1);
        self.spawn(work, move |result| _ = sender.send(result));
        receiver.recv().map_err(|_| self.ended())
    }

    pub(super) fn ended(&self) -> Error {
        let cause = "the connection to the node has ended".into();
        Error::Disconnected { address: self.address.clone(), cause, may_have_run: true }
    }

    pub(crate) fn refused(&self, (status, detail): (cuda_core::protocol::Status, String)) -> Error {
        Error::Remote { address: self.address.clone(), status, detail }
    }
}
