//! `shfl`, `vote`, `match`, `redux`, `elect`, `activemask`, `bar.warp.sync`, and the barriers of the block.

use cuda_ptx::{Operand, ScalarType as T, Word as W};

use super::{
    build::builder::{Builder, DISAGREES, Problem},
    sync::cluster,
};
use crate::decode::form::Form;
use crate::exec::collective as run;
use crate::exec::collective::{
    PRED_NOT, REDUX_ABS, REDUX_MAX, REDUX_NAN, REDUX_SIGNED, active_mask,
};
use crate::exec::number::lane::Kind;
use crate::isa::effect::Effect;
use crate::isa::operand::{Barrier, BarrierKind, Class, PresetValue, Reduce, Slot};
use crate::lanes::FULL;
use crate::machine::code::{Collective, Control, Op};

/// Operations of `redux`, by the mode of the handler.
const REDUX: [W; 6] = [W::Add, W::Min, W::Max, W::And, W::Or, W::Xor];

/// Emits a meeting of the whole warp. The next op accesses the registers of all lanes.
pub(crate) fn whole_warp(b: &mut Builder<'_>) -> Result<(), Problem> {
    let members = b.frame.preset(Class::W32, PresetValue::Const(FULL.into()));
    let (deposit, complete) = (run::deposit_nothing as _, run::complete_nothing as _);
    emit(b, Op::new(run::collective), Collective { members, deposit, complete })
}

/// Emits a collective whose operands are in `op`.
pub(super) fn emit(b: &mut Builder<'_>, mut op: Op, collective: Collective) -> Result<(), Problem> {
    b.states(Effect::Meeting(collective.members));
    op.extra = b.add_control(Control::Collective(collective));
    b.emit_self_guarded(op)
}

/// Returns the registers of a destination `d|p`. Without a predicate, the second one is `Slot::NONE`.
pub(super) fn dest_pair(b: &mut Builder<'_>, dest: &Operand) -> Result<(Slot, Slot), Problem> {
    let (d, p) = match dest {
        Operand::Pair(d, p) => (&**d, Some(&**p)),
        d => (d, None),
    };
    let d = b.dest(d, Kind::W32, false)?;
    let p = match p {
        Some(p) => b.dest(p, Kind::Pred, false)?,
        None => Slot::NONE,
    };
    Ok((d, p))
}

/// Returns the register of the member mask: the operand, or without `.sync` the executing lanes. The form without
/// `.sync` is for modules before PTX 6.4, or for GPUs before sm_70, whose warps run in lockstep.
fn members(b: &mut Builder<'_>, sync: bool, given: &[Operand]) -> Result<Slot, Problem> {
    match given {
        [members] if sync => b.source(members, Kind::W32),
        [] if !sync => {
            let mut op = Op::new(active_mask);
            op.d = b.frame.temporary(Class::W32);
            b.emit_before(op)?;
            Ok(op.d)
        }
        _ => Err(DISAGREES),
    }
}

/// `shfl.sync.bfly.b32 d|p, a, b, c, members;`
pub(crate) fn shfl(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let sync = form.take(W::Sync);
    let mode = form.take_code(&[W::Up, W::Down, W::Bfly, W::Idx]).ok_or(DISAGREES)?;
    let ty = form.ty();
    if ty != Some(T::B32) {
        return Err(DISAGREES);
    }
    let [dest, a, lane, clamp, given @ ..] = form.instruction().operands.as_slice() else {
        return Err(DISAGREES);
    };
    let mut op = Op::new(run::collective);
    op.imm = mode;
    op.a = b.source(a, Kind::W32)?;
    op.b = b.source(lane, Kind::W32)?;
    op.c = b.source(clamp, Kind::W32)?;
    let members = members(b, sync, given)?;
    let pred;
    (op.d, pred) = dest_pair(b, dest)?;
    op.cache = pred.0;
    let (deposit, complete) = (run::deposit_32 as _, run::complete_shfl as _);
    let shuffle = Collective { members, deposit, complete };
    b.states(Effect::Shuffle(members));
    emit(b, op, shuffle)
}

/// `elect.sync d|p, members;`
pub(crate) fn elect(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let [dest @ Operand::Pair(..), members] = form.instruction().operands.as_slice() else {
        return Err(DISAGREES);
    };
    if !form.take(W::Sync) {
        return Err(DISAGREES);
    }
    let mut op = Op::new(run::collective);
    let members = b.source(members, Kind::W32)?;
    let pred;
    (op.d, pred) = dest_pair(b, dest)?;
    op.cache = pred.0;
    let (deposit, complete) = (run::deposit_nothing as _, run::complete_elect as _);
    emit(b, op, Collective { members, deposit, complete })
}

/// `vote.sync.ballot.b32 d, p, members;`
pub(crate) fn vote(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let sync = form.take(W::Sync);
    let ballot = form.has(W::Ballot);
    let mode = form.take_code(&[W::All, W::Any, W::Uni, W::Ballot]).ok_or(DISAGREES)?;
    let wanted = if ballot { T::B32 } else { T::Pred };
    if form.ty() != Some(wanted) {
        return Err(DISAGREES);
    }
    let [dest, p, given @ ..] = form.instruction().operands.as_slice() else {
        return Err(DISAGREES);
    };
    let mut op = Op::new(run::collective);
    let not;
    (op.a, not) = b.pred(p)?;
    op.imm = mode | if not { PRED_NOT } else { 0 };
    let members = members(b, sync, given)?;
    let kind = if ballot { Kind::W32 } else { Kind::Pred };
    op.d = b.dest(dest, kind, false)?;
    let (deposit, complete) = (run::deposit_pred as _, run::complete_vote as _);
    emit(b, op, Collective { members, deposit, complete })
}

/// `match.any.sync.b32 d, a, members;`
pub(crate) fn match_lanes(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let mode = form.take_one(&[W::Any, W::All]).filter(|_| form.take(W::Sync)).ok_or(DISAGREES)?;
    let kind = match form.ty() {
        Some(T::B32) => Kind::W32,
        Some(T::B64) => Kind::W64,
        _ => return Err(DISAGREES),
    };
    let [dest, a, members] = form.instruction().operands.as_slice() else { return Err(DISAGREES) };
    let mut op = Op::new(run::collective);
    op.a = b.source(a, kind)?;
    let members = b.source(members, Kind::W32)?;
    let pred;
    (op.d, pred) = dest_pair(b, dest)?;
    op.cache = pred.0;
    let deposit = if kind == Kind::W32 { run::deposit_32 as _ } else { run::deposit_64 as _ };
    let complete =
        if mode == W::Any { run::complete_match_any as _ } else { run::complete_match_all as _ };
    emit(b, op, Collective { members, deposit, complete })
}

/// `redux.sync.add.s32 d, a, members;`
pub(crate) fn redux(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let name = form.take_one(&REDUX).filter(|_| form.take(W::Sync)).ok_or(DISAGREES)?;
    if form.has_ty(T::F32) {
        return redux_float(b, form, name);
    }
    let signed = match (form.ty(), name) {
        (Some(T::S32), W::Add | W::Min | W::Max) => REDUX_SIGNED,
        (Some(T::U32), W::Add | W::Min | W::Max) | (Some(T::B32), W::And | W::Or | W::Xor) => 0,
        _ => return Err(DISAGREES),
    };
    let [dest, a, members] = form.instruction().operands.as_slice() else { return Err(DISAGREES) };
    let mut op = Op::new(run::collective);
    op.imm = REDUX.iter().position(|word| *word == name).unwrap_or(0) as u64 | signed;
    op.a = b.source(a, Kind::W32)?;
    let members = b.source(members, Kind::W32)?;
    op.d = b.dest(dest, Kind::W32, false)?;
    let (deposit, complete) = (run::deposit_32 as _, run::complete_redux as _);
    emit(b, op, Collective { members, deposit, complete })
}

/// `redux.sync.min.abs.NaN.f32 d, a, members;`
fn redux_float(b: &mut Builder<'_>, form: &mut Form<'_>, name: W) -> Result<(), Problem> {
    let bit = |set: bool, bit| if set { bit } else { 0 };
    let imm = bit(form.take(W::Abs), REDUX_ABS) | bit(form.take(W::PropagateNan), REDUX_NAN);
    let maximum = match name {
        W::Min => 0,
        W::Max => REDUX_MAX,
        _ => return Err(DISAGREES),
    };
    if form.ty() != Some(T::F32) {
        return Err(DISAGREES);
    }
    let [dest, a, members] = form.instruction().operands.as_slice() else { return Err(DISAGREES) };
    let mut op = Op::new(run::collective);
    op.imm = imm | maximum;
    op.a = b.source(a, Kind::F32)?;
    let members = b.source(members, Kind::W32)?;
    op.d = b.dest(dest, Kind::F32, false)?;
    let (deposit, complete) = (run::deposit_32 as _, run::complete_redux_float as _);
    emit(b, op, Collective { members, deposit, complete })
}

/// `activemask.b32 d;`
pub(crate) fn activemask(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let ty = form.ty();
    let [dest] = form.instruction().operands.as_slice() else { return Err(DISAGREES) };
    if ty != Some(T::B32) {
        return Err(DISAGREES);
    }
    let mut op = Op::new(active_mask);
    op.d = b.dest(dest, Kind::W32, false)?;
    b.emit(op)
}

/// Decodes `bar`, which is always aligned, and `barrier`.
pub(crate) fn barrier(
    b: &mut Builder<'_>,
    form: &mut Form<'_>,
    aligned: bool,
) -> Result<(), Problem> {
    if form.has(W::Cluster) {
        return cluster::barrier(b, form);
    }
    form.take(W::Cta);
    let aligned = form.take(W::Aligned) || aligned;
    if form.take(W::Warp) {
        return warp_barrier(b, form);
    }
    let what = form.take_one(&[W::Sync, W::Arrive, W::Red]).ok_or(DISAGREES)?;
    let operands = form.instruction().operands.as_slice();
    if what == W::Red {
        return reducing_barrier(b, form, aligned);
    }
    let (id, threads) = match operands {
        [id] => (id, None),
        [id, threads] => (id, Some(threads)),
        _ => return Err(DISAGREES),
    };
    let kind = if what == W::Sync { BarrierKind::Sync } else { BarrierKind::Arrive };
    emit_barrier(b, id, threads, kind, aligned)
}

fn emit_barrier(
    b: &mut Builder<'_>,
    id: &Operand,
    threads: Option<&Operand>,
    kind: BarrierKind,
    aligned: bool,
) -> Result<(), Problem> {
    let constant = matches!((id, threads), (Operand::Int(_), None | Some(Operand::Int(_))));
    let id = b.source(id, Kind::W32)?;
    let threads = match threads {
        Some(threads) => b.source(threads, Kind::W32)?,
        None => Slot::NONE,
    };
    b.states(Effect::Barrier(id));
    b.control(Control::Barrier(Barrier { id, threads, kind, aligned, constant }))
}

/// `bar.red.popc.u32 d, a{, b}, p;`
fn reducing_barrier(
    b: &mut Builder<'_>,
    form: &mut Form<'_>,
    aligned: bool,
) -> Result<(), Problem> {
    let how = form.take_one(&[W::Popc, W::And, W::Or]).ok_or(DISAGREES)?;
    let ty = form.ty().ok_or(DISAGREES)?;
    let (how, kind) = match (how, ty) {
        (W::Popc, T::U32) => (Reduce::Popc, Kind::W32),
        (W::And, T::Pred) => (Reduce::And, Kind::Pred),
        (W::Or, T::Pred) => (Reduce::Or, Kind::Pred),
        _ => return Err(DISAGREES),
    };
    let (dest, id, threads, p) = match form.instruction().operands.as_slice() {
        [d, id, p] => (d, id, None, p),
        [d, id, threads, p] => (d, id, Some(threads), p),
        _ => return Err(DISAGREES),
    };
    let (input, negated) = b.pred(p)?;
    let output = b.dest(dest, kind, false)?;
    let kind = BarrierKind::Reduce { how, input, negated, output };
    emit_barrier(b, id, threads, kind, aligned)
}

fn warp_barrier(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let [members] = form.instruction().operands.as_slice() else { return Err(DISAGREES) };
    if !form.take(W::Sync) {
        return Err(DISAGREES);
    }
    let members = b.source(members, Kind::W32)?;
    let op = Op::new(run::collective);
    let (deposit, complete) = (run::deposit_nothing as _, run::complete_nothing as _);
    emit(b, op, Collective { members, deposit, complete })
}
