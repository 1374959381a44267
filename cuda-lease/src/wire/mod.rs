//! Frames and messages: the bytes that clients, nodes and workers exchange.
//!
//! Everything here is a pure function of bytes: no clock, no network, no device. The folder uses the data types of
//! `cuda_core::protocol` and no other folder of this crate. `session` numbers the frames. `client` and
//! the crate `cuda-node` send them.
//!
//! A byte stream is a sequence of frames. A frame has an opcode, and its body is one message: a [`Command`] or an
//! [`Event`] of a session, a [`Chunk`] of bulk data, or a request or reply about leases. The chapter "The wire
//! protocol" of the book is the specification. `tests/golden/frames.txt` keeps the bytes of an example of every
//! message.

#![forbid(unsafe_code)]

mod byte_size;
mod codec;
mod command;
mod errors;
mod event;
pub mod features;
mod frame;
mod graph;
pub mod opcode;
mod requests;
mod trace;

pub use byte_size::{ByteSizeError, parse_bytes};
pub use codec::{Field, Reader, TEXT_LIMIT, Variants, WireError, Writer};
pub use command::{Chunk, Command, Hash, ImageKind, Step, TransferId};
pub use cuda_core::protocol::Status;
pub use event::Event;
pub use frame::{
    FRAME_LIMIT, Frame, FrameBuffer, Frames, HEADER_BYTES, Header, complete_frames, frames_in,
    put_frame,
};
pub use graph::{
    Blocks, CONTENT_BLOCK, CONTENT_LIMIT, Content, GRAPH_NODES, LOOP_DEPTH, decode_changes,
    decode_graph, encode_changes, encode_graph,
};
pub use requests::{
    Ack, Allocate, Attach, Attached, Confirm, DeviceEntry, Exclusivity, Free, Granted, Hello,
    Inventory, InventoryReply, Lane, LeaseEntry, LeaseRequest, Limits, PutBlob, Refused, Renew,
    Renewed, Submit, SubmitId, Submitted, VERSION, Welcome,
};
pub use trace::{HexId, TraceContext};
