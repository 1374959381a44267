//! The request stream: requests about leases, and their replies.

use std::collections::VecDeque;

use bytes::Bytes;
use quinn::{RecvStream, SendStream};
use tokio::sync::{mpsc, oneshot};

use super::replies::next_reply;
use crate::{
    client::end::{End, Refusal},
    wire::{FrameBuffer, Hello, VERSION, Welcome, WireError, features, opcode, put_frame},
};

/// A request to the node.
pub(in crate::client) struct OutgoingRequest {
    pub(in crate::client) opcode: u16,
    pub(in crate::client) body: Vec<u8>,
    pub(in crate::client) reply: oneshot::Sender<Result<Bytes, Refusal>>,
}

/// Requests that were sent and not answered. They are sent again on the next connection: a repeated request has the
/// same result and no second effect.
#[derive(Default)]
pub(in crate::client) struct Unanswered {
    next: u64,
    requests: VecDeque<(u64, OutgoingRequest)>,
}

/// The request stream of one connection.
pub(in crate::client) struct RequestStream {
    send: SendStream,
    receive: RecvStream,
    buffer: FrameBuffer,
    /// The features that both sides have, as in [`features`].
    pub(in crate::client) features: u64,
}

impl RequestStream {
    /// Opens the stream and greets the node.
    pub(in crate::client) async fn open(connection: &quinn::Connection) -> Result<Self, End> {
        let (send, receive) = connection.open_bi().await?;
        let mut opened = Self { send, receive, buffer: FrameBuffer::default(), features: 0 };
        let program = concat!("cuda-lease ", env!("CARGO_PKG_VERSION")).to_owned();
        let hello = Hello { oldest: VERSION, newest: VERSION, features: features::ALL, program };
        let mut body = Vec::new();
        hello.encode(&mut body);
        let reply = opened.ask(Hello::OPCODE, &body).await?;
        let reply = reply.map_err(|(status, detail)| End::Refused(status, detail))?;
        opened.features = Welcome::decode(&reply)?.features;
        Ok(opened)
    }

    /// Sends one request and waits for its reply.
    pub(in crate::client) async fn ask(
        &mut self,
        opcode: u16,
        body: &[u8],
    ) -> Result<Result<Bytes, Refusal>, End> {
        self.write(opcode, 0, body).await?;
        Ok(self.read().await?.1)
    }

    async fn write(&mut self, opcode: u16, id: u64, body: &[u8]) -> Result<(), End> {
        let mut out = Vec::new();
        put_frame(&mut out, opcode, 0, id, |out| out.extend_from_slice(body));
        Ok(self.send.write_all(&out).await?)
    }

    /// Reads the next reply, and the id of its request. Cancelling this loses nothing.
    async fn read(&mut self) -> Result<(u64, Result<Bytes, Refusal>), End> {
        let reply = next_reply(&mut self.receive, &mut self.buffer).await?;
        let reply = reply.ok_or(End::Closed)?;
        match reply.content {
            Ok((opcode, _)) if opcode & opcode::REPLY == 0 => {
                Err(WireError::UnexpectedOpcode { opcode }.into())
            }
            content => Ok((reply.sequence, content.map(|(_, body)| body))),
        }
    }

    async fn begin(
        &mut self,
        unanswered: &mut Unanswered,
        request: OutgoingRequest,
    ) -> Result<(), End> {
        unanswered.next += 1;
        let (id, opcode, body) = (unanswered.next, request.opcode, request.body.clone());
        unanswered.requests.push_back((id, request));
        self.write(opcode, id, &body).await
    }

    /// Carries out requests until the connection ends, or until all senders of requests are dropped.
    pub(in crate::client) async fn serve(
        &mut self,
        unanswered: &mut Unanswered,
        requests: &mut mpsc::UnboundedReceiver<OutgoingRequest>,
        renewals: &mut mpsc::UnboundedReceiver<OutgoingRequest>,
    ) -> Result<(), End> {
        for (id, request) in &unanswered.requests {
            self.write(request.opcode, *id, &request.body).await?;
        }
        loop {
            tokio::select! {
                request = requests.recv() => {
                    let Some(request) = request else { return Ok(()) };
                    self.begin(unanswered, request).await?;
                }
                Some(request) = renewals.recv() => self.begin(unanswered, request).await?,
                reply = self.read() => {
                    let (id, reply) = reply?;
                    let found = unanswered.requests.iter().position(|request| request.0 == id);
                    if let Some((_, request)) = found.and_then(|at| unanswered.requests.remove(at)) {
                        _ = request.reply.send(reply);
                    }
                }
            }
        }
    }
}
