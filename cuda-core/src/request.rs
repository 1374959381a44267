//! What needs an answer. A request may take a hundred milliseconds: never made inside a poll, but for
//! [`Request::CreateStream`] and [`Request::Query`].

use crate::{ModuleId, StreamId};

/// A question to a device, answered by a [`Reply`].
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Request {
    /// Makes a stream; answered by [`Reply::Done`].
    CreateStream {
        /// The new stream's name.
        id: StreamId,
        /// 0 is the default; lower numbers run first where the device knows priorities.
        priority: i32,
    },
    /// Destroys a stream that has nothing left to run; answered by [`Reply::Done`].
    DestroyStream {
        /// Which.
        id: StreamId,
    },
    /// Asks, without blocking, whether everything enqueued on the stream has run; answered by
    /// [`Reply::Idle`], or by the error that the stream met.
    Query {
        /// Which.
        stream: StreamId,
    },
    /// Blocks until everything enqueued on the stream has run; answered by [`Reply::Done`], or by the
    /// error that the stream met.
    Synchronize {
        /// Which.
        stream: StreamId,
    },
    /// Loads a module; answered by [`Reply::Module`].
    LoadModule {
        /// The new module's name.
        id: ModuleId,
        /// What to load.
        image: ModuleImage,
    },
    /// Unloads a module that no launch uses any more; answered by [`Reply::Done`].
    UnloadModule {
        /// Which.
        id: ModuleId,
    },
    /// Asks for the memory of the device; answered by [`Reply::Memory`].
    Memory,
    /// Makes it possible to copy to the memory of another device; answered by [`Reply::Done`], or by
    /// [`Error::Unsupported`](crate::Error::Unsupported) where that cannot be had.
    ReachPeer {
        /// The other device's address.
        address: String,
    },
    /// Brings a device back after a fault, where that can be done; answered by [`Reply::Reset`] when all that
    /// was enqueued before has run or been dropped.
    Reset,
}

/// The answer to a [`Request`].
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Reply {
    /// It is done.
    Done,
    /// The device is as new.
    Reset {
        /// What it was lost by, if it was: then what had not run was dropped.
        lost: Option<crate::Error>,
    },
    /// Whether the stream has run everything.
    Idle(bool),
    /// The module is loaded.
    Module(ModuleInfo),
    /// The memory of the device.
    Memory(MemoryInfo),
}

/// Code for a device.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum ModuleImage {
    /// PTX text.
    Ptx(String),
}

/// What loading a module told.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ModuleInfo {
    /// The kernels; a [`FunctionId`](crate::FunctionId) is an index into this.
    pub entries: Vec<EntryInfo>,
    /// What the compiler said, often nothing.
    pub log: String,
}

/// A kernel of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct EntryInfo {
    /// Its name, mangled where the compiler mangled it.
    pub name: String,
    /// Its parameters in order.
    pub params: Vec<ParamInfo>,
    /// The largest block it can be launched with on this device.
    pub max_threads: u32,
}

impl EntryInfo {
    /// Bytes of its parameter block.
    pub fn param_bytes(&self) -> u32 {
        self.params.last().map_or(0, |last| last.offset + last.size)
    }
}

/// A parameter of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ParamInfo {
    /// The name in the PTX.
    pub name: String,
    /// The type in the PTX, such as `u64`, or `b8[24]` for a struct.
    pub ty: String,
    /// Bytes from the start of the parameter block.
    pub offset: u32,
    /// Size in bytes.
    pub size: u32,
    /// Alignment in bytes.
    pub align: u32,
}

/// Device memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MemoryInfo {
    /// Held by live allocations of this device handle.
    pub used: u64,
    /// Free on the device, by its own count.
    pub free: u64,
    /// All of it.
    pub total: u64,
}
