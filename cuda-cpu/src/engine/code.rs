//! A decoded program: what workers share and never change.

use super::address::{FUNCTION_STEP, FUNCTION_WINDOW};
use super::bulk::Update;
use super::observe::Table;
use super::op::{Class, Op, Slot};
use super::sources::Sources;
use super::variables::Variables;

/// Decoded instructions of all functions, one after the other, and their tables.
#[derive(Debug, Default)]
pub(crate) struct Code {
    pub(crate) ops: Vec<Op>,
    /// PTX line of each op.
    pub(crate) lines: Vec<u32>,
    pub(crate) extras: Vec<Slot>,
    pub(crate) controls: Vec<Control>,
    /// Where each `brx.idx` may go, which is shared by those of one list.
    pub(crate) jump_tables: Vec<Vec<u32>>,
    pub(crate) functions: Vec<FunctionCode>,
    /// Where threads stand that are suspended, in order.
    pub(crate) suspensions: Vec<u32>,
    /// What asynchronous reductions do, and to how many bytes.
    pub(crate) updates: Vec<(Update, u32)>,
    /// How many allocation caches the memory instructions want.
    pub(crate) caches: u32,
    /// What observers know of each op.
    pub(crate) table: Table,
    /// For faults.
    pub(crate) sources: Sources,
    pub(crate) variables: Variables,
}

impl Code {
    /// The kind of instruction that an op stands for; nothing for helpers.
    pub(crate) fn instruction(&self, pc: u32) -> &str {
        let kind = self.table.kind(pc).and_then(|kind| self.table.names().get(kind as usize));
        kind.map_or("", String::as_str)
    }

    /// The function that an indirect call means.
    pub(crate) fn function_at(&self, address: u64) -> Option<u32> {
        let at = address.checked_sub(FUNCTION_WINDOW)?;
        let index = at / FUNCTION_STEP;
        let known = at % FUNCTION_STEP == 0 && index < self.functions.len() as u64;
        known.then_some(index as u32)
    }
}

/// What a call has to know about a function.
#[derive(Debug, Default, Clone)]
pub(crate) struct FunctionCode {
    pub(crate) name: String,
    /// It is launched, not called.
    pub(crate) is_kernel: bool,
    /// First op; `None` when the function was not reachable from an entry.
    pub(crate) entry: Option<u32>,
    /// Size of a frame.
    pub(crate) frame_bytes: u32,
    /// Bytes of local memory of one lane.
    pub(crate) local_bytes: u32,
    /// The 32-bit register that says where what each lane has of local memory ends, if that is not the same for all.
    pub(crate) stack_top: Option<Slot>,
    pub(crate) presets: Vec<Preset>,
    /// Those of them that hold for a launch, and for a block.
    pub(crate) launch_presets: Vec<Preset>,
    pub(crate) block_presets: Vec<Preset>,
    /// Where parameters and results lie, on the callee's side.
    pub(crate) params: Vec<Passed>,
    pub(crate) returns: Vec<Passed>,
}

impl FunctionCode {
    /// Whether the call gives it all that it takes, and takes no more than it gives. Compilers pass more than a
    /// function looks at where a program calls it through a pointer to another kind of function.
    pub(crate) fn fits(&self, call: &Call) -> bool {
        let covers = |given: &[Passed], taken: &[Passed]| {
            let enough = |(given, taken): (&Passed, &Passed)| given.bytes() >= taken.bytes();
            given.len() >= taken.len() && given.iter().zip(taken).all(enough)
        };
        covers(&call.arguments, &self.params) && covers(&self.returns, &call.results)
    }
}

/// A register that holds a known value when a function begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Preset {
    pub(crate) slot: Slot,
    pub(crate) class: Class,
    pub(crate) value: PresetValue,
}

/// See [`Preset`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum PresetValue {
    Const(u64),
    Special(Special),
    /// Offset of a local variable inside the frame's local bytes; the value is its offset in local
    /// space.
    Local(u32),
    /// Where dynamic shared memory begins, in shared space.
    DynamicShared,
    /// Bytes of the kernel's parameters.
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
}

/// What the scheduler does for an instruction.
#[derive(Debug, Clone)]
pub(crate) enum Control {
    Exit,
    Return,
    Call(Call),
    /// `brx.idx`: by the index register.
    Indexed {
        index: Slot,
        /// Index into `Code::jump_tables`.
        table: u32,
    },
    Barrier(Barrier),
    /// A collective of the warp: waits for the lanes of its member mask.
    Collective(Collective),
    Alloca(Alloca),
    /// Give others the core.
    Pause,
}

/// `alloca`: local memory of which every lane gets as much as it wants, until its function returns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Alloca {
    /// The bytes, and where the address goes: registers of this class.
    pub(crate) bytes: Slot,
    pub(crate) address: Slot,
    pub(crate) class: Class,
    pub(crate) align: u32,
    /// See [`FunctionCode::stack_top`].
    pub(crate) top: Slot,
}

/// See [`Control::Call`].
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) callee: Callee,
    /// Arguments and results, in order.
    pub(crate) arguments: Vec<Passed>,
    pub(crate) results: Vec<Passed>,
}

/// Whom to call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Callee {
    /// Index into `Code::functions`.
    Direct(u32),
    /// The function whose address the register holds.
    Indirect(Slot),
    /// One that the device provides.
    Builtin(Builtin),
}

/// Functions without a body that the device provides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub(crate) enum Builtin {
    Vprintf,
    Assertfail,
    Malloc,
    Free,
}

/// An argument or result on the caller's side.
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

/// See [`Control::Barrier`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Barrier {
    /// Which of the 16, in a 32-bit register.
    pub(crate) id: Slot,
    /// How many threads, in a 32-bit register; `Slot::NONE`: all of the block.
    pub(crate) threads: Slot,
    pub(crate) kind: BarrierKind,
    /// All lanes of a warp have to execute it together.
    pub(crate) aligned: bool,
    /// The number, and the count, are written in the instruction: the same for all lanes.
    pub(crate) constant: bool,
}

/// See [`Barrier`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BarrierKind {
    Sync,
    Arrive,
    /// `bar.red`: predicate in, result out.
    Reduce {
        how: Reduce,
        input: Slot,
        negated: bool,
        output: Slot,
    },
}

/// See [`BarrierKind::Reduce`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reduce {
    Popc,
    And,
    Or,
}

/// See [`Control::Collective`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Collective {
    /// The member mask, in a 32-bit register.
    pub(crate) members: Slot,
    /// Shows the lanes' values in the exchange.
    pub(crate) deposit: fn(&mut super::ctx::Ctx<'_>, &Op),
    /// Makes the executing lanes' results of what the participants showed.
    pub(crate) complete: fn(&mut super::ctx::Ctx<'_>, &Op, u32),
}
