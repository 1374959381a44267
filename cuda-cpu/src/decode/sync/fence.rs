//! `fence` and `membar`. All of them become the same fence. The CPU device performs copies through other proxies in the
//! same way as other accesses.

use cuda_ptx::{Operand, Word as W};

use crate::decode::build::builder::{Builder, DISAGREES, Problem};
use crate::decode::form::Form;
use crate::exec::control;
use crate::isa::effect::Effect;
use crate::machine::code::Op;

/// Decodes `membar`.
pub(crate) fn membar(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let known = match form.take(W::Proxy) {
        true => between_proxies(form),
        false => form.take_one(&[W::Cta, W::Gl, W::Sys]).is_some(),
    };
    emit(b, form, known, false)
}

/// Decodes `fence`.
pub(crate) fn fence(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let mut over_bytes = false;
    let known = if form.take(W::MbarrierInit) {
        form.take(W::Release) && form.take(W::Cluster)
    } else if !form.take(W::Proxy) {
        of_threads(form)
    } else if form.take(W::TensormapGeneric) {
        let order = form.take_one(&[W::Acquire, W::Release]);
        over_bytes = order == Some(W::Acquire);
        order.is_some() && form.take_one(&SCOPES).is_some()
    } else if form.take(W::AsyncGeneric) {
        of_shared(form)
    } else {
        between_proxies(form)
    };
    emit(b, form, known, over_bytes)
}

/// Emits a fence, which has operands if it is for a range of bytes.
fn emit(
    b: &mut Builder<'_>,
    form: &Form<'_>,
    known: bool,
    over_bytes: bool,
) -> Result<(), Problem> {
    if !known {
        return Err(DISAGREES);
    }
    match form.instruction().operands.as_slice() {
        [] if !over_bytes => {}
        [Operand::Address(_), Operand::Int(128)] if over_bytes => {}
        _ => return Err(DISAGREES),
    }
    b.states(Effect::Fence);
    b.emit(Op::new(control::fence))
}

const SCOPES: [W; 4] = [W::Cta, W::Cluster, W::Gpu, W::Sys];

fn of_threads(form: &mut Form<'_>) -> bool {
    if form.has(W::SyncRestrictSharedCta) || form.has(W::SyncRestrictSharedCluster) {
        return of_shared(form);
    }
    form.take_one(&[W::Sc, W::AcqRel, W::Acquire, W::Release]);
    form.take_one(&SCOPES).is_some()
}

/// `.acquire.sync_restrict::shared::cluster.cluster`, `.release.sync_restrict::shared::cta.cluster`
fn of_shared(form: &mut Form<'_>) -> bool {
    let restriction = match form.take_one(&[W::Acquire, W::Release]) {
        Some(W::Acquire) => W::SyncRestrictSharedCluster,
        _ => W::SyncRestrictSharedCta,
    };
    form.take(restriction) && form.take(W::Cluster)
}

fn between_proxies(form: &mut Form<'_>) -> bool {
    if form.take(W::Alias) {
        return true;
    }
    let known = form.take(W::Async);
    form.take_one(&[W::Global, W::SharedCta, W::SharedCluster]);
    known
}
