//! Names for the objects of a device and for its submissions. The client issues ids, so creating an object needs no
//! reply.

use std::sync::Arc;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u64);
    )*};
}

ids! {
    /// The id of a stream of one device. Never reused: each new stream has a larger id than those before it.
    StreamId;
    /// The id of a device allocation. Never reused.
    AllocId;
    /// The id of a loaded module. Never reused.
    ModuleId;
    /// The id of a graph. Never reused.
    GraphId;
    /// The id of a block of host memory. Never reused in a process.
    HostId;
    /// The id of a copy between two devices. Never reused in a process.
    TransferId;
    /// The id of a memory pool of one device. Never reused. [`PoolId::DEFAULT`] is the pool that every device has.
    PoolId;
}

impl PoolId {
    /// The default pool of a device, from which [`Control::Allocate`](super::Control::Allocate) allocates. It is never
    /// created and never dropped.
    pub const DEFAULT: Self = Self(0);
}

/// The id of a kernel: its module, and its index in the module's PTX.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FunctionId {
    /// Its module.
    pub module: ModuleId,
    /// Index into the module's entries, in the order of the text.
    pub entry: u32,
}

/// The position of a submission: its stream and its number.
///
/// A ticket is complete when every submission of its stream up to it has run or was skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The stream.
    pub stream: StreamId,
    /// The number of the submission on its stream, from 1.
    pub number: u64,
}

/// The effect of a submission on an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// The submission reads the operand. Several reads may run at the same time.
    Read,
    /// The submission writes the operand, and may read it.
    Write,
}

/// The name of a graph node, an operation, a kernel or a memory pool, for messages and drawings. The name of a graph
/// node consists of the names of the operations that it belongs to, outermost first, separated by `/`. A name has no
/// effect on the work.
pub type Name = Arc<str>;
