//! Operands of decoded instructions: registers, calls of device functions, barriers, and registers with a known value.

/// A register, as a byte offset into the frame of its function. Only the frame layout creates slots, so each one is in
/// bounds and aligned for its class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Slot(pub(crate) u32);

impl Slot {
    /// The absence of a register.
    pub(crate) const NONE: Self = Self(u32::MAX);
}

/// Width of a register's lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    /// One bit per lane, in one `u32`.
    Pred,
    /// `[u32; 32]`: for values of up to 32 bits.
    W32,
    /// `[u64; 32]`.
    W64,
}

/// The operands of a call.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) callee: Callee,
    /// Arguments and results, in order.
    pub(crate) arguments: Vec<Passed>,
    pub(crate) results: Vec<Passed>,
}

/// Target of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Callee {
    /// Index into `Code::functions`.
    Direct(u32),
    /// The function at the address in the register.
    Indirect(Slot),
    /// A function that the device provides.
    Builtin(Builtin),
}

/// Device functions without a PTX body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub(crate) enum Builtin {
    Vprintf,
    Assertfail,
    Malloc,
    Free,
}

/// Location of an argument or result on the caller's side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passed {
    /// Bytes of the caller's local memory: (offset in its frame, size).
    Local(u32, u32),
    /// A register.
    Register(Slot, Class),
}

impl Passed {
    pub(crate) fn bytes(self) -> u32 {
        match self {
            Self::Local(_, bytes) => bytes,
            Self::Register(_, Class::W64) => 8,
            Self::Register(..) => 4,
        }
    }
}

/// The operands of a barrier instruction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Barrier {
    /// Number of the barrier, 0 to 15, in a 32-bit register.
    pub(crate) id: Slot,
    /// Thread count in a 32-bit register. `Slot::NONE` means all threads of the block.
    pub(crate) threads: Slot,
    pub(crate) kind: BarrierKind,
    /// Whether all lanes of a warp must execute it together.
    pub(crate) aligned: bool,
    /// Whether the barrier number and the thread count are immediate, so that they are the same for all lanes.
    pub(crate) constant: bool,
}

/// The variant of a barrier instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BarrierKind {
    Sync,
    Arrive,
    /// `bar.red`: takes a predicate and returns the reduction.
    Reduce {
        how: Reduce,
        input: Slot,
        negated: bool,
        output: Slot,
    },
}

/// The reduction of `bar.red`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reduce {
    Popc,
    And,
    Or,
}

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
