//! Observation of running kernels: checks, instruction limits, profiles, instruction-counting clocks and shuffled
//! orders.
//!
//! This folder uses `memory` (the record of written bytes), `machine`, `isa`, `fault`, and of `exec` the resolution of
//! addresses and the lanes of shuffles. `schedule` and `launch` call it, and `decode` declares the effects of ops in
//! `isa::effect`. A typical call enters at [`Observer::before`], before each op.
//!
//! # The hook
//!
//! The dispatch loop is generic over an [`Observer`], which it calls before every op. Without observation that is
//! [`Off`], which has no size and no code. A launch with observation gives each worker a [`Watch`] and runs the second
//! instance of the loop. The instance is selected each time a fragment is entered, not for each instruction.
//!
//! # Sources of information
//!
//! - Decoders fill a side table ([`Table`](crate::isa::effect::Table)) with the
//!   [`Effect`](crate::isa::effect::Effect)s of each op: space, element size and count, kind of
//!   access, address register and offset. The table also distinguishes instructions of the PTX from helper ops. A
//!   decoder of a new instruction calls `b.states(effect)` before it emits its op. Handlers take no part.
//! - The scheduler reports events that are not a single op: the start of a block (`block`), the release of
//!   barriers (`barriers`), shuffles (`collectives`), and local memory and parameters (`calls`).
//! - Lanes that waited for each other in a warp have met when one of them runs again.
//!
//! # Storage
//!
//! The data of a worker (its part of the limit, its counts) is in the [`Watch`]. The data of a block (which bytes of
//! shared and local memory are written, and the order of accesses) is in a [`Shadow`], which stays with the block when
//! it is set aside. Allocations record which bytes of global memory are written (`memory::written`). All of it counts
//! against the budget for host memory.
//!
//! # Steps before an instruction
//!
//! 1. In a shuffled order, the time slice may be over. The warp then stops before the instruction.
//! 2. The instruction is counted for the limit, the clocks and the profile.
//! 3. The bytes that it reads are checked, and those that it writes are marked (`written`). A value loaded from
//!    unwritten shared or local memory may be passed on. It is a fault if a result depends on it (`undefined`).
//!    Accesses that are out of bounds or misaligned are skipped here, because the handler reports them.
//! 4. Accesses to shared memory are compared with those of other threads (`races`).
//!
//! Writes through arguments that the launch only reads (`read_only`) are checked before the third step.
//!
//! A fault found here is a fault of the lane, as if the handler had found it.

mod meter;
mod options;
mod places;
mod profile;
mod races;
mod read_only;
mod shadow;
mod shuffle;
mod undefined;
mod uninitialized;
mod watch;
mod written;

pub(crate) use meter::InstructionBudget;
pub use options::{Checks, Schedule};
pub use profile::{KernelProfile, KindCount, Profile};
pub use read_only::Operand;
pub(crate) use read_only::{Input, ReadOnly};
pub(crate) use shadow::{Shadow, Size};
pub(crate) use shuffle::BlockOrder;
pub(crate) use uninitialized::At;
pub(crate) use watch::{Wanted, Watch};

use crate::machine::code::{Code, Flow};
use crate::machine::ctx::Ctx;

/// A hook before each op.
pub(crate) trait Observer {
    /// Returns `None` to run the op. [`Flow::Fault`] means that `ctx.fault` holds a fault and the op must not run.
    /// [`Flow::Next`] stops the warp before the op so that others run.
    fn before(&mut self, ctx: &mut Ctx<'_>, code: &Code, pc: u32) -> Option<Flow>;
}

/// No observation.
pub(crate) struct Off;

impl Observer for Off {
    #[inline(always)]
    fn before(&mut self, _: &mut Ctx<'_>, _: &Code, _: u32) -> Option<Flow> {
        None
    }
}
