//! `cp.async`, its groups, and its mbarrier arrivals. For bulk copies see `async_bulk`.

use cuda_ptx::{Address, Operand, RegId, ScalarType as T, Word as W};

use super::{
    async_bulk,
    mbarrier::{access, addressed, take_space},
};
use crate::decode::form::Form;
use crate::{
    decode::build::builder::{Builder, DISAGREES, Problem},
    exec::{memory::locate::NARROW_ADDRESS, number::lane::Kind, sync::async_copy as run},
    isa::{
        address::SpaceKind,
        effect::{Access, AccessKind, Effect, Order},
        slot::{Class, Slot},
    },
    machine::code::Op,
};

pub(crate) const TENSOR_MAPS: Problem = "the CPU device does not support tensor maps";

/// Decodes `cp` in all forms.
pub(crate) fn cp(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let reduces = form.take(W::Reduce);
    if !form.take(W::Async) {
        return Err(DISAGREES);
    }
    if form.has(W::Tensor) {
        return Err(TENSOR_MAPS);
    }
    if form.take(W::Bulk) {
        return async_bulk::bulk(b, form, reduces);
    }
    if form.take(W::Mbarrier) {
        return mbarrier_arrive(b, form);
    }
    match form.take_one(&[W::Ca, W::Cg, W::CommitGroup, W::WaitGroup, W::WaitAll]) {
        Some(W::CommitGroup) => groups(b, form, false),
        Some(W::WaitGroup) => groups(b, form, true),
        Some(W::WaitAll) => {
            if !form.instruction().operands.is_empty() {
                return Err(DISAGREES);
            }
            b.emit(Op::new(run::commit))?;
            b.emit(Op::new(run::wait))
        }
        Some(caching) => copy(b, form, caching == W::Cg),
        None => Err(DISAGREES),
    }
}

/// `cp.async.commit_group;` and `cp.async.wait_group n;`
fn groups(b: &mut Builder<'_>, form: &Form<'_>, waits: bool) -> Result<(), Problem> {
    match form.instruction().operands.as_slice() {
        [] if !waits => b.emit(Op::new(run::commit)),
        [Operand::Int(left)] if waits => {
            let mut op = Op::new(run::wait);
            op.imm = u64::from(u32::try_from(*left).map_err(|_| DISAGREES)?);
            b.emit(op)
        }
        _ => Err(DISAGREES),
    }
}

/// The operand that follows the copy size.
enum Rest<'a> {
    Size(&'a Operand),
    Ignore(&'a Operand),
    Nothing,
}

/// Finds the operand after the size. `ignore-src` is a predicate register, `src-size` is not.
fn rest<'a>(b: &Builder<'_>, operands: &'a [Operand]) -> Result<Rest<'a>, Problem> {
    let is_pred = |id: &RegId| b.class_of(*id) == Class::Pred;
    Ok(match operands {
        [] => Rest::Nothing,
        [p @ (Operand::Reg(id) | Operand::NotReg(id))] if is_pred(id) => Rest::Ignore(p),
        [size @ (Operand::Reg(_) | Operand::Int(_))] => Rest::Size(size),
        _ => return Err(DISAGREES),
    })
}

/// `cp.async.ca.shared.global{.L2::cache_hint}{.L2::128B} [dst], [src], 16{, src-size | ignore-src}{, policy};`
fn copy(b: &mut Builder<'_>, form: &mut Form<'_>, whole_lines: bool) -> Result<(), Problem> {
    let shared = form.take_one(&[W::Shared, W::SharedCta]).is_some();
    if !shared || !form.take(W::Global) {
        return Err(DISAGREES);
    }
    let hinted = form.take(W::L2CacheHint);
    form.take_one(&[W::L264B, W::L2128B, W::L2256B]);
    let operands = form.instruction().operands.as_slice();
    let operands = if hinted { operands.split_last().ok_or(DISAGREES)?.1 } else { operands };
    let [Operand::Address(to), Operand::Address(from), Operand::Int(bytes), more @ ..] = operands
    else {
        return Err(DISAGREES);
    };
    let fits = *bytes == 16 || !whole_lines && matches!(bytes, 4 | 8);
    if !fits {
        return Err(DISAGREES);
    }
    let (mut size, mut ignore, mut inverted) = (Slot::NONE, Slot::NONE, false);
    match rest(b, more)? {
        Rest::Size(operand) => size = b.source(operand, Kind::W32)?,
        Rest::Ignore(operand) => (ignore, inverted) = b.pred(operand)?,
        Rest::Nothing => {}
    }
    let from = b.wide_address(from, SpaceKind::Global)?;
    let mut op = addressed(b, run::copy, to, SpaceKind::Shared, 0)?;
    op.extra = b.extras([from, size, ignore, Slot(inverted.into()), Slot(*bytes as u32)]);
    let element = *bytes as u32;
    // With `src-size` or `ignore-src`, the bytes that are read are not known at decoding.
    if (size, ignore) == (Slot::NONE, Slot::NONE) {
        let access = Access::new(AccessKind::Read, SpaceKind::Global, element, from);
        b.states(Effect::Access(access));
    }
    let access = Access::new(AccessKind::Write, SpaceKind::Shared, element, op.a);
    let narrow = op.c == NARROW_ADDRESS;
    b.states(Effect::Access(Access { narrow, offset: op.imm, ..access }));
    b.emit(op)
}

/// `cp.async.mbarrier.arrive{.noinc}.shared.b64 [addr];`
fn mbarrier_arrive(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    if !form.take(W::Arrive) {
        return Err(DISAGREES);
    }
    let one_more = !form.take(W::Noinc);
    let (space, ty) = (take_space(form), form.ty());
    let address: &Address = match form.instruction().operands.as_slice() {
        [Operand::Address(address)] => address,
        _ => return Err(DISAGREES),
    };
    if ty != Some(T::B64) {
        return Err(DISAGREES);
    }
    let op = addressed(b, run::arrive, address, space, one_more.into())?;
    b.states(access(AccessKind::Update, &op, space, Order::RELEASE));
    b.emit(op)
}
