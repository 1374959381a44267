//! Names for the objects of a device. The client issues them, so creating an object needs no reply.

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
