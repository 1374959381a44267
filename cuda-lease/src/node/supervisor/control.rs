//! The control stream of a connection.

use cuda_core::protocol::Status;
use quinn::SendStream;

use super::{
    leases::{Leases, Refusal},
    streams::{End, FrameStream, send_frame},
};
use crate::wire::{
    Allocate, Free, Hello, Refused, Renew, VERSION, Welcome, WireError, opcode::REPLY,
};

/// A reply: its opcode and its body.
type Reply = Result<(u16, Vec<u8>), Refusal>;

/// Greets the client, then answers its requests.
pub(super) async fn serve(
    leases: &Leases,
    hello: Hello,
    id: u64,
    mut send: SendStream,
    mut receive: FrameStream,
) -> Result<(), End> {
    let welcome = greet(&hello);
    reply(&mut send, id, welcome).await?;
    loop {
        let (id, opcode, body) = receive
            .next(|frame| Ok((frame.header.sequence, frame.header.opcode, frame.body.to_vec())))
            .await?;
        let answer = answer(leases, opcode, &body)?;
        reply(&mut send, id, answer).await?;
    }
}

fn greet(hello: &Hello) -> Reply {
    if hello.oldest > VERSION || hello.newest < VERSION {
        let (oldest, newest) = (hello.oldest, hello.newest);
        let detail = format!(
            "the client speaks versions {oldest} to {newest} of the protocol, and this node {VERSION}; update the older one"
        );
        return Err((Status::UnsupportedVersion, detail));
    }
    let node = concat!("cuda-node ", env!("CARGO_PKG_VERSION")).to_owned();
    let mut body = Vec::new();
    Welcome { version: VERSION, features: 0, node }.encode(&mut body);
    Ok((Welcome::OPCODE, body))
}

fn answer(leases: &Leases, opcode: u16, body: &[u8]) -> Result<Reply, WireError> {
    let mut out = Vec::new();
    Ok(match opcode {
        Allocate::OPCODE => leases.allocate(&Allocate::decode(body)?).map(|granted| {
            granted.encode(&mut out);
            (opcode | REPLY, out)
        }),
        Renew::OPCODE => {
            let request = Renew::decode(body)?;
            leases.renew(request.lease, request.lease_secs).map(|renewed| {
                renewed.encode(&mut out);
                (opcode | REPLY, out)
            })
        }
        Free::OPCODE => leases.free(Free::decode(body)?.lease).map(|()| (opcode | REPLY, out)),
        opcode => return Err(WireError::UnexpectedOpcode { opcode }),
    })
}

async fn reply(send: &mut SendStream, id: u64, reply: Reply) -> Result<(), End> {
    match reply {
        Ok((opcode, body)) => {
            send_frame(send, opcode, id, |out| out.extend_from_slice(&body)).await
        }
        Err((status, detail)) => {
            let refused = Refused { status, detail };
            send_frame(send, Refused::OPCODE, id, |out| refused.encode(out)).await
        }
    }
}
