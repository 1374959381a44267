//! Events: the frames of a session from node to client.

use cuda_core::{
    Error, FunctionAttributes, MemoryInfo, Occupancy, Ticket,
    protocol::{EntryInfo, ParamInfo, ParamType, PoolMemory, Status, StreamId},
};
use cuda_ptx::ScalarType;

use super::{Field, Hash, Reader, WireError, Writer, opcode};

/// The maximum length of the parameter block of a kernel in bytes. CUDA allows 32,764.
const PARAMETER_BYTES: u32 = 32 << 10;

/// An event of a session.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A stream has progressed. Cumulative.
    Progress {
        /// The stream.
        stream: StreamId,
        /// The number of the last accepted submission.
        accepted: u64,
        /// The number of the last complete submission.
        complete: u64,
    },
    /// A submission failed or was skipped.
    Failed {
        /// The submission.
        ticket: Ticket,
        /// The root cause.
        error: Error,
    },
    /// A kernel faulted.
    Faulted {
        /// The fault.
        error: Error,
    },
    /// A kernel printed text.
    Output {
        /// The text.
        text: String,
    },
    /// The reply to a [`Query`](super::Query).
    Reply {
        /// The id of the query.
        id: u64,
        /// The reply.
        reply: Result<QueryReply, Error>,
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
    /// The device is lost, and the session ends.
    Lost {
        /// The cause.
        error: Error,
    },
}

/// The reply to a [`Query`](super::Query).
#[derive(Debug, Clone, PartialEq)]
pub enum QueryReply {
    /// The module is loaded.
    Loaded {
        /// The maximum number of threads per block of each kernel.
        max_threads: Vec<u32>,
        /// The output of the compiler.
        log: String,
        /// The kernels of a cubin. Empty for PTX.
        entries: Vec<EntryInfo>,
    },
    /// The graph is ready.
    GraphReady,
    /// The blocks of a kernel that run at the same time.
    Occupancy(Occupancy),
    /// The memory of the lease.
    Memory(MemoryInfo),
    /// The memory of a pool.
    Pool(PoolMemory),
    /// The device was reset.
    Reset {
        /// The fault that had lost the device.
        lost: Option<Error>,
    },
}

impl Event {
    /// Returns the opcode of this event.
    pub fn opcode(&self) -> u16 {
        match self {
            Event::Progress { .. } => opcode::PROGRESS,
            Event::Failed { .. } => opcode::FAILED,
            Event::Faulted { .. } => opcode::FAULTED,
            Event::Output { .. } => opcode::OUTPUT,
            Event::Reply { .. } => opcode::QUERY_REPLY,
            Event::NeedBlob { .. } => opcode::NEED_BLOB,
            Event::Ending { .. } => opcode::ENDING,
            Event::Lost { .. } => opcode::LOST,
        }
    }

    /// Appends the body of this event.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let w = &mut Writer::new(out);
        match self {
            Event::Progress { stream, accepted, complete } => {
                w.put(*stream).put(*accepted).put(*complete)
            }
            Event::Failed { ticket, error } => w.put(*ticket).put_ref(error),
            Event::Faulted { error } | Event::Lost { error } => w.put_ref(error),
            Event::Output { text } => w.put_text(text),
            Event::Reply { id, reply } => {
                w.put(*id).put(reply.is_ok());
                match reply {
                    Ok(reply) => w.put_ref(reply),
                    Err(error) => w.put_ref(error),
                }
            }
            Event::NeedBlob { hash } => w.put(*hash),
            Event::Ending { status, grace_ms, detail } => {
                w.put(*status).put(*grace_ms).put_text(detail)
            }
        };
    }

    /// Reads an event.
    ///
    /// # Errors
    /// [`WireError::UnexpectedOpcode`] if no event has this opcode, or the error of a field.
    pub fn decode(code: u16, body: &[u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(body);
        let event = match code {
            opcode::PROGRESS => {
                Event::Progress { stream: r.get()?, accepted: r.get()?, complete: r.get()? }
            }
            opcode::FAILED => Event::Failed { ticket: r.get()?, error: r.get()? },
            opcode::FAULTED => Event::Faulted { error: r.get()? },
            opcode::OUTPUT => Event::Output { text: r.get()? },
            opcode::QUERY_REPLY => Event::Reply {
                id: r.get()?,
                reply: if r.get()? { Ok(r.get()?) } else { Err(r.get()?) },
            },
            opcode::NEED_BLOB => Event::NeedBlob { hash: r.get()? },
            opcode::ENDING => {
                Event::Ending { status: r.get()?, grace_ms: r.get()?, detail: r.get()? }
            }
            opcode::LOST => Event::Lost { error: r.get()? },
            opcode => return Err(WireError::UnexpectedOpcode { opcode }),
        };
        r.finish()?;
        Ok(event)
    }
}

impl Field for QueryReply {
    fn put(&self, w: &mut Writer<'_>) {
        match self {
            QueryReply::Loaded { max_threads, log, entries } => {
                w.put(1u8).put_ref(max_threads).put_text(log);
                w.put_list(entries, |w, it| it.put(w))
            }
            QueryReply::Memory(MemoryInfo { used, free, total }) => {
                w.put(2u8).put(*used).put(*free).put(*total)
            }
            QueryReply::Reset { lost } => w.put(3u8).put_ref(lost),
            QueryReply::GraphReady => w.put(4u8),
            QueryReply::Occupancy(occupancy) => w.put(5u8).put(*occupancy),
            QueryReply::Pool(PoolMemory { reserved, reserved_peak, release_threshold }) => {
                w.put(6u8).put(*reserved).put(*reserved_peak).put(*release_threshold)
            }
        };
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match r.get::<u8>()? {
            1 => {
                let (max_threads, log) = (r.get_list(4, u32::get)?, r.get()?);
                QueryReply::Loaded { max_threads, log, entries: r.get()? }
            }
            2 => {
                let (used, free, total) = (r.get()?, r.get()?, r.get()?);
                QueryReply::Memory(MemoryInfo { used, free, total })
            }
            3 => QueryReply::Reset { lost: r.get()? },
            4 => QueryReply::GraphReady,
            5 => QueryReply::Occupancy(r.get()?),
            6 => {
                let (reserved, reserved_peak, release_threshold) = (r.get()?, r.get()?, r.get()?);
                QueryReply::Pool(PoolMemory { reserved, reserved_peak, release_threshold })
            }
            other => return Err(WireError::Undefined { what: "a reply", value: other.into() }),
        })
    }
}

impl Field for Occupancy {
    fn put(&self, w: &mut Writer<'_>) {
        w.put(self.blocks_per_multiprocessor).put(self.max_cooperative_blocks);
        w.put(self.max_cluster_blocks).put(self.suggested_block);
        let FunctionAttributes { registers, local_bytes, static_shared_bytes, max_threads } =
            self.kernel;
        w.put(registers).put(local_bytes).put(static_shared_bytes).put(max_threads);
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self {
            blocks_per_multiprocessor: r.get()?,
            max_cooperative_blocks: r.get()?,
            max_cluster_blocks: r.get()?,
            suggested_block: r.get()?,
            kernel: FunctionAttributes {
                registers: r.get()?,
                local_bytes: r.get()?,
                static_shared_bytes: r.get()?,
                max_threads: r.get()?,
            },
        })
    }
}

impl Field for EntryInfo {
    fn put(&self, w: &mut Writer<'_>) {
        w.put_text(&self.name).put_list(&self.params, |w, it| it.put(w)).put(self.max_threads);
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let (name, params, max_threads) = (r.get()?, r.get()?, r.get()?);
        Ok(Self { name, params, variables: [].into(), max_threads })
    }
}

/// A cubin states no types, so a parameter is its bytes.
impl Field for ParamInfo {
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
