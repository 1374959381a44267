//! `mbarrier`.

use cuda_ptx::{Address, Modifier, Operand, ScalarType as T, Word as W};

use super::suspend;
use crate::decode::build::builder::{Builder, OPERANDS, Problem, UNKNOWN};
use crate::decode::form::Form;
use crate::decode::memory::load_store::order_of;
use crate::exec::memory::locate::NARROW_ADDRESS;
use crate::exec::number::lane::Kind;
use crate::exec::sync::mbarrier as run;
use crate::exec::sync::mbarrier::{BY_PARITY, COMPLETE_BYTES, DROP, EXPECT_BYTES, NO_COMPLETE};
use crate::isa::address::SpaceKind;
use crate::isa::effect::{Access, AccessKind, Effect, Order};
use crate::isa::slot::Slot;
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
    let (base, offset, narrow) = b.address(address)?;
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

const NAMES: [W; 9] = [
    W::Init,
    W::Inval,
    W::Arrive,
    W::ArriveDrop,
    W::ExpectTx,
    W::CompleteTx,
    W::TestWait,
    W::TryWait,
    W::PendingCount,
];

/// Decodes `mbarrier` in all forms.
pub(crate) fn mbarrier(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    // `.expect_tx` can also be a modifier of `.arrive`.
    let first = form.instruction().modifiers.first();
    let name = NAMES.into_iter().find(|name| first == Some(&Modifier::Word(*name)));
    let name = name.filter(|name| form.take(*name)).ok_or(UNKNOWN)?;
    // A block runs on one thread, so its accesses are always ordered. Only the race check uses the order.
    let order = form.take_one(&[W::Release, W::Acquire, W::Relaxed]);
    form.take_one(&[W::Cta, W::Cluster]);
    let space = take_space(form);
    let ty = form.ty();
    if ty != Some(T::B64) {
        return Err(UNKNOWN);
    }
    match name {
        W::Arrive | W::ArriveDrop => arrive(b, form, name, space, order),
        W::TestWait | W::TryWait => wait(b, form, name, space, order),
        W::PendingCount => pending_count(b, form),
        _ => simple(b, form, name, space),
    }
}

/// `mbarrier.init.shared.b64 [addr], count;` and other forms without a result.
fn simple(
    b: &mut Builder<'_>,
    form: &mut Form<'_>,
    name: W,
    space: SpaceKind,
) -> Result<(), Problem> {
    let (handler, mode): (Handler, _) = match name {
        W::Init => (run::init, 0),
        W::Inval => (run::invalidate, 0),
        W::CompleteTx => (run::count_bytes, COMPLETE_BYTES),
        _ => (run::count_bytes, 0),
    };
    let (address, count) = match form.instruction().operands.as_slice() {
        [Operand::Address(address)] if name == W::Inval => (address, None),
        [Operand::Address(address), count] if name != W::Inval => (address, Some(count)),
        _ => return Err(OPERANDS),
    };
    let mut op = addressed(b, handler, address, space, mode)?;
    if let Some(count) = count {
        op.b = b.source(count, Kind::W32)?;
    }
    b.states(match name {
        W::Init | W::Inval => access(AccessKind::Write, &op, space, Order::WEAK),
        _ => access(AccessKind::Update, &op, space, Order::RELAXED),
    });
    b.emit(op)
}

/// `mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 state, [addr], bytes;`
fn arrive(
    b: &mut Builder<'_>,
    form: &mut Form<'_>,
    name: W,
    space: SpaceKind,
    order: Option<W>,
) -> Result<(), Problem> {
    let variant = form.take_one(&[W::ExpectTx, W::NoComplete]);
    let mode = match variant {
        Some(W::ExpectTx) => EXPECT_BYTES,
        Some(_) => NO_COMPLETE,
        None => 0,
    } | if name == W::ArriveDrop { DROP } else { 0 };
    let (token, address, count) = match form.instruction().operands.as_slice() {
        [token, Operand::Address(address)] if variant.is_none() => (token, address, None),
        [token, Operand::Address(address), count] => (token, address, Some(count)),
        _ => return Err(OPERANDS),
    };
    let mut op = addressed(b, run::arrive, address, space, mode)?;
    if let Some(count) = count {
        op.b = b.source(count, Kind::W32)?;
    }
    op.d = b.dest(token, Kind::W64, false)?;
    let order = order.map_or(Order::RELEASE, order_of);
    b.states(access(AccessKind::Update, &op, space, order));
    b.emit(op)
}

/// `mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [addr], parity{, time};`
fn wait(
    b: &mut Builder<'_>,
    form: &mut Form<'_>,
    name: W,
    space: SpaceKind,
    order: Option<W>,
) -> Result<(), Problem> {
    let (mode, kind) = if form.take(W::Parity) { (BY_PARITY, Kind::W32) } else { (0, Kind::W64) };
    let (done, address, phase, time) = match form.instruction().operands.as_slice() {
        [done, Operand::Address(address), phase] => (done, address, phase, None),
        [done, Operand::Address(address), phase, time] if name == W::TryWait => {
            (done, address, phase, Some(time))
        }
        _ => return Err(OPERANDS),
    };
    let order = order.map_or(Order::ACQUIRE, order_of);
    let phase = b.source(phase, kind)?;
    let done = b.dest(done, Kind::Pred, false)?;
    if name == W::TestWait || time.is_some() {
        let mut op = addressed(b, run::test_wait, address, space, mode)?;
        (op.b, op.d) = (phase, done);
        b.states(access(AccessKind::Read, &op, space, order));
        return b.emit(op);
    }
    let mut op = addressed(b, run::try_wait, address, space, mode)?;
    (op.b, op.d) = (phase, done);
    b.states(access(AccessKind::Read, &op, space, order));
    suspend::emit(b, done, |b, wait| {
        b.code.extras[op.extra as usize + 2] = Slot(wait);
        op
    })
}

/// `mbarrier.pending_count.b64 count, state;`
fn pending_count(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let [count, token] = form.instruction().operands.as_slice() else { return Err(OPERANDS) };
    let mut op = Op::new(run::pending_count);
    op.a = b.source(token, Kind::W64)?;
    op.d = b.dest(count, Kind::W32, false)?;
    b.emit(op)
}
