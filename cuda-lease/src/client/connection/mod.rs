//! The connection of a lease to its node, as the handles of the lease see it.

pub(super) mod dial;
pub(super) mod grant;
pub(super) mod lease_thread;
pub(super) mod renewal;

use std::{
    sync::{
        Arc,
        mpsc::{SyncSender, sync_channel},
    },
    thread,
};

use bytes::Bytes;
use cuda_core::{Error, Result, protocol::Status};
use parking_lot::Mutex;
use tokio::sync::{
    mpsc,
    oneshot::{self, error::RecvError},
};

use self::grant::Grant;
use super::{end::Refusal, link::Link, streams::requests::OutgoingRequest, submit::Channel};
use crate::wire::{Granted, Renew, Renewed, TraceContext};

/// A connection to a node, and its thread. Dropping it ends the connection.
pub(super) struct Connection {
    requests: Mutex<Option<mpsc::UnboundedSender<OutgoingRequest>>>,
    pub(super) channel: Channel,
    /// `None` once a caller waits for its end.
    thread: Mutex<Option<thread::JoinHandle<()>>>,
}

/// The reply to a request, when it arrives.
type Reply = oneshot::Receiver<Result<Bytes, Refusal>>;

/// A lease that was granted, and its connection. Dropping it ends the lease.
pub(super) struct LeaseConnection {
    pub(super) connection: Connection,
    pub(super) grant: Arc<Grant>,
    /// The trace of the lease.
    pub(super) trace: Option<TraceContext>,
}

/// A lease that was granted: its terms and its session.
pub(super) struct Opened {
    pub(super) granted: Granted,
    /// The features that the client, the node and the device all have, as in [`features`](crate::wire::features).
    pub(super) features: u64,
    pub(super) link: Arc<Link>,
    pub(super) connection: Arc<LeaseConnection>,
}

/// Starts a thread that serves a connection, and waits until `serve` has sent what the connection is for its user.
///
/// # Errors
/// [`Error::Host`] if the thread cannot be started, or the error that `serve` has sent.
pub(super) fn start<T: Send + 'static, Served: Future<Output = ()>>(
    name: &str,
    address: &str,
    serve: impl FnOnce(SyncSender<Result<T>>) -> Served + Send + 'static,
) -> Result<(T, thread::JoinHandle<()>)> {
    let failed = |error| Error::host("failed to start the thread of a connection", &error);
    let (opened, receiver) = sync_channel(1);
    let run = move || match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(async { serve(opened).await }),
        Err(error) => _ = opened.send(Err(failed(error))),
    };
    let thread = thread::Builder::new().name(name.into()).spawn(run).map_err(failed)?;
    let opened = receiver.recv().unwrap_or_else(|_| {
        let (address, cause) = (address.to_owned(), "the thread of the connection ended".into());
        Err(Error::Disconnected { address, cause, may_have_run: false })
    })?;
    Ok((opened, thread))
}

impl Connection {
    /// Creates the connection of the runtime that calls this.
    pub(super) fn new(requests: mpsc::UnboundedSender<OutgoingRequest>, channel: Channel) -> Self {
        Self { requests: Mutex::new(Some(requests)), channel, thread: Mutex::default() }
    }

    /// Stores the thread of the connection, for [`close`](Self::close).
    pub(super) fn set_thread(&self, thread: thread::JoinHandle<()>) {
        *self.thread.lock() = Some(thread);
    }

    /// Sends a request to the node.
    ///
    /// # Errors
    /// The connection has ended.
    pub(super) fn request(&self, opcode: u16, body: Vec<u8>) -> Result<Reply> {
        let (reply, receiver) = oneshot::channel();
        let request = OutgoingRequest { opcode, body, reply };
        let sent = self.requests.lock().as_ref().map(|requests| requests.send(request));
        match sent {
            Some(Ok(())) => Ok(receiver),
            _ => Err(self.channel.ended(false)),
        }
    }

    /// Ends the connection.
    pub(super) fn end(&self) {
        *self.requests.lock() = None;
    }

    /// Ends the connection, and waits until its thread has ended.
    pub(super) fn close(&self) {
        self.end();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            _ = thread.join();
        }
    }
}

impl LeaseConnection {
    /// Sends the request that renews the lease for `lease_secs` seconds from now on.
    ///
    /// # Errors
    /// The errors of [`request`](Connection::request).
    pub(super) fn request_renewal(&self, lease_secs: u32) -> Result<Reply> {
        self.connection.request(Renew::OPCODE, self.grant.renew_request(lease_secs))
    }

    /// Takes the reply to a renewal, if it has arrived before the end of the connection.
    pub(super) fn renewed(&self, reply: Result<Result<Bytes, Refusal>, RecvError>) -> Result<()> {
        let channel = &self.connection.channel;
        let renewed = reply.map_err(|_| channel.ended(true))?.and_then(|reply| {
            Renewed::decode(&reply).map_err(|error| (Status::Internal, error.to_string()))
        });
        self.grant.renewed(&renewed.map_err(|refused| channel.refused(refused))?);
        Ok(())
    }
}
