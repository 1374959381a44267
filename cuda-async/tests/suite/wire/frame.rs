//! What the bytes say.

use cuda_async::Result;
use cuda_core::{Command, HostRegion, Notice, Reply, Request, StreamId};
use serde::{Deserialize, Serialize};

/// From client to node; each is answered with its number.
#[derive(Serialize, Deserialize)]
pub struct Call {
    pub number: u64,
    pub what: What,
}

#[derive(Serialize, Deserialize)]
pub enum What {
    /// A command; an upload's bytes come with it.
    Enqueue {
        stream: StreamId,
        command: Command<'static>,
        bytes: Vec<u8>,
    },
    Request(Request),
}

/// From node to client.
#[derive(Serialize, Deserialize)]
pub enum Answer {
    /// To the call with this number; a command has no reply.
    Done {
        number: u64,
        result: Result<Option<Reply>>,
    },
    /// A download's bytes. Sent before whatever tells that it has landed.
    Landed {
        to: HostRegion,
        bytes: Vec<u8>,
    },
    Notice(Notice),
}

pub fn encode<T: Serialize>(frame: &T) -> Vec<u8> {
    postcard::to_stdvec(frame).unwrap()
}

pub fn decode<T: for<'a> Deserialize<'a>>(bytes: &[u8]) -> T {
    postcard::from_bytes(bytes).unwrap()
}
