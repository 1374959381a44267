//! Commands: the frames of a session from client to node, and the chunks of bulk data in both directions.
//!
//! A command is a [`Control`], a submission of [`Work`] or a [`Request`] of the protocol. Only the bytes of host
//! memory, of modules and of graphs have forms of their own here, because they may travel on other streams.

use std::borrow::Cow;

pub use cuda_core::protocol::TransferId;
use cuda_core::{
    Access, LaunchConfig, Ticket,
    protocol::{
        AllocId, Control, FunctionId, GraphId, Launch, LaunchAttributes, ModuleId, Pattern,
        PoolChange, PoolId, PoolSpec, Region, Relocation, Request, StreamId, Use, Work,
    },
};

use super::{
    Content, Field, Reader, Variants, WireError, Writer,
    codec::{fields, variants},
    opcode,
};

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

/// A command of a session. Commands are carried out in their order.
#[derive(Debug, Clone, PartialEq)]
pub enum Command<'a> {
    /// A control other than [`LoadModule`](Control::LoadModule) and [`CreateGraph`](Control::CreateGraph).
    Control(Control),
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
    /// Creates a graph. Its memory and modules exist until it is dropped.
    CreateGraph {
        /// The new graph.
        id: GraphId,
        /// Its nodes, as [`decode_graph`](super::decode_graph) reads them.
        nodes: Content<'a>,
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
    /// A request. The reply is an [`Event::Reply`](super::Event::Reply).
    Request {
        /// The id that the reply names.
        id: u64,
        /// The request.
        request: Request,
    },
}

/// One step of work, with its host bytes inline or as a transfer.
#[derive(Debug, Clone, PartialEq)]
pub enum Step<'a> {
    /// Work without host bytes: a join, a copy, a fill, a timestamp or a launch.
    Work(Work<'a>),
    /// An upload whose bytes travel in this frame.
    Write {
        /// Destination.
        to: Region,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// An upload whose bytes travel on the bulk lane.
    WriteBulk {
        /// Destination.
        to: Region,
        /// The id of the upload. The client never reuses it in a session.
        transfer: TransferId,
        /// Their number.
        bytes: u64,
    },
    /// A download. The bytes travel back as chunks.
    Read {
        /// Source.
        from: Region,
        /// The id of the download. The client never reuses it in a session.
        transfer: TransferId,
        /// Their number.
        bytes: u64,
    },
    /// A launch of a graph.
    Graph {
        /// The graph.
        graph: GraphId,
        /// The nodes whose work changes, as [`decode_changes`](super::decode_changes) reads them.
        changes: Content<'a>,
    },
}

impl From<Control> for Command<'_> {
    fn from(control: Control) -> Self {
        Command::Control(control)
    }
}

impl<'a> From<Work<'a>> for Step<'a> {
    fn from(work: Work<'a>) -> Self {
        Step::Work(work)
    }
}

variants! {
    Control: u16 {
        opcode::STREAM_CREATE => CreateStream { id, priority },
        opcode::STREAM_RETIRE => RetireStream { id },
        opcode::MEM_ALLOC => Allocate { id, bytes, at },
        opcode::MEM_ALLOC_IN => AllocateIn { pool, id, bytes, at },
        opcode::MEM_FREE => Free { id, stream, after },
        opcode::MODULE_UNLOAD => UnloadModule { id },
        opcode::MODULE_VARIABLE => NameVariable { id, module, name, bytes },
        opcode::GRAPH_DROP => DropGraph { id },
        opcode::POOL_CREATE => CreatePool { id, spec },
        opcode::POOL_CHANGE => ChangePool { id, change },
        opcode::POOL_DROP => DropPool { id },
        opcode::SYNC => Want { ticket },
        opcode::CANCEL => Cancel { stream, first, last, downloads },
    }

    Command<'a>: u16 {
        opcode::MODULE_LOAD => LoadModule { id, kind, hash, bytes },
        opcode::GRAPH_CREATE => CreateGraph { id, nodes },
        opcode::QUERY => Request { id, request },
    }

    Step<'a>: u16 {
        opcode::MEM_WRITE => Write { to, bytes },
        opcode::MEM_WRITE_BULK => WriteBulk { to, transfer, bytes },
        opcode::MEM_READ => Read { from, transfer, bytes },
        opcode::GRAPH_LAUNCH => Graph { graph, changes },
    }

    Request: u8 = "a query" {
        1 => Loaded { module },
        2 => Memory,
        3 => Reset,
        4 => GraphReady { graph },
        5 => Occupancy { function, config },
        6 => PoolMemory { pool },
        7 => TrimPool { pool, keep },
    }

    ImageKind: u8 = "a module's kind" {
        0 => Ptx,
        1 => Cubin,
    }

    PoolChange: u8 = "a change of a pool" {
        1 => ReleaseThreshold(bytes),
        2 => ResetPeak,
    }
}

impl<'a> Command<'a> {
    /// Returns the opcode of this command. `None` for one that a lease does not have.
    #[inline]
    pub fn opcode(&self) -> Option<u16> {
        match self {
            Command::Submit { step: Step::Work(work), .. } => work.tag(),
            Command::Submit { step, .. } => step.tag(),
            Command::Control(control) => control.tag(),
            command => command.tag(),
        }
    }

    /// Appends the body of this command.
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>) {
        let w = &mut Writer::new(out);
        match self {
            Command::Submit { ticket, after, step } => {
                w.put_ref(ticket).put_ref(after);
                match step {
                    Step::Work(work) => work.put_fields(w),
                    step => step.put_fields(w),
                }
            }
            Command::Control(control) => control.put_fields(w),
            command => command.put_fields(w),
        }
    }

    /// Reads a command.
    ///
    /// # Errors
    /// [`WireError::UnexpectedOpcode`] if no command has this opcode, or the error of a field.
    #[inline]
    pub fn decode(code: u16, body: &'a [u8]) -> Result<Self, WireError> {
        let r = &mut Reader::new(body);
        let command = if Work::has(code) || Step::has(code) {
            let (ticket, after) = (r.get()?, r.get()?);
            let step = match Work::get_fields(code, r)? {
                Some(work) => Some(Step::Work(work)),
                None => Step::get_fields(code, r)?,
            };
            step.map(|step| Command::Submit { ticket, after, step })
        } else if let Some(control) = Control::get_fields(code, r)? {
            Some(Command::Control(control))
        } else {
            Command::get_fields(code, r)?
        };
        let command = command.ok_or(WireError::UnexpectedOpcode { opcode: code })?;
        r.clone().finish()?;
        Ok(command)
    }
}

/// The work that travels without host bytes. A launch with attributes has an opcode of its own, and they come first.
impl<'a> Variants<'a> for Work<'a> {
    type Tag = u16;

    #[inline]
    fn has(code: u16) -> bool {
        matches!(
            code,
            opcode::LAUNCH
                | opcode::LAUNCH_WITH
                | opcode::JOIN
                | opcode::MEM_COPY
                | opcode::MEM_FILL
                | opcode::TIMESTAMP
        )
    }

    #[inline]
    fn tag(&self) -> Option<u16> {
        Some(match self {
            Work::Launch(launch) if launch.config.attributes.is_none() => opcode::LAUNCH,
            Work::Launch(_) => opcode::LAUNCH_WITH,
            Work::Join => opcode::JOIN,
            Work::Copy { .. } => opcode::MEM_COPY,
            Work::Fill { .. } => opcode::MEM_FILL,
            Work::Timestamp { .. } => opcode::TIMESTAMP,
            _ => return None,
        })
    }

    #[inline]
    fn put_fields(&self, w: &mut Writer<'_>) {
        match self {
            Work::Launch(Launch { function, config, params, relocations, variables }) => {
                if !config.attributes.is_none() {
                    w.put(config.attributes);
                }
                w.put_ref(function).put(config.grid).put(config.block).put(config.shared_bytes);
                w.put_bytes(params);
                w.put_list(relocations, |w, relocation| relocation.put(w))
                    .put_list(variables, |w, variable| variable.put(w));
            }
            Work::Copy { from, to, bytes } => _ = w.put_ref(from).put_ref(to).put_ref(bytes),
            Work::Fill { to, pattern, count } => _ = w.put_ref(to).put_ref(pattern).put_ref(count),
            Work::Timestamp { to } => _ = w.put_ref(to),
            _ => {}
        }
    }

    #[inline]
    fn get_fields(code: u16, r: &mut Reader<'a>) -> Result<Option<Self>, WireError> {
        Ok(Some(match code {
            opcode::LAUNCH | opcode::LAUNCH_WITH => {
                let none = LaunchAttributes::default();
                let attributes = if code == opcode::LAUNCH { none } else { r.get()? };
                Work::Launch(Launch {
                    function: r.get()?,
                    config: LaunchConfig { attributes, ..get_shape(r)? },
                    params: Cow::Borrowed(r.get_bytes()?),
                    relocations: r.get::<Vec<_>>()?.into(),
                    variables: r.get::<Vec<_>>()?.into(),
                })
            }
            opcode::JOIN => Work::Join,
            opcode::MEM_COPY => Work::Copy { from: r.get()?, to: r.get()?, bytes: r.get()? },
            opcode::MEM_FILL => Work::Fill { to: r.get()?, pattern: r.get()?, count: r.get()? },
            opcode::TIMESTAMP => Work::Timestamp { to: r.get()? },
            _ => return Ok(None),
        }))
    }
}

#[inline]
fn get_shape(r: &mut Reader<'_>) -> Result<LaunchConfig, WireError> {
    let ([gx, gy, gz], [x, y, z]): ([u32; 3], [u32; 3]) = (r.get()?, r.get()?);
    Ok(LaunchConfig::new(gx, x).grid(gx, gy, gz).block(x, y, z).shared_bytes(r.get()?))
}

fields! {
    StreamId [8] { 0 }
    AllocId [8] { 0 }
    ModuleId [8] { 0 }
    GraphId [8] { 0 }
    PoolId [8] { 0 }
    TransferId [8] { 0 }
    FunctionId [12] { module, entry }
    Ticket [16] { stream, number }
    Region [16] { alloc, offset }
    Relocation [25] { at, region, bytes, access }
}

/// The shape of a launch, and its attributes.
impl Field<'_> for LaunchConfig {
    fn put(&self, w: &mut Writer<'_>) {
        w.put(self.grid).put(self.block).put(self.shared_bytes).put(self.attributes);
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let config = get_shape(r)?;
        Ok(Self { attributes: r.get()?, ..config })
    }
}

/// The cluster in x, y and z, and the flags: a byte each.
impl Field<'_> for LaunchAttributes {
    fn put(&self, w: &mut Writer<'_>) {
        w.put_raw(&self.to_bytes());
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let bytes: [u8; 4] = r.get()?;
        let undefined = WireError::Undefined { what: "launch attributes", value: bytes[3].into() };
        Self::from_bytes(bytes).ok_or(undefined)
    }
}

impl Field<'_> for Access {
    fn put(&self, w: &mut Writer<'_>) {
        w.put(*self == Access::Write);
    }

    #[inline]
    fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(if r.get()? { Access::Write } else { Access::Read })
    }
}

impl Field<'_> for Use {
    const LEAST: usize = 25;

    fn put(&self, w: &mut Writer<'_>) {
        w.put(self.base).put(self.range.start).put(self.range.end).put(self.access);
    }

    #[inline]
    fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self { base: r.get()?, range: r.get()?..r.get()?, access: r.get()? })
    }
}

impl Field<'_> for Pattern {
    fn put(&self, w: &mut Writer<'_>) {
        let value = match self {
            Pattern::Byte(value) => u32::from(*value),
            Pattern::Half(value) => u32::from(*value),
            Pattern::Word(value) => *value,
        };
        w.put(self.bytes() as u8).put(value);
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let (bytes, value) = (r.get::<u8>()?, r.get::<u32>()?);
        let too_large = |_| WireError::Undefined { what: "a pattern", value: value.into() };
        match bytes {
            1 => value.try_into().map(Pattern::Byte).map_err(too_large),
            2 => value.try_into().map(Pattern::Half).map_err(too_large),
            4 => Ok(Pattern::Word(value)),
            other => Err(WireError::Undefined { what: "a pattern's size", value: other.into() }),
        }
    }
}

/// The pools of a node are ordinary ones.
impl Field<'_> for PoolSpec {
    fn put(&self, w: &mut Writer<'_>) {
        w.put(self.release_threshold);
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
        r.get().map(Self::new)
    }
}

/// A part of the bytes of an upload or download. The chunks of one transfer are sent in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// The upload or download.
    pub transfer: TransferId,
    /// The offset of the chunk in the transfer, in bytes.
    pub offset: u64,
    /// The bytes: the rest of the frame.
    pub bytes: &'a [u8],
}

impl<'a> Chunk<'a> {
    /// The opcode of this message.
    pub const OPCODE: u16 = opcode::CHUNK;

    /// The maximum number of bytes in a chunk.
    pub const LIMIT: usize = 256 << 10;

    /// Appends the body of this message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        Writer::new(out).put(self.transfer).put(self.offset).put_raw(self.bytes);
    }

    /// Reads a body of this message.
    ///
    /// # Errors
    /// An error if the bytes end, or a chunk has more than [`Chunk::LIMIT`] bytes.
    pub fn decode(body: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(body);
        let (transfer, offset, bytes) = (r.get()?, r.get()?, r.rest());
        if bytes.len() > Self::LIMIT {
            let (length, limit) = (bytes.len() as u64, Self::LIMIT as u64);
            return Err(WireError::TooLong { what: "a chunk", length, limit });
        }
        Ok(Self { transfer, offset, bytes })
    }
}
