//! Names for the objects of a device. The client issues them, so creating an object needs no reply.

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u64);
    )*};
}

ids! {
    /// A stream of one device. Never reused.
    StreamId;
    /// A device allocation. Never reused.
    AllocId;
    /// A loaded module. Never reused.
    ModuleId;
    /// A block of host memory. Never reused in a process.
    HostId;
    /// A copy between two devices. Never reused in a process.
    TransferId;
}

/// A kernel: the entry at index `entry` in the list of the module's PTX.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FunctionId {
    /// Its module.
    pub module: ModuleId,
    /// Index into the module's entries, in the order of the text.
    pub entry: u32,
}
