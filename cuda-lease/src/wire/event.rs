//! Events: the frames of a session from node to client.

use cuda_core::{
    Error, FunctionAttributes, MemoryInfo, Occupancy,
    protocol::{EntryInfo, Notice, ParamInfo, ParamType, PoolMemory, Reply, Status},
};
use cuda_ptx::ScalarType;

use super::{
    Field, Hash, Reader, Variants, WireError, Writer,
    codec::{fields, variants},
    opcode,
};

/// The maximum length of the parameter block of a kernel in bytes. CUDA allows 32,764.
const PARAMETER_BYTES: u32 = 32 << 10;

/// An event of a session.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A notice of the device. Behind [`Notice::Lost`] the session ends.
    Notice(Notice),
    /// The reply to a [`Request`](cuda_core::protocol::Request).
    Reply {
        /// The id of the request.
        id: u64,
        /// The reply.
        reply: Result<Reply, Error>,
    },
    /// The node does not have the bytes of a blob. The client sends them with [`PutBlob`](super::PutBlob).
    NeedBlob {
        /// The hash of the blob.
        hash: Hash,
    },
    /// The lease ends soon: the node takes no more commands, and work in flight may complete.
    Ending {
        /// The reason.
        status: Status,
        /// The time until the worker is killed, in milliseconds.
        grace_ms: u32,
        /// The reason in words.
        detail: String,
    },
}

impl From<Notice> for Event {
    fn from(notice: Notice) -> Self {
        Event::Notice(notice)
    }
}

variants! {
    Notice: u16 {
        opcode::PROGRESS => Progress { stream, accepted, complete },
        opcode::FAILED => Failed { ticket, error },
        opcode::FAULTED => Faulted { error },
        opcode::OUTPUT => Output { text },
        opcode::LOST => Lost { error },
    }

    Event: u16 {
        opcode::QUERY_REPLY => Reply { id, reply },
        opcode::NEED_BLOB => NeedBlob { hash },
        opcode::ENDING => Ending { status, grace_ms, detail },
    }

    Reply: u8 = "a reply" {
        1 => Loaded { max_threads, log, entries },
        2 => Memory(info),
        3 => Reset { lost },
        4 => GraphReady,
        5 => Occupancy(occupancy),
        6 => Pool(memory),
    }
}

fields! {
    MemoryInfo { used, free, total }
    PoolMemory { reserved, reserved_peak, release_threshold }
    Occupancy {
        blocks_per_multiprocessor,
        max_cooperative_blocks,
        max_cluster_blocks,
        suggested_block,
        kernel,
    }
    FunctionAttributes { registers, local_bytes, static_shared_bytes, max_threads }
}

impl Event {
    /// Returns the opcode of this event. 0 for a notice that the wire protocol does not have, which no client takes.
    pub fn opcode(&self) -> u16 {
        let tag = match self {
            Event::Notice(notice) => notice.tag(),
            event => event.tag(),
        };
        tag.unwrap_or(0)
    }

    /// Appends the body of this event.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let w = &mut Writer::new(out);
        match self {
            Event::Notice(notice) => notice.put_fields(w),
            event => event.put_fields(w),
        }
    }

    /// Reads an event.
    ///
    /// # Errors
    /// [`WireError::UnexpectedOpcode`] if no event has this opcode, or the error of a field.
    pub fn decode(code: u16, body: &[u8]) -> Result<Self, WireError> {
        let r = &mut Reader::new(body);
        let event = match Notice::get_fields(code, r)? {
            Some(notice) => Some(Event::Notice(notice)),
            None => Event::get_fields(code, r)?,
        };
        let event = event.ok_or(WireError::UnexpectedOpcode { opcode: code })?;
        r.clone().finish()?;
        Ok(event)
    }
}

impl Field<'_> for EntryInfo {
    fn put(&self, w: &mut Writer<'_>) {
        w.put_text(&self.name)
            .put_list(&self.params, |w, param| param.put(w))
            .put(self.max_threads);
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let (name, params, max_threads) = (r.get()?, r.get()?, r.get()?);
        Ok(Self { name, params, variables: [].into(), max_threads })
    }
}

/// A cubin states no types, so a parameter is its bytes.
impl Field<'_> for ParamInfo {
    fn put(&self, w: &mut Writer<'_>) {
        w.put_text(&self.name).put(self.offset).put(self.size).put(self.align);
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let (name, offset, size, align): (_, u32, u32, _) =
            (r.get()?, r.get()?, r.get()?, r.get()?);
        let (length, limit) = (u64::from(offset) + u64::from(size), u64::from(PARAMETER_BYTES));
        if length > limit {
            return Err(WireError::TooLong {
                what: "the parameter block of a kernel",
                length,
                limit,
            });
        }
        let ty = ParamType::Array { element: ScalarType::B8, count: size };
        Ok(Self { name, ty, offset, size, align })
    }
}
