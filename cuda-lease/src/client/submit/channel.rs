//! The connection to a node, for requests that have a stream of their own.

use std::sync::mpsc::sync_channel;

use cuda_core::Error;
use tokio::{runtime::Handle, sync::watch};

/// The current connection, the reason for which no further one comes, or `None` before the first one.
pub(crate) type Current = Option<Result<quinn::Connection, String>>;

/// The current connection to a node, and the runtime of its thread.
#[derive(Clone)]
pub struct Channel {
    /// The address of the node as the user wrote it.
    pub(super) address: String,
    runtime: Handle,
    connections: watch::Receiver<Current>,
}

impl Channel {
    /// Creates a channel on the runtime that calls this, and the sender of its connections.
    pub(crate) fn new(address: String) -> (Self, watch::Sender<Current>) {
        let (sender, connections) = watch::channel(None);
        (Self { address, runtime: Handle::current(), connections }, sender)
    }

    /// Waits for a connection that this value has not returned before. `may_have_run` is for the error.
    ///
    /// # Errors
    /// No further connection comes.
    pub(super) async fn next(&mut self, may_have_run: bool) -> Result<quinn::Connection, Error> {
        loop {
            let current = self.connections.borrow_and_update().clone();
            match current {
                Some(Ok(connection)) if connection.close_reason().is_none() => {
                    return Ok(connection);
                }
                Some(Err(_)) => return Err(self.ended(may_have_run)),
                _ => {}
            }
            self.connections.changed().await.map_err(|_| self.ended(may_have_run))?;
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
        self.check()?;
        let (sender, receiver) = sync_channel(1);
        self.spawn(work, move |result| _ = sender.send(result));
        receiver.recv().map_err(|_| self.ended(true))
    }

    /// # Errors
    /// No further connection comes, so a request does not run.
    pub(super) fn check(&self) -> Result<(), Error> {
        let has_ended = matches!(&*self.connections.borrow(), Some(Err(_)));
        if has_ended { Err(self.ended(false)) } else { Ok(()) }
    }

    /// The error of a request after the end of the last connection.
    pub(crate) fn ended(&self, may_have_run: bool) -> Error {
        let cause = match &*self.connections.borrow() {
            Some(Err(cause)) => cause.clone(),
            _ => "the connection to the node has ended".into(),
        };
        Error::Disconnected { address: self.address.clone(), cause, may_have_run }
    }

    pub(crate) fn refused(&self, (status, detail): (cuda_core::protocol::Status, String)) -> Error {
        Error::Remote { address: self.address.clone(), status, detail }
    }
}
