//! The state of mbarriers after each operation, and the lanes that `elect` elects.

use std::rc::Rc;

use super::{Case, kernel};

/// A case with one thread and the mbarrier `s`. After each operation, it stores the mbarrier, the count in the token,
/// and the resulting predicate.
fn mbarrier(name: &str, operations: &[&str]) -> Case {
    let mut body = "setp.ne.u32 p, lane, 0; @p ret; mov.u64 k, 0; mov.u32 n, 0;\n".to_owned();
    for (i, operation) in operations.iter().enumerate() {
        body += &format!(
            "setp.ne.u32 p, lane, 0;\n{operation}\nselp.u32 u, 1, 0, p; shr.u64 h, k, 43;
            st.global.b64 [o+{}], h; st.global.v2.b32 [o+{}], {{u, n}};\n",
            16 * i,
            16 * i + 8
        );
    }
    let registers = ".shared .align 8 .b64 s; .reg .b64 k, h; .reg .b32 n; .reg .pred p;";
    let nothing = Rc::new(vec![0; 64]);
    let inputs = [nothing.clone(), nothing.clone(), nothing];
    Case::new(
        format!("mbarrier {name}"),
        kernel(registers, &body),
        inputs,
        1,
        16 * operations.len(),
    )
}

const ARRIVE: &str = "mbarrier.arrive.shared.b64 k, [s];";

fn mbarriers() -> Vec<Case> {
    vec![
        mbarrier(
            "phases of three",
            &[
                "mbarrier.init.shared.b64 [s], 3;",
                ARRIVE,
                "mbarrier.pending_count.b64 n, k;",
                ARRIVE,
                "mbarrier.test_wait.parity.shared.b64 p, [s], 0;",
                "mbarrier.test_wait.parity.shared.b64 p, [s], 1;",
                ARRIVE,
                "mbarrier.pending_count.b64 n, k;",
                "mbarrier.test_wait.parity.shared.b64 p, [s], 0;",
                "mbarrier.test_wait.parity.shared.b64 p, [s], 1;",
                "mbarrier.test_wait.shared.b64 p, [s], k;",
                ARRIVE,
                "mbarrier.test_wait.shared.b64 p, [s], k;",
                "mbarrier.arrive.shared.b64 k, [s], 2;",
                "mbarrier.test_wait.shared.b64 p, [s], k;",
                ARRIVE,
                "mbarrier.arrive_drop.shared.b64 k, [s];",
                ARRIVE,
                ARRIVE,
                ARRIVE,
                ARRIVE,
                "mbarrier.inval.shared.b64 [s];",
            ],
        ),
        mbarrier(
            "transactions",
            &[
                "mbarrier.init.shared.b64 [s], 1;",
                "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [s], 100;",
                ARRIVE,
                "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [s], 40;",
                "mbarrier.try_wait.parity.shared.b64 p, [s], 0, 10;",
                "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [s], 60;",
                "mbarrier.try_wait.parity.shared.b64 p, [s], 0;",
                "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [s], 64;",
                "mbarrier.arrive.expect_tx.shared.b64 k, [s], 64;",
                "mbarrier.arrive.expect_tx.shared.b64 k, [s], 1048575;",
                "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [s], 1048575;",
                "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [s], 1;",
                "mbarrier.arrive_drop.expect_tx.shared.b64 k, [s], 7;",
                "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [s], 8;",
            ],
        ),
        mbarrier(
            "without completion",
            &[
                "mbarrier.init.shared.b64 [s], 1048575;",
                "mbarrier.arrive.noComplete.shared.b64 k, [s], 1048000;",
                "mbarrier.pending_count.b64 n, k;",
                "mbarrier.arrive_drop.noComplete.shared.b64 k, [s], 74;",
                "mbarrier.arrive_drop.shared.b64 k, [s], 500;",
                "mbarrier.arrive.shared.b64 k, [s];",
                "mbarrier.test_wait.shared.b64 p, [s], k;",
                "mbarrier.pending_count.b64 n, k;",
            ],
        ),
        mbarrier(
            "copies that arrive",
            &[
                "mbarrier.init.shared.b64 [s], 3;",
                "cp.async.mbarrier.arrive.shared.b64 [s]; cp.async.wait_all; nanosleep.u32 1000;",
                "cp.async.mbarrier.arrive.noinc.shared.b64 [s]; cp.async.wait_all; nanosleep.u32 1000;",
                ARRIVE,
                ARRIVE,
            ],
        ),
        mbarrier(
            "many",
            &[
                "mbarrier.init.shared.b64 [s], 1;",
                ARRIVE,
                ARRIVE,
                ARRIVE,
                ARRIVE,
                ARRIVE,
                ARRIVE,
                ARRIVE,
                ARRIVE,
                ARRIVE,
            ],
        ),
        mbarrier(
            "dropped to none",
            &[
                "mbarrier.init.shared.b64 [s], 2;",
                "mbarrier.arrive_drop.shared.b64 k, [s], 2;",
                "mbarrier.test_wait.shared.b64 p, [s], k;",
                "mbarrier.test_wait.parity.shared.b64 p, [s], 0;",
                "mbarrier.test_wait.parity.shared.b64 p, [s], 1;",
            ],
        ),
    ]
}

fn elect() -> Case {
    let masks = [u32::MAX, 0xFFFF_0000, 0x8000_0001, 0x00F0_0F00, 0x8000_0000, 0xAAAA_AAAA];
    let mut body = "mul.wide.u32 x, lane, 8; add.u64 o, o, x;\n".to_owned();
    for (i, mask) in masks.iter().enumerate() {
        body += &format!(
            "mov.u32 t, 77; shr.u32 u, {mask}, lane; and.b32 u, u, 1; setp.ne.u32 p, u, 0; setp.ne.u32 q, u, u;
            @!p bra L{i}; elect.sync t|q, {mask};\nL{i}: bar.warp.sync -1; selp.u32 u, 1, 0, q;
            st.global.v2.b32 [o+{}], {{t, u}};\n",
            256 * i
        );
    }
    let nothing = Rc::new(vec![0; 64]);
    let inputs = [nothing.clone(), nothing.clone(), nothing];
    Case::new(
        "elect.sync".to_owned(),
        kernel(".reg .pred p, q;", &body),
        inputs,
        1,
        256 * masks.len(),
    )
}

/// Cache policies are values that kernels may pass on.
fn policies() -> Case {
    let makes = [
        "createpolicy.fractional.L2::evict_last.b64 x, 1.0;",
        "createpolicy.fractional.L2::evict_first.b64 x;",
        "createpolicy.fractional.L2::evict_normal.b64 x, 0.5;",
        "createpolicy.fractional.L2::evict_unchanged.b64 x, 0.25;",
        "createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64 x, 0.5;",
        "createpolicy.fractional.L2::evict_last.L2::evict_first.b64 x, 0.1;",
        "mov.u64 y, 5; createpolicy.cvt.L2.b64 x, y;",
    ];
    let mut body = "setp.ne.u32 p, lane, 0; @p ret; mov.u64 y, 0x7f0000000000;\n".to_owned();
    for (i, make) in makes.iter().enumerate() {
        body += &format!("{make} st.global.b64 [o+{}], x;\n", 8 * i);
    }
    let nothing = Rc::new(vec![0; 64]);
    let inputs = [nothing.clone(), nothing.clone(), nothing];
    Case::new("createpolicy".to_owned(), kernel(".reg .pred p;", &body), inputs, 1, 8 * makes.len())
}

/// Special registers in a grid without clusters.
fn clusters() -> Case {
    let reads = [
        "mov.pred p, %is_explicit_cluster; selp.u32 t, 1, 0, p;",
        "mov.u32 t, %cluster_ctarank;",
        "mov.u32 t, %cluster_nctarank;",
        "mov.u32 t, %cluster_ctaid.x;",
        "mov.u32 t, %cluster_nctaid.x;",
        "mov.u32 t, %clusterid.x;",
        "mov.u32 t, %nclusterid.x;",
        "mov.u64 x, s; cvta.shared.u64 x, x; getctarank.u64 t, x;",
        "mov.u32 u, s; getctarank.shared::cluster.u32 t, u;",
        "mov.u32 u, s; mapa.shared::cluster.u32 u, u, 0; ld.shared::cluster.u32 t, [u];",
        "mov.u64 x, s; cvta.shared.u64 x, x; mapa.u64 x, x, 0; ld.u32 t, [x];",
        "mov.u64 x, s; cvta.shared.u64 x, x; isspacep.shared::cluster p, x; selp.u32 t, 1, 0, p;",
        "mov.u64 x, s; cvta.shared.u64 x, x; isspacep.shared::cta p, x; selp.u32 t, 1, 0, p;",
        "isspacep.shared::cluster p, o; selp.u32 t, 1, 0, p;",
        "barrier.cluster.arrive; barrier.cluster.wait; mov.u32 t, 5;",
        "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned; mov.u32 t, 6;",
        "barrier.cluster.arrive.relaxed; barrier.cluster.wait; mov.u32 t, 7;",
        "fence.mbarrier_init.release.cluster; fence.proxy.async; fence.proxy.async.shared::cta; mov.u32 t, 8;",
        "fence.proxy.alias; fence.proxy.async.global; fence.acq_rel.cluster; mov.u32 t, 9;",
        "griddepcontrol.launch_dependents; griddepcontrol.wait; mov.u32 t, 10;",
    ];
    let mut body = "mad.lo.u32 u, blk, 32, lane; mul.wide.u32 x, u, 128; add.u64 o, o, x; st.shared.u32 [s], 1234;\n"
        .to_owned();
    for (i, read) in reads.iter().enumerate() {
        body += &format!("{read} st.global.b32 [o+{}], t;\n", 4 * i);
    }
    let nothing = Rc::new(vec![0; 64]);
    let inputs = [nothing.clone(), nothing.clone(), nothing];
    Case::new(
        "clusters of one block".to_owned(),
        kernel(".shared .align 8 .b64 s; .reg .pred p;", &body),
        inputs,
        2,
        2 * 32 * 128,
    )
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![elect(), policies(), clusters()];
    cases.extend(mbarriers());
    cases
}
