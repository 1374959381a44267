//! A decoded program. It is immutable, and workers share it.

use super::address::{FUNCTION_STEP, FUNCTION_WINDOW};
use super::bulk::Update;
use super::observe::Table;
use super::op::{Class, Op, Slot};
use super::sources::Sources;
use super::variables::Variables;

/// Decoded instructions of all functions, in sequence, and their tables.
#[derive(Debug, Default)]
pub(crate) struct Code {
    pub(crate) ops: Vec<Op>,
    /// PTX line of each op.
    pub(crate) lines: Vec<u32>,
    pub(crate) extras: Vec<Slot>,
    pub(crate) controls: Vec<Control>,
    /// Targets of the `brx.idx` instructions. Instructions with the same target list share a table.
    pub(crate) jump_tables: Vec<Vec<u32>>,
    pub(crate) functions: Vec<FunctionCode>,
    /// Program counters at which threads can be suspended, in ascending order.
    pub(crate) suspensions: Vec<u32>,
    /// For each asynchronous reduction, its function and the size of its operand in bytes.
    pub(crate) updates: Vec<(Update, u32)>,
    /// Number of allocation caches that the memory instructions use.
    pub(crate) caches: u32,
    /// Metadata of each op for observers.
    pub(crate) table: Table,
    /// Source lines of the ops, for faults.
    pub(crate) sources: Sources,
    pub(crate) variables: Variables,
}

impl Code {
    /// Returns the kind of instruction that an op stands for. It is empty for helper ops.
    pub(crate) fn instruction(&self, pc: u32) -> &str {
        let kind = self.table.kind(pc).and_then(|kind| self.table.names().get(kind as usize));
        kind.map_or("", String::as_str)
    }

    /// Returns the index of the function at the address of an indirect call.
    pub(crate) fn function_at(&self, address: u64) -> Option<u32> {
        let at = address.checked_sub(FUNCTION_WINDOW)?;
        let index = at / FUNCTION_STEP;
        let known = at % FUNCTION_STEP == 0 && index < self.functions.len() as u64;
        known.then_some(index as u32)
    }
}

/// The parts of a function that a call needs.
#[derive(Debug, Default, Clone)]
pub(crate) struct FunctionCode {
    pub(crate) name: String,
    /// Whether the function is a kernel, which is launched and not called.
    pub(crate) is_kernel: bool,
    /// Index of the first op. `None` if no entry reaches the function.
    pub(crate) entry: Option<u32>,
    /// Size of a frame in bytes.
    pub(crate) frame_bytes: u32,
    /// Bytes of local memory of one lane.
    pub(crate) local_bytes: u32,
    /// A 32-bit register with the end of each lane's local memory. Only functions with `alloca` have it.
    pub(crate) stack_top: Option<Slot>,
    pub(crate) presets: Vec<Preset>,
    /// The presets that are constant for a launch, and those that are constant for a block.
    pub(crate) launch_presets: Vec<Preset>,
    pub(crate) block_presets: Vec<Preset>,
    /// Locations of the parameters and results on the callee's side.
    pub(crate) params: Vec<Passed>,
    pub(crate) returns: Vec<Passed>,
}

impl FunctionCode {
    /// Returns whether the call passes all parameters and the function returns all results that the call expects. A
    /// call may pass more than the function takes: compilers do so for calls through a pointer of another function
    /// type.
    pub(crate) fn fits(&self, call: &Call) -> bool {
        let covers = |given: &[Passed], taken: &[Passed]| {
            let enough = |(given, taken): (&Passed, &Passed)| given.bytes() >= taken.bytes();
            given.len() >= taken.len() && given.iter().zip(taken).all(enough)
        };
        covers(&call.arguments, &self.params) && covers(&self.returns, &call.results)
    }
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

/// An action that the scheduler performs for an instruction.
#[derive(Debug, Clone)]
pub(crate) enum Control {
    Exit,
    Return,
    Call(Call),
    /// `brx.idx`: jumps to the table entry that the index register selects.
    Indexed {
        index: Slot,
        /// Index into `Code::jump_tables`.
        table: u32,
    },
    Barrier(Barrier),
    /// A collective of the warp: waits for all lanes of its member mask.
    Collective(Collective),
    Alloca(Alloca),
    /// Yields the core to others.
    Pause,
}

/// `alloca`: reserves local memory for each lane until its function returns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Alloca {
    /// Registers for the size in bytes and for the resulting address. Both have class `class`.
    pub(crate) bytes: Slot,
    pub(crate) address: Slot,
    pub(crate) class: Class,
    pub(crate) align: u32,
    /// The function's [`FunctionCode::stack_top`].
    pub(crate) top: Slot,
}

/// Operands of [`Control::Call`].
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

/// Operands of [`Control::Barrier`].
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

/// Operands of [`Control::Collective`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Collective {
    /// The member mask, in a 32-bit register.
    pub(crate) members: Slot,
    /// Stores the values of the executing lanes in the exchange buffer.
    pub(crate) deposit: fn(&mut super::ctx::Ctx<'_>, &Op),
    /// Computes the results of the executing lanes from the exchange buffer. The mask contains the participants.
    pub(crate) complete: fn(&mut super::ctx::Ctx<'_>, &Op, u32),
}
