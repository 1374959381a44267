//! `fence` and `membar`. All of them become the same fence. The CPU device performs copies through other proxies in the
//! same way as other accesses.

use cuda_ptx::{Opcode as O, Operand, Word as W};

use crate::decode::build::builder::{Builder, OPERANDS, Problem, UNKNOWN};
use crate::exec::control;
use crate::exec::form::Form;
use crate::isa::effect::Effect;
use crate::machine::code::Op;

/// Decodes `fence` or `membar`.
pub(crate) fn fence(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let mut over_bytes = false;
    let known = match form.opcode() {
        O::Membar if form.take(W::Proxy) => between_proxies(form),
        O::Membar => form.take_one(&[W::Cta, W::Gl, W::Sys]).is_some(),
        _ if form.take(W::MbarrierInit) => form.take(W::Release) && form.take(W::Cluster),
        _ if !form.take(W::Proxy) => of_threads(form),
        _ if form.take(W::TensormapGeneric) => {
            let order = form.take_one(&[W::Acquire, W::Release]);
            over_bytes = order == Some(W::Acquire);
            order.is_some() && form.take_one(&SCOPES).is_some()
        }
        _ if form.take(W::AsyncGeneric) => of_shared(form),
        _ => between_proxies(form),
    };
    if !known || !form.is_spent() {
        return Err(UNKNOWN);
    }
    match form.instruction().operands.as_slice() {
        [] if !over_bytes => {}
        [Operand::Address(_), Operand::Int(128)] if over_bytes => {}
        _ => return Err(OPERANDS),
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
