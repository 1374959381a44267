//! What is enqueued on a stream.
//!
//! Plain data: ids that the client issued and bytes. A CUDA stream turns a command into one driver
//! call, the CPU device's stream is a queue of them, the wire carries them.

use std::borrow::Cow;

use crate::{AllocId, EventId, FunctionId, HostId, LaunchConfig};

/// One step of work on a stream. Commands of one stream run in the order in which they were enqueued.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Command<'a> {
    /// Allocates `bytes` bytes, usable by what is enqueued behind it. Contents are unspecified.
    Alloc {
        /// The new allocation's name.
        id: AllocId,
        /// Its size, at least 1.
        bytes: u64,
    },
    /// Frees an allocation once everything enqueued before it has run.
    Free {
        /// Which.
        id: AllocId,
    },
    /// Copies host memory to the device.
    Upload {
        /// Where the bytes are; they do not change until the command has run.
        from: HostRegion,
        /// Where they go.
        to: Region,
        /// How many.
        bytes: u64,
    },
    /// Copies device memory to the host.
    Download {
        /// Where the bytes are.
        from: Region,
        /// Where they go; nobody reads it until the command has run.
        to: HostRegion,
        /// How many.
        bytes: u64,
    },
    /// Copies within the device. The regions do not overlap.
    Copy {
        /// Source.
        from: Region,
        /// Destination.
        to: Region,
        /// How many bytes.
        bytes: u64,
    },
    /// Copies to memory of another device, which the caller keeps for itself until the command has run.
    CopyToPeer {
        /// Source.
        from: Region,
        /// Destination.
        to: PeerRegion,
        /// How many bytes.
        bytes: u64,
    },
    /// Writes `pattern` `count` times, one after the other.
    Fill {
        /// Where the first one goes, aligned to the pattern's size.
        to: Region,
        /// What is written.
        pattern: Pattern,
        /// How often.
        count: u64,
    },
    /// Runs a kernel.
    Launch(Launch<'a>),
    /// Marks this point of the stream for [`Command::Wait`]s that are enqueued from now on.
    Record {
        /// The mark's name; recording again moves it.
        event: EventId,
    },
    /// Holds this stream until the latest recording of `event` has been reached; nothing if there
    /// is none.
    Wait {
        /// Which mark.
        event: EventId,
    },
    /// Asks for a [`Notice`](crate::Notice) once everything enqueued before it has run.
    Notify {
        /// Comes back with the notice.
        token: u64,
    },
}

impl Command<'_> {
    /// The same command without borrows, for queues and the wire.
    pub fn into_owned(self) -> Command<'static> {
        match self {
            Command::Alloc { id, bytes } => Command::Alloc { id, bytes },
            Command::Free { id } => Command::Free { id },
            Command::Upload { from, to, bytes } => Command::Upload { from, to, bytes },
            Command::Download { from, to, bytes } => Command::Download { from, to, bytes },
            Command::Copy { from, to, bytes } => Command::Copy { from, to, bytes },
            Command::CopyToPeer { from, to, bytes } => Command::CopyToPeer { from, to, bytes },
            Command::Fill { to, pattern, count } => Command::Fill { to, pattern, count },
            Command::Launch(launch) => Command::Launch(launch.into_owned()),
            Command::Record { event } => Command::Record { event },
            Command::Wait { event } => Command::Wait { event },
            Command::Notify { token } => Command::Notify { token },
        }
    }
}

/// A place in a device allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Region {
    /// The allocation.
    pub alloc: AllocId,
    /// Bytes from its start.
    pub offset: u64,
}

/// A place in the memory of another device of the same kind and process, as
/// [`Backend::peer_region`](crate::Backend::peer_region) gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PeerRegion {
    /// The device's number.
    pub ordinal: u32,
    /// Where in its memory.
    pub address: u64,
}

/// A place in a block of host memory. The block itself stands beside the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct HostRegion {
    /// The block.
    pub block: HostId,
    /// Bytes from its start.
    pub offset: u64,
}

/// What [`Command::Fill`] writes: one, two or four bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Pattern {
    /// One byte.
    Byte(u8),
    /// Two bytes, in native order.
    Half(u16),
    /// Four bytes, in native order.
    Word(u32),
}

impl Pattern {
    /// Its size in bytes.
    pub const fn bytes(self) -> u64 {
        match self {
            Pattern::Byte(_) => 1,
            Pattern::Half(_) => 2,
            Pattern::Word(_) => 4,
        }
    }
}

/// A kernel launch.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Launch<'a> {
    /// Which kernel.
    pub function: FunctionId,
    /// Grid, block, dynamic shared memory.
    pub config: LaunchConfig,
    /// The parameter block as the kernel sees it: each parameter at its own alignment.
    pub params: Cow<'a, [u8]>,
    /// Device addresses to be written into `params` where the launch runs.
    pub relocations: Cow<'a, [Relocation]>,
}

impl Launch<'_> {
    fn into_owned(self) -> Launch<'static> {
        Launch {
            function: self.function,
            config: self.config,
            params: Cow::Owned(self.params.into_owned()),
            relocations: Cow::Owned(self.relocations.into_owned()),
        }
    }
}

/// "At byte `at` of the parameters stands the address of `region`", eight bytes wide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Relocation {
    /// Byte offset into the parameter block.
    pub at: u32,
    /// Whose address.
    pub region: Region,
}
