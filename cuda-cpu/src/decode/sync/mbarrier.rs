//! `mbarrier`.

use cuda_ptx::{Address, Modifier, Operand, ScalarType as T, Word as W};

use crate::decode::build::builder::{Builder, DISAGREES, Problem};
use crate::decode::form::Form;
use crate::decode::memory::load_store::order_of;
use crate::decode::sync;
use crate::exec::memory::locate::NARROW_ADDRESS;
use crate::exec::number::lane::Kind;
use crate::exec::sync::mbarrier as run;
use crate::exec::sync::mbarrier::{BY_PARITY, COMPLETE_BYTES, DROP, EXPECT_BYTES, NO_COMPLETE};
use crate::isa::address::SpaceKind;
use crate::isa::effect::{Access, AccessKind, Effect, Order};
use crate::isa::operand::Slot;
use crate::machine::code::{Handler, Op};

/// Takes the state space of an mbarrier's address. It is always in shared memory, but the address may be generic.
pub(super) fn take_space(form: &mut Form<'_>) -> SpaceKind {
    match form.take_one(&[W::Shared, W::SharedCta, W::SharedCluster]) {
        Some(_) => SpaceKind::Shared,
        None => SpaceKind::Generic,
    }
}

/// Creates an op with an address operand. The space and `mode` are its first extra operands.
pub(super) fn addressed(
    b: &mut Builder<'_>,
    handler: Handler,
    address: &Address,
    space: SpaceKind,
    mode: u32,
) -> Result<Op, Problem> {
    let mut op = Op::new(handler);
    let (base, offset, narrow) = b.address(address, space)?;
    op.a = base;
    op.imm = offset as u64;
    op.c = if narrow { NARROW_ADDRESS } else { Slot::NONE };
    op.extra = b.extras([Slot(space as u32), Slot(mode), Slot::NONE]);
    Ok(op)
}

/// Returns the effect on the mbarrier of an op created by [`addressed`].
pub(super) fn access(kind: AccessKind, op: &Op, space: SpaceKind, order: Order) -> Effect {
    let narrow = op.c == NARROW_ADDRESS;
    let access = Access::new(kind, space, run::OBJECT.bytes as u32, op.a);
    Effect::Access(Access { narrow, offset: op.imm, order, ..access })
}

/// Returns the effect of a transfer's completion at the mbarrier whose address is in this 64-bit register. Threads that
/// wait there then see what the transfer wrote.
pub(super) fn completes(register: Slot, space: SpaceKind) -> Effect {
    let access = Access::new(AccessKind::Update, space, run::OBJECT.bytes as u32, register);
    Effect::Access(Access { order: Order::RELEASE, ..access })
}

/// Decodes `mbarrier` in all forms.
pub(crate) fn mbarrier(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    // `.expect_tx` can also be a modifier of `.arrive`.
    let Some(Modifier::Word(name)) = form.instruction().modifiers.first().copied() else {
        return Err(DISAGREES);
    };
    form.take(name);
    // A block runs on one thread, so its accesses are always ordered. Only the race check uses the order.
    let order = form.take_one(&[W::Release, W::Acquire, W::Relaxed]).map(order_of);
    form.take_one(&[W::Cta, W::Cluster]);
    let space = take_space(form);
    if !form.take_ty(T::B64) {
        return Err(DISAGREES);
    }
    match name {
        W::Init => with_count(b, form, space, (run::init, 0), AccessKind::Write),
        W::Inval => invalidate(b, form, space),
        W::ExpectTx => with_count(b, form, space, (run::count_bytes, 0), AccessKind::Update),
        W::CompleteTx => {
            with_count(b, form, space, (run::count_bytes, COMPLETE_BYTES), AccessKind::Update)
        }
        W::Arrive => arrive(b, form, space, order, 0),
        W::ArriveDrop => arrive(b, form, space, order, DROP),
        W::TestWait => wait(b, form, space, order, false),
        W::TryWait => wait(b, form, space, order, true),
        W::PendingCount => pending_count(b, form),
        _ => Err(DISAGREES),
    }
}

/// `mbarrier.init.shared.b64 [addr], count;` and other forms with a count and no result.
fn with_count(
    b: &mut Builder<'_>,
    form: &Form<'_>,
    space: SpaceKind,
    (handler, mode): (Handler, u32),
    kind: AccessKind,
) -> Result<(), Problem> {
    let [Operand::Address(address), count] = form.instruction().operands.as_slice() else {
        return Err(DISAGREES);
    };
    let mut op = addressed(b, handler, address, space, mode)?;
    op.b = b.source(count, Kind::W32)?;
    let order = if kind == AccessKind::Write { Order::WEAK } else { Order::RELAXED };
    b.states(access(kind, &op, space, order));
    b.emit(op)
}

/// `mbarrier.inval.shared.b64 [addr];`
fn invalidate(b: &mut Builder<'_>, form: &Form<'_>, space: SpaceKind) -> Result<(), Problem> {
    let [Operand::Address(address)] = form.instruction().operands.as_slice() else {
        return Err(DISAGREES);
    };
    let op = addressed(b, run::invalidate, address, space, 0)?;
    b.states(access(AccessKind::Write, &op, space, Order::WEAK));
    b.emit(op)
}

/// `mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 state, [addr], bytes;`
fn arrive(
    b: &mut Builder<'_>,
    form: &mut Form<'_>,
    space: SpaceKind,
    order: Option<Order>,
    drops: u32,
) -> Result<(), Problem> {
    let variant = form.take_from(&[(W::ExpectTx, EXPECT_BYTES), (W::NoComplete, NO_COMPLETE)]);
    let mode = drops | variant.unwrap_or(0);
    let (token, address, count) = match form.instruction().operands.as_slice() {
        [token, Operand::Address(address)] if variant.is_none() => (token, address, None),
        [token, Operand::Address(address), count] => (token, address, Some(count)),
        _ => return Err(DISAGREES),
    };
    let mut op = addressed(b, run::arrive, address, space, mode)?;
    if let Some(count) = count {
        op.b = b.source(count, Kind::W32)?;
    }
    op.d = b.dest(token, Kind::W64, false)?;
    let order = order.unwrap_or(Order::RELEASE);
    b.states(access(AccessKind::Update, &op, space, order));
    b.emit(op)
}

/// `mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [addr], parity{, time};`
fn wait(
    b: &mut Builder<'_>,
    form: &mut Form<'_>,
    space: SpaceKind,
    order: Option<Order>,
    suspends: bool,
) -> Result<(), Problem> {
    let (mode, kind) = if form.take(W::Parity) { (BY_PARITY, Kind::W32) } else { (0, Kind::W64) };
    let (done, address, phase, time) = match form.instruction().operands.as_slice() {
        [done, Operand::Address(address), phase] => (done, address, phase, None),
        [done, Operand::Address(address), phase, time] if suspends => {
            (done, address, phase, Some(time))
        }
        _ => return Err(DISAGREES),
    };
    let order = order.unwrap_or(Order::ACQUIRE);
    let phase = b.source(phase, kind)?;
    let done = b.dest(done, Kind::Pred, false)?;
    if !suspends || time.is_some() {
        let mut op = addressed(b, run::test_wait, address, space, mode)?;
        (op.b, op.d) = (phase, done);
        b.states(access(AccessKind::Read, &op, space, order));
        return b.emit(op);
    }
    let mut op = addressed(b, run::try_wait, address, space, mode)?;
    (op.b, op.d) = (phase, done);
    b.states(access(AccessKind::Read, &op, space, order));
    sync::emit_suspension(b, done, |b, wait| {
        b.code.extras[op.extra as usize + 2] = Slot(wait);
        op
    })
}

/// `mbarrier.pending_count.b64 count, state;`
fn pending_count(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let [count, token] = form.instruction().operands.as_slice() else { return Err(DISAGREES) };
    let mut op = Op::new(run::pending_count);
    op.a = b.source(token, Kind::W64)?;
    op.d = b.dest(count, Kind::W32, false)?;
    b.emit(op)
}
