//! Asynchronous copies: `cp.async` with its groups and mbarrier arrivals, `cp.async.bulk`, `cp.reduce.async.bulk`,
//! `st.async` and `red.async`.

use cuda_ptx::{Address, Operand, RegId, ScalarType as T, Word as W};
use half::{bf16, f16};

use super::mbarrier::{self, access, addressed, take_space};
use crate::decode::build::builder::{Builder, DISAGREES, Problem};
use crate::decode::form::Form;
use crate::exec::control;
use crate::exec::memory::locate::NARROW_ADDRESS;
use crate::exec::number::lane::Kind;
use crate::exec::sync::async_copy::{GLOBAL_TO_SHARED, SHARED_TO_GLOBAL, SHARED_TO_SHARED};
use crate::exec::sync::{async_copy as run, transfer};
use crate::isa::address::SpaceKind;
use crate::isa::effect::{Access, AccessKind, Bulk, Effect, Order};
use crate::isa::index;
use crate::isa::operand::{Class, Slot};
use crate::machine::async_copies::Update;
use crate::machine::code::Op;

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
        return bulk(b, form, reduces);
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
            op.imm = outstanding(*left);
            b.emit(op)
        }
        _ => Err(DISAGREES),
    }
}

/// Returns the number of groups that may stay outstanding. Larger numbers count as `u32::MAX`, because no thread has so
/// many groups. A negative constant is such a number; `ptxas` accepts it too.
fn outstanding(left: u64) -> u64 {
    left.min(u32::MAX.into())
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
        [size @ (Operand::Reg(_) | Operand::RegPlus(..) | Operand::Int(_))] => Rest::Size(size),
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

const UPDATES: [W; 8] = [W::Add, W::Min, W::Max, W::Inc, W::Dec, W::And, W::Or, W::Xor];
const TYPES: [T; 10] =
    [T::U32, T::S32, T::U64, T::S64, T::B32, T::B64, T::F16, T::BF16, T::F32, T::F64];
const COMPLETES: W = W::MbarrierCompleteTxBytes;

/// Decodes `cp.async.bulk` and `cp.reduce.async.bulk`. Those modifiers have been taken already.
pub(super) fn bulk(b: &mut Builder<'_>, form: &mut Form<'_>, reduces: bool) -> Result<(), Problem> {
    match form.take_one(&[W::CommitGroup, W::WaitGroup, W::Prefetch]) {
        Some(W::CommitGroup) => commit_bulk(b, form),
        Some(W::WaitGroup) => wait_for_bulk(b, form),
        Some(_) => prefetch(b, form),
        None => copy_bulk(b, form, reduces),
    }
}

fn commit_bulk(b: &mut Builder<'_>, form: &Form<'_>) -> Result<(), Problem> {
    if form.instruction().operands.is_empty() {
        b.emit(Op::new(run::commit_bulk))
    } else {
        Err(DISAGREES)
    }
}

/// `cp.async.bulk.wait_group{.read} n;`
fn wait_for_bulk(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    form.take(W::Read);
    let [Operand::Int(left)] = form.instruction().operands.as_slice() else {
        return Err(DISAGREES);
    };
    let mut op = Op::new(run::wait_for_bulk);
    op.imm = outstanding(*left);
    b.emit(op)
}

/// `cp.async.bulk.prefetch.L2.global{.L2::cache_hint} [src], size{, policy};`: a hint without effect.
fn prefetch(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let known = form.take(W::L2) && form.take(W::Global);
    let operands = 2 + usize::from(form.take(W::L2CacheHint));
    if !known || form.instruction().operands.len() != operands {
        return Err(DISAGREES);
    }
    b.emit(Op::new(control::nothing))
}

/// Returns the direction of a transfer, and whether it completes at an mbarrier. The form names the destination space
/// first.
fn way(form: &mut Form<'_>) -> Option<(u64, bool)> {
    let spaces = [W::Global, W::SharedCta, W::SharedCluster];
    let (to, from) = (form.take_one(&spaces)?, form.take_one(&spaces)?);
    Some(match (to, from) {
        (W::SharedCta | W::SharedCluster, W::Global) => (GLOBAL_TO_SHARED, true),
        (W::SharedCluster, W::SharedCta) => (SHARED_TO_SHARED, true),
        (W::Global, W::SharedCta) => (SHARED_TO_GLOBAL, false),
        _ => return None,
    })
}

macro_rules! by {
    ($ty:expr, $update:ident, [$($name:ident: $t:ty as $word:ty),*]) => {
        match $ty {
            $(T::$name => Some((transfer::$update::<$t, $word> as Update, size_of::<$word>() as u32)),)*
            _ => None,
        }
    };
}

macro_rules! integers {
    ($ty:expr, $update:ident) => {
        by!($ty, $update, [U32: u32 as u32, S32: i32 as u32, U64: u64 as u64, S64: i64 as u64])
    };
}

/// Returns the update for this operation and type, and the size of an element in bytes.
fn update(operation: W, ty: T) -> Option<(Update, u32)> {
    match (operation, ty) {
        (W::Add, T::F16 | T::BF16 | T::F32 | T::F64) => by!(ty, add_float, [F16: f16 as u16,
            BF16: bf16 as u16, F32: f32 as u32, F64: f64 as u64]),
        (W::Min, T::F16 | T::BF16) => by!(ty, min_float, [F16: f16 as u16, BF16: bf16 as u16]),
        (W::Max, T::F16 | T::BF16) => by!(ty, max_float, [F16: f16 as u16, BF16: bf16 as u16]),
        (W::Add, _) => integers!(ty, add),
        (W::Min, _) => integers!(ty, min),
        (W::Max, _) => integers!(ty, max),
        (W::Inc, _) => by!(ty, inc, [U32: u32 as u32]),
        (W::Dec, _) => by!(ty, dec, [U32: u32 as u32]),
        (W::And, _) => by!(ty, and, [B32: u32 as u32, B64: u64 as u64]),
        (W::Or, _) => by!(ty, or, [B32: u32 as u32, B64: u64 as u64]),
        (W::Xor, _) => by!(ty, xor, [B32: u32 as u32, B64: u64 as u64]),
        _ => None,
    }
}

/// Takes the reduction from the form. Returns its index in the program's updates, and the element size.
fn take_update(b: &mut Builder<'_>, form: &mut Form<'_>) -> Option<(Slot, u32)> {
    let name = form.take_one(&UPDATES)?;
    let halves = form.take(W::Noftz);
    let ty = form.ty_of(&TYPES)?;
    // `.noftz` is required for additions of f16 and bf16, and invalid otherwise.
    if halves != (name == W::Add && matches!(ty, T::F16 | T::BF16)) {
        return None;
    }
    let (update, size) = update(name, ty)?;
    b.code.updates.push((update, size));
    Some((Slot(index(b.code.updates.len()) - 1), size))
}

/// `cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [dst], [src], size, [mbar];` and its variants.
fn copy_bulk(b: &mut Builder<'_>, form: &mut Form<'_>, reduces: bool) -> Result<(), Problem> {
    let (way, completes) = way(form).ok_or(DISAGREES)?;
    if !form.take(if completes { COMPLETES } else { W::BulkGroup }) {
        return Err(DISAGREES);
    }
    let mut operands = form.instruction().operands.iter();
    let (Some(Operand::Address(to)), Some(Operand::Address(from)), Some(size)) =
        (operands.next(), operands.next(), operands.next())
    else {
        return Err(DISAGREES);
    };
    let (from_space, to_space) = match way {
        GLOBAL_TO_SHARED => (SpaceKind::Global, SpaceKind::Shared),
        SHARED_TO_SHARED => (SpaceKind::Shared, SpaceKind::Shared),
        _ => (SpaceKind::Shared, SpaceKind::Global),
    };
    let (to, from) = (b.wide_address(to, to_space)?, b.wide_address(from, from_space)?);
    let size = b.source(size, Kind::W32)?;
    let mut more = [Slot::NONE; 4];
    if completes {
        let Some(Operand::Address(barrier)) = operands.next() else { return Err(DISAGREES) };
        more[0] = b.wide_address(barrier, SpaceKind::Shared)?;
    }
    if way == GLOBAL_TO_SHARED && form.take(W::MulticastCluster) {
        more[2] = b.source(operands.next().ok_or(DISAGREES)?, Kind::W32)?;
    }
    if form.take(W::L2CacheHint) {
        operands.next().ok_or(DISAGREES)?;
    }
    if way == SHARED_TO_GLOBAL && !reduces && form.take(W::CpMask) {
        more[1] = b.source(operands.next().ok_or(DISAGREES)?, Kind::W32)?;
    }
    if reduces {
        (more[3], _) = take_update(b, form).filter(|_| way != GLOBAL_TO_SHARED).ok_or(DISAGREES)?;
    }
    if operands.next().is_some() {
        return Err(DISAGREES);
    }
    let mut op = Op::new(run::copy_bulk);
    (op.a, op.b, op.c, op.imm) = (to, from, size, way);
    op.extra = b.extras(more);
    let bulk = |kind, space, register| Effect::Bulk(Bulk { kind, space, register, bytes: size });
    let kind = if reduces { AccessKind::Update } else { AccessKind::Write };
    b.states(bulk(AccessKind::Read, from_space, from));
    b.states(bulk(kind, to_space, to));
    if completes {
        b.states(mbarrier::completes(more[0], SpaceKind::Shared));
    }
    b.emit(op)
}

/// `st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [a], {..}, [mbar];` and
/// `red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [a], b, [mbar];`
pub(crate) fn store(
    b: &mut Builder<'_>,
    form: &mut Form<'_>,
    reduces: bool,
) -> Result<(), Problem> {
    form.take(W::Async);
    form.take(if reduces { W::Relaxed } else { W::Weak });
    form.take(W::Cluster);
    let is_generic = form.take_one(&[W::SharedCluster]).is_none();
    if !form.take(COMPLETES) {
        return Err("only completion at an mbarrier in shared memory is supported");
    }
    let count = form.take_from(&[(W::V2, 2), (W::V4, 4)]).filter(|_| !reduces).unwrap_or(1);
    let (update, size) = if reduces {
        take_update(b, form).ok_or(DISAGREES)?
    } else {
        let ty = form.ty_of(&TYPES).filter(|ty| ty.size() >= 4).ok_or(DISAGREES)?;
        (Slot::NONE, ty.size())
    };
    let [Operand::Address(to), values, Operand::Address(barrier)] =
        form.instruction().operands.as_slice()
    else {
        return Err(DISAGREES);
    };
    if count * size > 16 {
        return Err(DISAGREES);
    }
    let values = match values {
        Operand::Vector(parts) if parts.len() == count as usize => parts.as_slice(),
        one if count == 1 => std::slice::from_ref(one),
        _ => return Err(DISAGREES),
    };
    let kind = if size == 8 { Kind::W64 } else { Kind::F32 };
    let values = values.iter().map(|v| b.source(v, kind)).collect::<Result<Vec<_>, _>>()?;
    let mut op = Op::new(run::store);
    let space = if is_generic { SpaceKind::Generic } else { SpaceKind::Shared };
    (op.a, op.b) = (b.wide_address(to, space)?, b.wide_address(barrier, space)?);
    (op.c, op.d) = (Slot(count), Slot(size));
    op.extra = b.extras([Slot(is_generic.into()), update].into_iter().chain(values));
    let kind = if reduces { AccessKind::Update } else { AccessKind::Write };
    let order = if reduces { Order::RELAXED } else { Order::WEAK };
    b.states(Effect::Access(Access { count, order, ..Access::new(kind, space, size, op.a) }));
    b.states(mbarrier::completes(op.b, space));
    b.emit(op)
}
