//! The barrier of a cluster, and cluster addresses.

use cuda_ptx::{ScalarType as T, Word as W};

use crate::decode::build::builder::{Builder, DISAGREES, Problem};
use crate::decode::form::Form;
use crate::decode::sync;
use crate::exec::number::lane::Kind;
use crate::exec::sync::cluster as run;
use crate::isa::effect::Effect;
use crate::isa::operand::Slot;
use crate::machine::code::{Handler, Op};

/// `barrier.cluster.arrive` and `barrier.cluster.wait`.
pub(crate) fn barrier(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    form.take(W::Cluster);
    form.take(W::Aligned);
    let what = form.take_one(&[W::Arrive, W::Wait]).ok_or(DISAGREES)?;
    let order =
        form.take_one(if what == W::Arrive { &[W::Release, W::Relaxed] } else { &[W::Acquire] });
    if !form.instruction().operands.is_empty() {
        return Err(DISAGREES);
    }
    if what == W::Arrive {
        if order != Some(W::Relaxed) {
            b.states(Effect::Publish);
        }
        return b.emit(Op::new(run::arrive));
    }
    b.states(Effect::Learn);
    sync::emit_suspension(b, Slot::NONE, |_, wait| {
        let mut op = Op::new(run::wait);
        op.extra = wait;
        op
    })
}

/// `mapa.shared::cluster.u32 d, a, rank;`
pub(crate) fn map_address(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let (ty, [d, a, rank]) = (address_type(form)?, form.instruction().operands.as_slice()) else {
        return Err(DISAGREES);
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
        return Err(DISAGREES);
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
    form.take(W::SharedCluster);
    form.ty().filter(|ty| matches!(ty, T::U32 | T::U64)).ok_or(DISAGREES)
}
