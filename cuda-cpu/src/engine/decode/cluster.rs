//! Clusters, of which each block is one of its own; elections; and hints that change nothing here.

use cuda_ptx::{Operand, ScalarType as T};

use super::builder::{Builder, OPERANDS, Problem, UNKNOWN};
use super::collective::{dest_pair, emit as emit_collective};
use super::form::Form;
use super::suspend;
use crate::engine::code::{Collective, PresetValue};
use crate::engine::exec::lane::Kind;
use crate::engine::exec::{cluster as run, collective, control, select};
use crate::engine::observe::Effect;
use crate::engine::op::{Handler, Op, Slot};

/// `barrier.cluster.arrive` and `.wait`
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
    address_type(form)?;
    let [d, _] = form.instruction().operands.as_slice() else { return Err(OPERANDS) };
    let mut op = Op::new(select::copy::<u32>);
    op.a = b.frame.preset(Kind::W32.class(), PresetValue::Const(0));
    op.d = b.dest(d, Kind::W32, false)?;
    b.emit(op)
}

fn address_type(form: &mut Form<'_>) -> Result<T, Problem> {
    form.take("shared::cluster");
    form.ty().filter(|ty| matches!(ty, T::U32 | T::U64) && form.is_spent()).ok_or(UNKNOWN)
}

/// `griddepcontrol`: grids run one after the other. `setmaxnreg`: there are registers enough.
pub(crate) fn hint(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let operands = form.instruction().operands.as_slice();
    let fits = match (form.opcode(), operands) {
        ("griddepcontrol", []) => form.take_one(&["launch_dependents", "wait"]).is_some(),
        ("setmaxnreg", [Operand::Int(count)]) => {
            let known = form.take_one(&["inc", "dec"]).is_some();
            let known = known && form.take("sync") && form.take("aligned") && form.take("u32");
            known && (24..=256).contains(count) && count % 8 == 0
        }
        _ => false,
    };
    if fits && form.is_spent() { b.emit(Op::new(control::nothing)) } else { Err(UNKNOWN) }
}

/// `createpolicy`: nobody looks at policies here, but programs may hand them on. Those for a fraction of accesses are
/// the bits that an H200 makes of them.
pub(crate) fn policy(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let what = form.take_one(&["fractional", "range", "cvt"]).ok_or(UNKNOWN)?;
    if what == "cvt" {
        let known = form.take("L2") && form.take("b64") && form.is_spent();
        let [d, a] = form.instruction().operands.as_slice() else { return Err(OPERANDS) };
        let mut op = Op::new(select::copy::<u64>);
        op.a = b.source(a, Kind::W64)?;
        op.d = b.dest(d, Kind::W64, false)?;
        return if known { b.emit(op) } else { Err(UNKNOWN) };
    }
    let primary = take_priority(form).ok_or(UNKNOWN)?;
    // Nothing in particular.
    let secondary = if take_priority(form) == Some(EVICT_FIRST) { 1 } else { 0 };
    let is_range = what == "range";
    if is_range {
        form.take("global");
    }
    if !form.take("b64") || !form.is_spent() {
        return Err(UNKNOWN);
    }
    let (d, fraction) = match form.instruction().operands.as_slice() {
        [d] if !is_range => (d, 1.0),
        [d, Operand::F64(bits)] if !is_range => (d, f64::from_bits(*bits)),
        [d, Operand::F32(bits)] if !is_range => (d, f64::from(f32::from_bits(*bits))),
        [d, Operand::Address(_), _, _] if is_range => (d, 1.0),
        _ => return Err(OPERANDS),
    };
    if !(fraction > 0.0 && fraction <= 1.0) {
        return Err(OPERANDS);
    }
    let sixteenths = ((fraction * 16.0).ceil() as u64).max(1) - 1;
    let bits = (0x100 | u64::from(is_range) << 7 | (primary | secondary) << 4 | sixteenths) << 52;
    let mut op = Op::new(select::copy::<u64>);
    op.a = b.frame.preset(Kind::W64.class(), PresetValue::Const(bits));
    op.d = b.dest(d, Kind::W64, false)?;
    b.emit(op)
}

const EVICT_FIRST: u64 = 2;

fn take_priority(form: &mut Form<'_>) -> Option<u64> {
    let names = ["L2::evict_last", "L2::evict_normal", "L2::evict_first", "L2::evict_unchanged"];
    // In the order in which they are written.
    let first =
        form.instruction().modifiers.iter().find(|m| form.has(m) && names.contains(&m.as_str()))?;
    form.take(first);
    Some(match first.as_str() {
        "L2::evict_last" => 4,
        "L2::evict_normal" => 6,
        "L2::evict_first" => EVICT_FIRST,
        _ => 0,
    })
}
