//! Decodes fences, mbarriers, barriers and addresses of clusters, and asynchronous copies. Their waits suspend threads
//! (see `exec::sync`).

pub(super) mod async_copy;
pub(super) mod cluster;
pub(super) mod fence;
pub(super) mod mbarrier;

use crate::decode::build::builder::{Builder, Problem};
use crate::exec::control::{control, jump};
use crate::exec::sync::again;
use crate::isa::operand::Slot;
use crate::machine::code::{Control, Op};

/// Emits a test that lanes repeat until it succeeds. `look` creates the op of the test, given the position to which
/// waiting lanes jump. `fails` is the predicate that becomes false if the wait expires, or `Slot::NONE`.
fn emit_suspension(
    b: &mut Builder<'_>,
    fails: Slot,
    look: impl FnOnce(&mut Builder<'_>, u32) -> Op,
) -> Result<(), Problem> {
    let wait = b.pc() + 1;
    let mut first = Op::new(jump);
    first.imm = u64::from(wait + 2);
    b.emit_plain(first);
    let mut pause = Op::new(control);
    pause.extra = b.add_control(Control::Pause);
    b.emit_plain(pause);
    let mut retry = Op::new(again);
    (retry.d, retry.extra) = (fails, wait + 3);
    b.code.suspensions.push(b.pc());
    b.emit_plain(retry);
    let op = look(b, wait);
    b.emit_self_guarded(op)
}
