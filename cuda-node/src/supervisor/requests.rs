//! The request stream of a connection.

use std::sync::Arc;

use cuda_core::protocol::Status;
use cuda_lease::wire::{
    Allocate, Free, Hello, Inventory, InventoryReply, LeaseRequest, Refused, Renew, VERSION,
    Welcome, features, opcode::REPLY,
};
use quinn::SendStream;
use tokio::sync::mpsc;

use super::{
    leases::{Client, Leases},
    streams::{End, FrameStream, Refusal, send_frame},
};

/// The requests of a connection that may wait for their replies at a time.
const OUTSTANDING: usize = 64;

/// A reply: its opcode and its body.
type Reply = Result<(u16, Vec<u8>), Refusal>;

/// Greets the client, then answers its requests. Requests do not wait for each other.
pub(super) async fn serve(
    leases: &Arc<Leases>,
    client: &Client,
    (hello, id): (Hello, u64),
    mut send: SendStream,
    mut receive: FrameStream,
) -> Result<(), End> {
    reply(&mut send, id, greet(&hello)).await?;
    if hello.oldest > VERSION || hello.newest < VERSION {
        return Ok(());
    }
    let (answers, mut answered) = mpsc::channel(OUTSTANDING);
    let mut waiting = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            request = receive.next(|frame| Ok((frame.header.sequence, frame.header.opcode, frame.body.to_vec()))) => {
                let (id, opcode, body) = request?;
                let request = LeaseRequest::decode(opcode, &body)?;
                if waiting.len() >= OUTSTANDING {
                    let detail = format!(
                        "the connection has {OUTSTANDING} unanswered requests, which is the limit; repeat the request \
                         after the next reply"
                    );
                    reply(&mut send, id, Err((Status::CapacityExceeded, detail))).await?;
                    continue;
                }
                let (leases, client, answers) = (leases.clone(), client.clone(), answers.clone());
                waiting.spawn(async move {
                    let answer = answer(request, &leases, &client).await;
                    _ = answers.send((id, answer)).await;
                });
            }
            Some((id, answer)) = answered.recv() => reply(&mut send, id, answer).await?,
            Some(_) = waiting.join_next() => {}
        }
    }
}

fn greet(hello: &Hello) -> Reply {
    if hello.oldest > VERSION || hello.newest < VERSION {
        let (oldest, newest) = (hello.oldest, hello.newest);
        let detail = format!(
            "the client supports protocol versions {oldest} to {newest}, this node supports {VERSION}; update the \
             older program"
        );
        return Err((Status::UnsupportedVersion, detail));
    }
    let node = concat!("cuda-node ", env!("CARGO_PKG_VERSION")).to_owned();
    let mut body = Vec::new();
    let features = hello.features & features::ALL;
    Welcome { version: VERSION, features, node }.encode(&mut body);
    Ok((Welcome::OPCODE, body))
}

async fn answer(request: LeaseRequest, leases: &Arc<Leases>, client: &Client) -> Reply {
    let mut out = Vec::new();
    let opcode = match request {
        LeaseRequest::Allocate(request) => {
            leases.allocate(client, request).await?.encode(&mut out);
            Allocate::OPCODE
        }
        LeaseRequest::Renew(Renew { lease, token, lease_secs }) => {
            leases.renew(client, lease, &token, lease_secs)?.encode(&mut out);
            Renew::OPCODE
        }
        LeaseRequest::Free(Free { lease, token }) => {
            leases.free(client, lease, &token)?;
            Free::OPCODE
        }
        LeaseRequest::Inventory => {
            let reply: InventoryReply = leases.inventory(client);
            reply.encode(&mut out);
            Inventory::OPCODE
        }
    };
    Ok((opcode | REPLY, out))
}

async fn reply(send: &mut SendStream, id: u64, reply: Reply) -> Result<(), End> {
    let (opcode, body) = reply.unwrap_or_else(|(status, detail)| {
        let mut body = Vec::new();
        Refused { status, detail }.encode(&mut body);
        (Refused::OPCODE, body)
    });
    Ok(send_frame(send, opcode, id, |out| out.extend_from_slice(&body)).await?)
}
