//! The connection of a lease to its node, as the handles of the lease see it.

pub(super) mod dial;
pub(super) mod driver;
pub(super) mod grant;
pub(super) mod renewal;

use std::{sync::Arc, thread};

use bytes::Bytes;
use cuda_core::{Error, Result, protocol::Status};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use self::grant::Grant;
use super::{end::Refusal, link::Link, streams::control::ControlRequest, submit::Channel};
use crate::wire::{Granted, Renew, Renewed, TraceContext};

/// A lease that was granted, and its connection. Dropping it ends the lease.
pub(super) struct Connection {
    pub(super) address: String,
    requests: Mutex<Option<mpsc::UnboundedSender<ControlRequest>>>,
    pub(super) grant: Arc<Grant>,
    pub(super) channel: Channel,
    /// The trace of the lease.
    pub(super) trace: Option<TraceContext>,
    /// The thread of the connection. `None` once a caller waits for its end.
    thread: Mutex<Option<thread::JoinHandle<()>>>,
}

/// The reply to a request, when it arrives.
type Reply = oneshot::Receiver<Result<Bytes, Refusal>>;

/// A lease that was granted: its terms and its session.
pub(super) struct Opened {
    pub(super) granted: Granted,
    /// The features that the client, the node and the device all have, as in [`features`](crate::wire::features).
    pub(super) features: u64,
    pub(super) link: Arc<Link>,
    pub(super) connection: Arc<Connection>,
}

impl Connection {
    pub(super) fn new(
        address: String,
        requests: mpsc::UnboundedSender<ControlRequest>,
        grant: Arc<Grant>,
        channel: Channel,
        trace: Option<TraceContext>,
    ) -> Self {
        let (requests, thread) = (Mutex::new(Some(requests)), Mutex::default());
        Self { address, requests, grant, channel, trace, thread }
    }

    /// Stores the thread of the connection, for [`close`](Self::close).
    pub(super) fn set_thread(&self, thread: thread::JoinHandle<()>) {
        *self.thread.lock() = Some(thread);
    }

    /// Sends a request to the node.
    ///
    /// # Errors
    /// The lease has ended.
    pub(super) fn request(&self, opcode: u16, body: Vec<u8>) -> Result<Reply> {
        let (reply, receiver) = oneshot::channel();
        let request = ControlRequest { opcode, body, reply };
        let sent = self.requests.lock().as_ref().map(|requests| requests.send(request));
        match sent {
            Some(Ok(())) => Ok(receiver),
            _ => Err(self.ended()),
        }
    }

    /// Ends the lease.
    pub(super) fn free(&self) {
        *self.requests.lock() = None;
    }

    /// Ends the lease, and waits until the thread of the connection has ended.
    pub(super) fn close(&self) {
        self.free();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            _ = thread.join();
        }
    }

    pub(super) fn ended(&self) -> Error {
        let (address, cause) = (self.address.clone(), "the lease has ended".into());
        Error::Disconnected { address, cause, may_have_run: false }
    }

    pub(super) fn refused(&self, (status, detail): Refusal) -> Error {
        Error::Remote { address: self.address.clone(), status, detail }
    }

    /// Sends the request that renews the lease for `lease_secs` seconds from now on.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub(super) fn request_renewal(&self, lease_secs: u32) -> Result<Reply> {
        self.request(Renew::OPCODE, self.grant.renew_request(lease_secs))
    }

    /// Takes the reply to a renewal.
    pub(super) fn renewed(&self, reply: &[u8]) -> Result<()> {
        let renewed = Renewed::decode(reply)
            .map_err(|error| self.refused((Status::Internal, error.to_string())))?;
        self.grant.renewed(&renewed);
        Ok(())
    }
}
