//! `fence` and `membar`. All of them become the same fence. The CPU device performs copies through other proxies in the
//! same way as other accesses.

use cuda_ptx::Operand;

use crate::decode::build::builder::{Builder, OPERANDS, Problem, UNKNOWN};
use crate::exec::control;
use crate::exec::form::Form;
use crate::isa::effect::Effect;
use crate::machine::code::Op;

/// Decodes `fence` or `membar`.
pub(crate) fn fence(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let mut over_bytes = false;
    let known = match form.opcode() {
        "membar" if form.take("proxy") => between_proxies(form),
        "membar" => form.take_one(&["cta", "gl", "sys"]).is_some(),
        _ if form.take("mbarrier_init") => form.take("release") && form.take("cluster"),
        _ if !form.take("proxy") => of_threads(form),
        _ if form.take("tensormap::generic") => {
            let order = form.take_one(&["acquire", "release"]);
            over_bytes = order == Some("acquire");
            order.is_some() && form.take_one(&SCOPES).is_some()
        }
        _ if form.take("async::generic") => of_shared(form),
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

const SCOPES: [&str; 4] = ["cta", "cluster", "gpu", "sys"];

fn of_threads(form: &mut Form<'_>) -> bool {
    if form.has("sync_restrict::shared::cta") || form.has("sync_restrict::shared::cluster") {
        return of_shared(form);
    }
    form.take_one(&["sc", "acq_rel", "acquire", "release"]);
    form.take_one(&SCOPES).is_some()
}

/// `.acquire.sync_restrict::shared::cluster.cluster`, `.release.sync_restrict::shared::cta.cluster`
fn of_shared(form: &mut Form<'_>) -> bool {
    let restriction = match form.take_one(&["acquire", "release"]) {
        Some("acquire") => "sync_restrict::shared::cluster",
        _ => "sync_restrict::shared::cta",
    };
    form.take(restriction) && form.take("cluster")
}

fn between_proxies(form: &mut Form<'_>) -> bool {
    if form.take("alias") {
        return true;
    }
    let known = form.take("async");
    form.take_one(&["global", "shared::cta", "shared::cluster"]);
    known
}
