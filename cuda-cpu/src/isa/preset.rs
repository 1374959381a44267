//! The description of registers with a known value at the start of a function.

use super::slot::{Class, Slot};

/// A register with a known value at the start of a function.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Preset {
    pub(crate) slot: Slot,
    pub(crate) class: Class,
    pub(crate) value: PresetValue,
}

/// The value of a [`Preset`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum PresetValue {
    Const(u64),
    Special(Special),
    /// Offset of a local variable in the frame's local memory. The value is the variable's offset in local memory.
    Local(u32),
    /// Start of dynamic shared memory, as an offset in shared memory.
    DynamicShared,
    /// Bytes of the kernel's parameter block.
    Param {
        at: u32,
        bytes: u8,
        signed: bool,
    },
}

/// A special register whose value does not change while a block runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Special {
    Tid(u8),
    Ntid(u8),
    Ctaid(u8),
    Nctaid(u8),
    LaneId,
    WarpId,
    NWarpId,
    SmId,
    NSmId,
    GridId,
    LaneMaskEq,
    LaneMaskLt,
    LaneMaskLe,
    LaneMaskGt,
    LaneMaskGe,
    DynamicSharedSize,
    TotalSharedSize,
    /// `%cluster_ctaid`.
    ClusterCtaid(u8),
    /// `%cluster_nctaid`.
    ClusterNctaid(u8),
    /// `%clusterid`.
    ClusterId(u8),
    /// `%nclusterid`.
    NClusterId(u8),
    /// `%cluster_ctarank`.
    ClusterRank,
    /// `%cluster_nctarank`.
    ClusterSize,
    IsExplicitCluster,
    /// A half of the address of the workspace of a cooperative launch, which is 0 in other launches.
    Workspace {
        high: bool,
    },
}
