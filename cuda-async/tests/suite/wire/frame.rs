//! The encoding of calls and answers.

use cuda_async::Result;
use cuda_core::{Command, HostRegion, Notice, Reply, Request, StreamId};
use serde::{Deserialize, Serialize};

/// A message from client to node. Its number identifies the answer.
#[derive(Serialize, Deserialize)]
pub struct Call {
    pub number: u64,
    pub what: What,
}

#[derive(Serialize, Deserialize)]
pub enum What {
    /// A command, with the bytes of an upload.
    Enqueue {
        stream: StreamId,
        command: Command<'static>,
        bytes: Vec<u8>,
    },
    Request(Request),
}

/// A message from node to client.
#[derive(Serialize, Deserialize)]
pub enum Answer {
    /// The answer to the call with this number. A command has no reply.
    Done {
        number: u64,
        result: Result<Option<Reply>>,
    },
    /// The bytes of a download. They are sent before the notice of its completion.
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
