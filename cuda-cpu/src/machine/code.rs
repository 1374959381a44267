//! A decoded program: instructions with their handlers, and functions. It is immutable, and all workers share it.

use std::ops::Range;

use super::async_copies::Update;
use super::ctx::Ctx;
use super::debug_info::{Sources, VariableNames};
use crate::isa::address::{FUNCTION_STEP, FUNCTION_WINDOW};
use crate::isa::effect::Table;
use crate::isa::operand::{Barrier, Call, Class, Passed, Preset, Slot};

/// Control flow after a handler, for the dispatch loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Continue with the next instruction.
    Next,
    /// Continue at `ctx.target`.
    Jump,
    /// The lanes in `ctx.taken` continue at `ctx.target`, the others with the next instruction.
    Diverge,
    /// Call the scheduler: calls, returns, exits, barriers, and collectives that must wait.
    Control,
    /// `ctx.fault` contains the fault.
    Fault,
}

/// A handler. It may be called if `op` belongs to the function whose frame `ctx` has entered.
pub(crate) type Handler = unsafe fn(&mut Ctx<'_>, &Op) -> Flow;

/// A decoded instruction: a handler and its operands. The handler defines the meaning of the fields.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Op {
    pub(crate) run: Handler,
    /// The handler without the guard. `run` may be the wrapper that evaluates the guard.
    pub(crate) inner: Handler,
    pub(crate) d: Slot,
    pub(crate) a: Slot,
    pub(crate) b: Slot,
    pub(crate) c: Slot,
    /// An offset, a mode, or a jump target.
    pub(crate) imm: u64,
    /// Index of the first further operand in `Code::extras`, or an index into `Code::controls`.
    pub(crate) extra: u32,
    /// Index of this instruction's allocation cache.
    pub(crate) cache: u32,
    pub(crate) guard: Slot,
    pub(crate) guard_negated: bool,
    /// Index of this op in `Code::ops`.
    pub(crate) pc: u32,
}

impl Op {
    pub(crate) fn new(run: Handler) -> Self {
        Self {
            run,
            inner: run,
            d: Slot::NONE,
            a: Slot::NONE,
            b: Slot::NONE,
            c: Slot::NONE,
            imm: 0,
            extra: 0,
            cache: 0,
            guard: Slot::NONE,
            guard_negated: false,
            pc: 0,
        }
    }
}

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
    /// Addresses of the module's constants, which are in global memory.
    pub(crate) constants: Vec<Range<u64>>,
    /// Number of allocation caches that the memory instructions use.
    pub(crate) caches: u32,
    /// Metadata of each op for observers.
    pub(crate) table: Table,
    /// Source lines of the ops, for faults.
    pub(crate) sources: Sources,
    pub(crate) variables: VariableNames,
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

/// Operands of [`Control::Collective`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Collective {
    /// The member mask, in a 32-bit register.
    pub(crate) members: Slot,
    /// Stores the values of the executing lanes in the exchange buffer.
    pub(crate) deposit: fn(&mut Ctx<'_>, &Op),
    /// Computes the results of the executing lanes from the exchange buffer. The mask contains the participants.
    pub(crate) complete: fn(&mut Ctx<'_>, &Op, u32),
}
