//! Cluster instructions and `elect`.

use cuda_ptx::{Operand, ScalarType as T};

use super::build::builder::{Builder, OPERANDS, Problem, UNKNOWN};
use super::collective::{dest_pair, emit as emit_collective};
use super::sync::suspend;
use crate::exec::collective;
use crate::exec::form::Form;
use crate::exec::number::lane::Kind;
use crate::exec::sync::cluster as run;
use crate::isa::effect::Effect;
use crate::isa::slot::Slot;
use crate::machine::code::{Collective, Handler, Op};

/// `barrier.cluster.arrive` and `barrier.cluster.wait`.
pub(crate) fn barrier(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    form.take("cluster");
    form.take("aligned");
    let what = form.take_one(&["arrive", "wait"]).ok_or(UNKNOWN)?;
    let order =
        form.take_one(if what == "arrive" { &["release", "relaxed"] } else { &["acquire"] });
    if !form.is_spent() || !form.instruction().operands.is_empty() {
        return Err(UNKNOWN);
    }
    if what == "arrive" {
        if order != Some("relaxed") {
            b.states(Effect::Publish);
        }
        return b.emit(Op::new(run::arrive));
    }
    b.states(Effect::Learn);
    suspend::emit(b, Slot::NONE, |_, wait| {
        let mut op = Op::new(run::wait);
        op.extra = wait;
        op
    })
}

/// `elect.sync d|p, members;`
pub(crate) fn elect(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let [dest @ Operand::Pair(..), members] = form.instruction().operands.as_slice() else {
        return Err(OPERANDS);
    };
    if !form.take("sync") || !form.is_spent() {
        return Err(UNKNOWN);
    }
    let mut op = Op::new(collective::collective);
    let members = b.source(members, Kind::W32)?;
    let pred;
    (op.d, pred) = dest_pair(b, dest)?;
    op.cache = pred.0;
    let (deposit, complete) = (collective::deposit_nothing as _, run::complete_elect as _);
    emit_collective(b, op, Collective { members, deposit, complete })
}

/// `mapa.shared::cluster.u32 d, a, rank;`
pub(crate) fn map_address(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let (ty, [d, a, rank]) = (address_type(form)?, form.instruction().operands.as_slice()) else {
        return Err(OPERANDS);
    };
    let (kind, handler): (_, Handler) = match ty {
        T::U32 => (Kind::W32, run::map_address::<u32>),
        _ => (Kind::W64, run::map_address::<u64>),
    };
    let mut op = Op::new(handler);
    op.a = b.source(a, kind)?;
    op.b = b.source(rank, Kind::W32)?;
    op.d = b.dest(d, kind, false)?;
    b.emit(op)
}

/// `getctarank.shared::cluster.u32 d, a;`
pub(crate) fn rank(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let (ty, [d, a]) = (address_type(form)?, form.instruction().operands.as_slice()) else {
        return Err(OPERANDS);
    };
    let (kind, handler): (_, Handler) = match ty {
        T::U32 => (Kind::W32, run::rank::<u32>),
        _ => (Kind::W64, run::rank::<u64>),
    };
    let mut op = Op::new(handler);
    op.a = b.source(a, kind)?;
    op.d = b.dest(d, Kind::W32, false)?;
    b.emit(op)
}

fn address_type(form: &mut Form<'_>) -> Result<T, Problem> {
    form.take("shared::cluster");
    form.ty().filter(|ty| matches!(ty, T::U32 | T::U64) && form.is_spent()).ok_or(UNKNOWN)
}
