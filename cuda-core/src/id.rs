//! Names for what lives on a device. The client issues them, so creating something needs no reply.

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub struct $name(pub u64);
    )*};
}

ids! {
    /// A stream of one device. Never reused.
    StreamId;
    /// A device allocation. Never reused.
    AllocId;
    /// An event. Recycled by [`Device`](crate::Device): a wait holds for the record it saw.
    EventId;
    /// A loaded module. Never reused.
    ModuleId;
    /// A block of host memory. Never reused.
    HostId;
}

/// A kernel: the entry at `entry` in the list that loading the module gave back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct FunctionId {
    /// The module it is in.
    pub module: ModuleId,
    /// Index into [`ModuleInfo::entries`](crate::ModuleInfo::entries).
    pub entry: u32,
}
