//! Commands: the frames of a session from client to node.

use cuda_core::{
    LaunchConfig, Ticket,
    protocol::{
        AllocId, FunctionId, GraphId, Launch, ModuleId, Pattern, PoolChange, PoolId, PoolSpec,
        Region, StreamId,
    },
};

use super::{
    Content, Field, Reader, WireError, Writer,
    launch::{get_launch, get_launch_with, put_launch},
    opcode,
};

/// The id of one upload or download. The client chooses it and never reuses it in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TransferId(pub u64);

/// The BLAKE3 hash of a blob, which is the image of a module.
pub type Hash = [u8; 32];

/// The form of a module's image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ImageKind {
    /// PTX text.
    Ptx,
    /// A cubin or a fatbin.
    Cubin,
}

/// A query of a session. The reply is an [`Event::Reply`](super::Event::Reply).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Query {
    /// Waits until a module is loaded.
    Loaded(ModuleId),
    /// Waits until a graph is ready to be launched.
    GraphReady(GraphId),
    /// Asks how many blocks of a kernel run at the same time. Only with the feature
    /// [`ATTRIBUTES`](super::features::ATTRIBUTES).
    Occupancy {
        /// The kernel.
        function: FunctionId,
        /// The block, its shared memory, and the cluster.
        config: LaunchConfig,
    },
    /// Asks for the memory of the lease.
    Memory,
    /// Resets the device after a fault.
    Reset,
    /// Asks for the memory that a pool has reserved.
    PoolMemory(PoolId),
    /// Returns free memory of a pool to the system until at most so many bytes are reserved.
    TrimPool(PoolId, u64),
}

/// A command of a session. Commands are carried out in their order, and have no replies.
#[derive(Debug, Clone, PartialEq)]
pub enum Command<'a> {
    /// Creates a stream.
    CreateStream {
        /// The new stream.
        id: StreamId,
        /// The priority; 0 is the default.
        priority: i32,
    },
    /// Retires a stream when its submissions are complete.
    RetireStream {
        /// The stream.
        id: StreamId,
    },
    /// Allocates memory in the order of a stream.
    Allocate {
        /// The new allocation.
        id: AllocId,
        /// Its size.
        bytes: u64,
        /// The ticket that the allocation takes.
        at: Ticket,
    },
    /// Frees an allocation after all earlier submissions to `stream`, and after the tickets in `after`.
    Free {
        /// The allocation.
        id: AllocId,
        /// The stream whose order the free follows.
        stream: StreamId,
        /// Tickets of other streams.
        after: Vec<Ticket>,
    },
    /// Loads a module. If the node does not have its image, it sends [`Event::NeedBlob`](super::Event::NeedBlob).
    LoadModule {
        /// The new module.
        id: ModuleId,
        /// The form of its image.
        kind: ImageKind,
        /// The hash of its image.
        hash: Hash,
        /// The length of its image in bytes.
        bytes: u64,
    },
    /// Unloads a module.
    UnloadModule {
        /// The module.
        id: ModuleId,
    },
    /// Gives a variable of a loaded module an id.
    NameVariable {
        /// The new allocation.
        id: AllocId,
        /// The module.
        module: ModuleId,
        /// The name in the PTX.
        name: String,
        /// The size in bytes.
        bytes: u64,
    },
    /// Creates a graph. Its memory and modules exist until it is dropped.
    CreateGraph {
        /// The new graph.
        id: GraphId,
        /// Its nodes, as [`decode_nodes`](super::decode_nodes) reads them.
        nodes: Content<'a>,
    },
    /// Drops a graph.
    DropGraph {
        /// The graph.
        id: GraphId,
    },
    /// Creates a memory pool. A session has at most [`MAX_POOLS`](super::features::MAX_POOLS).
    CreatePool {
        /// The new pool.
        id: PoolId,
        /// Its properties.
        spec: PoolSpec,
    },
    /// Changes a memory pool.
    ChangePool {
        /// The pool.
        id: PoolId,
        /// The change.
        change: PoolChange,
    },
    /// Drops a memory pool. Its allocations were freed before.
    DropPool {
        /// The pool.
        id: PoolId,
    },
    /// Allocates memory from a pool in the order of a stream.
    AllocateIn {
        /// The pool.
        pool: PoolId,
        /// The new allocation.
        id: AllocId,
        /// Its size.
        bytes: u64,
        /// The ticket that the allocation takes.
        at: Ticket,
    },
    /// Requests an [`Event::Progress`](super::Event::Progress) as soon as a ticket is complete.
    Sync {
        /// The ticket.
        ticket: Ticket,
    },
    /// Submits one step of work to a stream.
    Submit {
        /// The position of the step.
        ticket: Ticket,
        /// Tickets of other streams that come first.
        after: Vec<Ticket>,
        /// The step.
        step: Step<'a>,
    },
    /// Sends a query.
    Query {
        /// The id that the reply names.
        id: u64,
        /// The query.
        query: Query,
    },
}

/// One step of work, as [`Work`](cuda_core::protocol::Work), with the host bytes inline or as a transfer.
#[derive(Debug, Clone, PartialEq)]
pub enum Step<'a> {
    /// Orders the stream after the tickets of the submission.
    Join,
    /// Writes bytes that travel in this frame.
    Write {
        /// Destination.
        to: Region,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// Writes bytes that travel on the bulk lane.
    WriteBulk {
        /// Destination.
        to: Region,
        /// The id of the upload.
        transfer: TransferId,
        /// Their number.
        bytes: u64,
    },
    /// Reads bytes. They travel back as chunks of the download.
    Read {
        /// Source.
        from: Region,
        /// The id of the download.
        transfer: TransferId,
        /// Their number.
        bytes: u64,
    },
    /// Copies within the device.
    Copy {
        /// Source.
        from: Region,
        /// Destination.
        to: Region,
        /// Length of the copy.
        bytes: u64,
    },
    /// Fills memory with a repeated pattern.
    Fill {
        /// Destination.
        to: Region,
        /// The value.
        pattern: Pattern,
        /// The number of repetitions.
        count: u64,
    },
    /// Writes the time of the device.
    Timestamp {
        /// Destination.
        to: Region,
    },
    /// Runs a kernel.
    Launch(Launch<'a>),
    /// Runs the nodes of a graph.
    Graph {
        /// The graph.
        graph: GraphId,
        /// The nodes whose work changes, as [`decode_changes`](super::decode_changes) reads them.
        changes: Content<'a>,
    },
}

impl<'a> Command<'a> {
    /// Returns the opcode of this command.
    pub fn opcode(&self) -> u16 {
        match self {
            Command::CreateStream { .. } => opcode::STREAM_CREATE,
            Command::RetireStream { .. } => opcode::STREAM_RETIRE,
            Command::Allocate { .. } => opcode::MEM_ALLOC,
            Command::Free { .. } => opcode::MEM_FREE,
            Command::LoadModule { .. } => opcode::MODULE_LOAD,
            Command::UnloadModule { .. } => opcode::MODULE_UNLOAD,
            Command::NameVariable { .. } => opcode::MODULE_VARIABLE,
            Command::Sync { .. } => opcode::SYNC,
            Command::Query { .. } => opcode::QUERY,
            Command::CreateGraph { .. } => opcode::GRAPH_CREATE,
            Command::DropGraph { .. } => opcode::GRAPH_DROP,
            Command::CreatePool { .. } => opcode::POOL_CREATE,
            Command::ChangePool { .. } => opcode::POOL_CHANGE,
            Command::DropPool { .. } => opcode::POOL_DROP,
            Command::AllocateIn { .. } => opcode::MEM_ALLOC_IN,
            Command::Submit { step, .. } => step.opcode(),
        }
    }

    /// Appends the body of this command.
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>) {
        let w = &mut Writer::new(out);
        match self {
            Command::CreateStream { id, priority } => w.put(*id).put(*priority),
            Command::RetireStream { id } => w.put(*id),
            Command::Allocate { id, bytes, at } => w.put(*id).put(*bytes).put(*at),
            Command::Free { id, stream, after } => {
                w.put(*id).put(*stream).put_list(after, |w, it| it.put(w))
            }
            Command::LoadModule { id, kind, hash, bytes } => {
                w.put(*id).put(*kind).put(*hash).put(*bytes)
            }
            Command::UnloadModule { id } => w.put(*id),
            Command::NameVariable { id, module, name, bytes } => {
                w.put(*id).put(*module).put_text(name).put(*bytes)
            }
            Command::Sync { ticket } => w.put(*ticket),
            Command::Query { id, query } => w.put(*id).put(*query),
            Command::CreateGraph { id, nodes } => {
                nodes.put(w.put(*id));
                w
            }
            Command::DropGraph { id } => w.put(*id),
            Command::CreatePool { id, spec } => w.put(*id).put(spec.release_threshold),
            Command::ChangePool { id, change } => w.put(*id).put(*change),
            Command::DropPool { id } => w.put(*id),
            Command::AllocateIn { pool, id, bytes, at } => {
                w.put(*pool).put(*id).put(*bytes).put(*at)
            }
            Command::Submit { ticket, after, step } => {
                w.put(*ticket).put_list(after, |w, it| it.put(w));
                step.encode(w);
                w
            }
        };
    }

    /// Reads a command.
    ///
    /// # Errors
    /// [`WireError::UnexpectedOpcode`] if no command has this opcode, or the error of a field.
    #[inline]
    pub fn decode(code: u16, body: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(body);
        let command = match code {
            opcode::STREAM_CREATE => Command::CreateStream { id: r.get()?, priority: r.get()? },
            opcode::STREAM_RETIRE => Command::RetireStream { id: r.get()? },
            opcode::MEM_ALLOC => Command::Allocate { id: r.get()?, bytes: r.get()?, at: r.get()? },
            opcode::MEM_FREE => {
                Command::Free { id: r.get()?, stream: r.get()?, after: get_tickets(&mut r)? }
            }
            opcode::MODULE_LOAD => Command::LoadModule {
                id: r.get()?,
                kind: r.get()?,
                hash: r.get()?,
                bytes: r.get()?,
            },
            opcode::MODULE_UNLOAD => Command::UnloadModule { id: r.get()? },
            opcode::MODULE_VARIABLE => Command::NameVariable {
                id: r.get()?,
                module: r.get()?,
                name: r.get()?,
                bytes: r.get()?,
            },
            opcode::SYNC => Command::Sync { ticket: r.get()? },
            opcode::QUERY => Command::Query { id: r.get()?, query: r.get()? },
            opcode::GRAPH_CREATE => {
                Command::CreateGraph { id: r.get()?, nodes: Content::get(&mut r)? }
            }
            opcode::GRAPH_DROP => Command::DropGraph { id: r.get()? },
            opcode::POOL_CREATE => {
                Command::CreatePool { id: r.get()?, spec: PoolSpec::new(r.get()?) }
            }
            opcode::POOL_CHANGE => Command::ChangePool { id: r.get()?, change: r.get()? },
            opcode::POOL_DROP => Command::DropPool { id: r.get()? },
            opcode::MEM_ALLOC_IN => {
                Command::AllocateIn { pool: r.get()?, id: r.get()?, bytes: r.get()?, at: r.get()? }
            }
            opcode::LAUNCH
            | opcode::LAUNCH_WITH
            | opcode::GRAPH_LAUNCH
            | opcode::JOIN
            | opcode::MEM_WRITE
            | opcode::MEM_WRITE_BULK
            | opcode::MEM_READ
            | opcode::MEM_COPY
            | opcode::MEM_FILL
            | opcode::TIMESTAMP => Command::Submit {
                ticket: r.get()?,
                after: get_tickets(&mut r)?,
                step: Step::decode(code, &mut r)?,
            },
            opcode => return Err(WireError::UnexpectedOpcode { opcode }),
        };
        r.finish()?;
        Ok(command)
    }
}

impl<'a> Step<'a> {
    /// Returns the opcode of the submission of this step.
    pub fn opcode(&self) -> u16 {
        match self {
            Step::Join => opcode::JOIN,
            Step::Write { .. } => opcode::MEM_WRITE,
            Step::WriteBulk { .. } => opcode::MEM_WRITE_BULK,
            Step::Read { .. } => opcode::MEM_READ,
            Step::Copy { .. } => opcode::MEM_COPY,
            Step::Fill { .. } => opcode::MEM_FILL,
            Step::Timestamp { .. } => opcode::TIMESTAMP,
            Step::Launch(launch) if launch.config.attributes.is_none() => opcode::LAUNCH,
            Step::Launch(_) => opcode::LAUNCH_WITH,
            Step::Graph { .. } => opcode::GRAPH_LAUNCH,
        }
    }

    #[inline]
    pub(super) fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Step::Join => w,
            Step::Write { to, bytes } => w.put(*to).put_bytes(bytes),
            Step::WriteBulk { to, transfer, bytes } => w.put(*to).put(*transfer).put(*bytes),
            Step::Read { from, transfer, bytes } => w.put(*from).put(*transfer).put(*bytes),
            Step::Copy { from, to, bytes } => w.put(*from).put(*to).put(*bytes),
            Step::Fill { to, pattern, count } => w.put(*to).put(*pattern).put(*count),
            Step::Timestamp { to } => w.put(*to),
            Step::Launch(launch) => {
                if !launch.config.attributes.is_none() {
                    w.put(launch.config.attributes);
                }
                put_launch(w, launch);
                w
            }
            Step::Graph { graph, changes } => {
                changes.put(w.put(*graph));
                w
            }
        };
    }

    #[inline]
    pub(super) fn decode(code: u16, r: &mut Reader<'a>) -> Result<Self, WireError> {
        Ok(match code {
            opcode::LAUNCH => Step::Launch(get_launch(r)?),
            opcode::LAUNCH_WITH => Step::Launch(get_launch_with(r)?),
            opcode::GRAPH_LAUNCH => Step::Graph { graph: r.get()?, changes: Content::get(r)? },
            opcode::JOIN => Step::Join,
            opcode::MEM_WRITE => Step::Write { to: r.get()?, bytes: r.get_bytes()? },
            opcode::MEM_WRITE_BULK => {
                Step::WriteBulk { to: r.get()?, transfer: r.get()?, bytes: r.get()? }
            }
            opcode::MEM_READ => Step::Read { from: r.get()?, transfer: r.get()?, bytes: r.get()? },
            opcode::MEM_COPY => Step::Copy { from: r.get()?, to: r.get()?, bytes: r.get()? },
            opcode::MEM_FILL => Step::Fill { to: r.get()?, pattern: r.get()?, count: r.get()? },
            opcode::TIMESTAMP => Step::Timestamp { to: r.get()? },
            opcode => return Err(WireError::UnexpectedOpcode { opcode }),
        })
    }
}

#[inline]
fn get_tickets(r: &mut Reader<'_>) -> Result<Vec<Ticket>, WireError> {
    r.get_list(16, Ticket::get)
}

impl Field for ImageKind {
    fn put(&self, w: &mut Writer<'_>) {
        w.put(match self {
            ImageKind::Ptx => 0u8,
            ImageKind::Cubin => 1,
        });
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
        match r.get::<u8>()? {
            0 => Ok(ImageKind::Ptx),
            1 => Ok(ImageKind::Cubin),
            other => Err(WireError::Undefined { what: "a module's kind", value: other.into() }),
        }
    }
}

impl Field for PoolChange {
    fn put(&self, w: &mut Writer<'_>) {
        match self {
            PoolChange::ReleaseThreshold(bytes) => w.put(1u8).put(*bytes),
            // `ResetPeak`. The client refuses other changes.
            _ => w.put(2u8),
        };
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
        match r.get::<u8>()? {
            1 => r.get().map(PoolChange::ReleaseThreshold),
            2 => Ok(PoolChange::ResetPeak),
            other => Err(WireError::Undefined { what: "a change of a pool", value: other.into() }),
        }
    }
}

impl Field for Query {
    fn put(&self, w: &mut Writer<'_>) {
        match self {
            Query::Loaded(module) => w.put(1u8).put(*module),
            Query::Memory => w.put(2u8),
            Query::Reset => w.put(3u8),
            Query::GraphReady(graph) => w.put(4u8).put(*graph),
            Query::Occupancy { function, config } => w.put(5u8).put(*function).put(*config),
            Query::PoolMemory(pool) => w.put(6u8).put(*pool),
            Query::TrimPool(pool, keep) => w.put(7u8).put(*pool).put(*keep),
        };
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
        match r.get::<u8>()? {
            1 => r.get().map(Query::Loaded),
            2 => Ok(Query::Memory),
            3 => Ok(Query::Reset),
            4 => r.get().map(Query::GraphReady),
            5 => Ok(Query::Occupancy { function: r.get()?, config: r.get()? }),
            6 => r.get().map(Query::PoolMemory),
            7 => Ok(Query::TrimPool(r.get()?, r.get()?)),
            other => Err(WireError::Undefined { what: "a query", value: other.into() }),
        }
    }
}
