//! Watching a kernel while it runs: checks, an instruction budget, profiles, clocks that count, other orders.
//!
//! # One hook
//!
//! The dispatch loop is generic over an [`Observer`], which it asks before every op. With nobody watching that is
//! [`Off`], which has no size and no code: that copy of the loop is the plain one. A launch that wants anything
//! watched gives each of its workers a [`Watch`], and they run the other copy. Which one it is, is decided each
//! time a part of a warp is entered, not for each instruction.
//!
//! # What it knows
//!
//! - Handlers take no part. What an op does to memory stands in a side table that the decoders fill in
//!   ([`Table`]): of each op the [`Effect`]s (space, element bytes and count, read or write or atomic, address
//!   register and offset), and which ops are instructions of the PTX rather than helpers of the decoder.
//!   A decoder of a new instruction says `b.states(effect)` before it emits its op; that is all it takes.
//! - What is no matter of one op it is told: a block says when it begins, when lanes come to a barrier and when
//!   they are let go (`block`); a call says which local memory is the callee's, and what was passed (`calls`).
//! - When lanes that waited for each other in a warp go on, it finds out by itself: they run again.
//!
//! # Where what it remembers lies
//!
//! What belongs to a worker (its part of the budget, its counts) lies in the [`Watch`]. What belongs to a block (who
//! wrote which byte of shared and local memory, and what is ordered before what) lies in a [`Shadow`] that goes
//! with the block when it is set aside. Which bytes of global memory were written, the allocations know
//! themselves (`memory::written`). All of it is counted against the budget for host memory.
//!
//! # What happens before an instruction
//!
//! 1. Where the order is shuffled, the time slice may be over: the warp stops in front of the instruction.
//! 2. It is counted: against the budget, for the clocks, for the profile.
//! 3. What it reads has to be written, then what it writes is (`written`). A value that was loaded from shared or
//!    local memory that was never written may be passed on, and is a fault once something depends on it
//!    (`undefined`). An access that is out of bounds or misaligned is passed over: the handler will say what is
//!    wrong with it.
//! 4. It is held against what other threads did to the same bytes of shared memory.
//!
//! A fault found here is one of the lane's, as if the handler had found it.

mod bits;
mod effect;
mod meter;
mod options;
mod places;
mod profile;
mod races;
mod shadow;
mod shuffle;
mod table;
mod trail;
mod undefined;
mod uninitialised;
mod watch;
mod written;

pub(crate) use effect::{Access, AccessKind, Bulk, Effect, Order, Values};
pub(crate) use meter::InstructionBudget;
pub use options::{Checks, Schedule};
pub use profile::{KernelProfile, KindCount, Profile};
pub(crate) use shadow::{Shadow, Size};
pub(crate) use shuffle::BlockOrder;
pub(crate) use table::{Registers, Rule, Table};
pub(crate) use uninitialised::At;
pub(crate) use watch::{Wanted, Watch};

use super::code::Code;
use super::ctx::Ctx;
use super::op::Flow;

/// Looks on before each op.
pub(crate) trait Observer {
    /// `None`: go on. [`Flow::Fault`]: `ctx.fault` says why the op must not run. [`Flow::Next`]: the warp stops
    /// in front of it, and others have a turn.
    fn before(&mut self, ctx: &mut Ctx<'_>, code: &Code, pc: u32) -> Option<Flow>;
}

/// Nobody.
pub(crate) struct Off;

impl Observer for Off {
    #[inline(always)]
    fn before(&mut self, _: &mut Ctx<'_>, _: &Code, _: u32) -> Option<Flow> {
        None
    }
}
