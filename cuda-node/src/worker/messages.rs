//! Messages between supervisor and worker, and reading one from a socket. They never travel over a network.

use std::{
    io::{self, Read},
    os::unix::net::UnixStream,
};

use bytes::Bytes;
use cuda_core::DeviceInfo;
use cuda_lease::{
    internals::message,
    session::SessionError,
    wire::{HEADER_BYTES, Hash, Header, Limits, Reader, TraceContext, WireError},
};

use crate::metrics::Histogram;

/// The version of these messages, which counts their changes. A node cannot use a worker of an earlier node with another one.
pub const PROTOCOL: u32 = 1;

message! {
    /// The first frame to a worker: the limits of its lease.
    Assign = 0x0700; {
        /// The limits.
        limits: Limits,
        /// The lease, for the worker's log.
        lease: u64,
        /// The trace of the lease, for the worker's log.
        trace: Option<TraceContext>,
    }

    /// A part of the bytes of a blob. The parts of a blob follow each other.
    WorkerBlob = 0x0701; {
        /// The hash of the blob.
        hash: Hash,
        /// The number of bytes of the blob.
        total: u64,
        /// The bytes of this part.
        part: Bytes,
    }

    /// Requests a [`Drained`] when all work is complete, or when it stalls (see [`SetTurn`]).
    Drain = 0x0702; {
        /// The number of the request.
        request: u64,
    }

    /// The supervisor has a connection of the client for this lane. The worker answers with [`Resumed`], and then sends
    /// the events that the client has not received.
    Resume = 0x0703; {
        /// The epoch of the session, which the client chose.
        epoch: u32,
        /// The number of the last frame that the client has received.
        received: u64,
    }

    /// The session has the turn for the device, or shall give it back.
    SetTurn = 0x0704; {
        /// `true`: work that has stalled goes on. It stalls again when none of it is on the device, and the rest waits, for
        /// example for bytes of the client. `false`: no more work goes to the device, and the rest stalls. It does not go on
        /// by itself, until there is a new command or the turn.
        has_turn: bool,
    }

    /// The answer to [`Resume`].
    Resumed = 0x0783; {
        /// The number of the last frame that the worker has received from the client.
        received: u64,
        /// The reason for a refusal, or nothing.
        error: String,
    }

    /// A module waits for its code.
    NeedCode = 0x0784; {
        /// The hash of the code.
        hash: Hash,
    }

    /// All work that arrived before the latest [`Drain`] is complete, or has stalled.
    Drained = 0x0781; {
        /// The number of the request.
        request: u64,
    }

    /// Work that has stalled may be able to go on. A worker sends it once until it gets the turn.
    WantTurn = 0x0785; {}

    /// Times of the session since the last such frame, for metrics. A worker sends at most ten a second.
    Measured = 0x0782; {
        /// From the arrival of an operation in the worker to its submission on the device.
        queue: Histogram,
        /// From the submission to the completion.
        device: Histogram,
        /// The device memory in use, in bytes.
        memory: u64,
        /// The submissions that are not known to be complete.
        backlog: u64,
        /// The host memory of the worker that is held for them, in bytes.
        backlog_bytes: u64,
    }

    /// The first frame of a worker: its device is open.
    Ready = 0x0780; {
        /// The description of the device.
        device: DeviceInfo,
        /// The features of the device, as in [`features`](cuda_lease::wire::features).
        features: u64,
        /// The sandbox of the worker, a [`SandboxReport`](crate::process::SandboxReport) in JSON.
        sandbox: String,
    }
}

/// The reason for which a socket is not read further.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Wire(#[from] WireError),
}

impl ReadError {
    /// The protocol that was broken, unless the socket ended.
    pub(super) fn broken(self) -> Option<SessionError> {
        match self {
            Self::Io(_) => None,
            Self::Wire(error) => Some(error.into()),
        }
    }
}

/// Reads the body of one frame with an opcode. Reads nothing behind it.
pub(super) fn read_message(mut socket: &UnixStream, opcode: u16) -> Result<Vec<u8>, ReadError> {
    let mut header = [0; HEADER_BYTES];
    socket.read_exact(&mut header)?;
    let header = Header::read(&mut Reader::new(&header))?;
    if header.opcode != opcode {
        return Err(WireError::UnexpectedOpcode { opcode: header.opcode }.into());
    }
    let mut body = vec![0; header.length as usize];
    socket.read_exact(&mut body)?;
    Ok(body)
}
