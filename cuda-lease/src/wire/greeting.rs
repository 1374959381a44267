//! The first frames of a connection and of the lanes of a session.

use bytes::Bytes;

use super::{
    codec::{fields, message, variants},
    opcode,
};

/// The version of the protocol that this crate speaks.
pub const VERSION: u16 = 1;

message! {
    /// The first frame of a client on its request stream.
    Hello = opcode::HELLO; {
        /// The oldest version that the client speaks.
        oldest: u16,
        /// The newest version that the client speaks.
        newest: u16,
        /// The features of the client, one bit each ([`features`](super::features)).
        features: u64,
        /// The name and version of the client program, for logs.
        program: String,
    }

    /// The reply to [`Hello`].
    Welcome = opcode::HELLO | opcode::REPLY; {
        /// The version that both sides use from now on.
        version: u16,
        /// The features that both sides have.
        features: u64,
        /// The name of the node, for messages.
        node: String,
    }

    /// The first frame of a lane: a bidirectional stream of a session.
    Attach = opcode::ATTACH; {
        /// The lease.
        lease: u64,
        /// Its token.
        token: Bytes,
        /// The lane.
        lane: Lane,
        /// The epoch of the session, which the client chooses, not 0.
        epoch: u32,
        /// Whether the lane existed on an earlier connection. If not, the client may send frames at once.
        is_resumed: bool,
        /// The sequence number of the last frame that the client received on this lane.
        received: u64,
    }

    /// The reply to [`Attach`]. The frames of the lane follow it.
    Attached = opcode::ATTACH | opcode::REPLY; {
        /// The sequence number of the last frame that the node received on this lane.
        received: u64,
    }
}

message! {
    /// Acknowledges the frames of the opposite direction of a lane. It has no sequence number.
    Ack = opcode::ACK; {
        /// The sequence number of the last frame that was received.
        received: u64,
    }
}

/// A lane of a session. The frames of a lane are ordered in each direction; those of different lanes are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Commands from the client, events from the node.
    Commands,
    /// Bulk data.
    Bulk,
}

/// The limits of a session, which the node enforces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of submissions in flight on a stream.
    pub submissions_in_flight: u64,
    /// The maximum number of bytes of host copies in flight on a stream.
    pub host_bytes_in_flight: u64,
    /// The maximum number of bytes of device memory.
    pub memory: u64,
    /// The maximum number of streams.
    pub streams: u32,
    /// The maximum number of bytes of a module.
    pub module_bytes: u64,
}

variants! {
    Lane: u8 = "a lane" {
        0 => Commands,
        1 => Bulk,
    }
}

fields! {
    Limits { submissions_in_flight, host_bytes_in_flight, memory, streams, module_bytes }
}
