//! Named barriers: the threads for which they wait, and conflicting arrivals.

use cuda_cpu::{FaultKind, LaunchError, Schedule};

use crate::args;
use crate::host::Host;

/// Returns a kernel with the output address in `o` and the thread's index in `t`.
fn kernel(body: &str) -> String {
    format!(
        ".version 8.4\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 out) {{
.reg .pred p, q; .reg .b32 t, n; .reg .b64 o, at;
ld.param.u64 o, [out]; mov.u32 t, %tid.x; mul.wide.u32 at, t, 4; add.u64 at, at, o;
{body}
ret; }}"
    )
}

/// Runs a kernel in every order.
fn run(body: &str, threads: u32) -> Vec<u32> {
    let text = kernel(body);
    let seeds = (0..6).map(|seed| Schedule::Shuffled { seed });
    let mut results =
        [Schedule::Parallel, Schedule::Fixed].into_iter().chain(seeds).map(|schedule| {
            let mut host = Host::new(&text);
            host.schedule = schedule;
            let out = host.zeros::<u32>(128);
            let done = host.launch("k", 1, threads, args![out]);
            done.unwrap_or_else(|error| panic!("{schedule:?}: {error}"));
            host.download::<u32>(out, 128)
        });
    let first = results.next().unwrap_or_default();
    assert!(results.all(|other| other == first));
    first
}

fn fault(body: &str, threads: u32) -> FaultKind {
    let host = Host::new(&kernel(body));
    match host.launch("k", 1, threads, args![host.zeros::<u32>(128)]) {
        Err(LaunchError::Fault(fault)) => fault.kind,
        other => panic!("no fault: {other:?}"),
    }
}

/// A thread count is in whole warps. Lanes that do not exist or have exited count as arrived, but do not vote.
#[test]
fn exited_lanes_count_as_arrived() {
    let counts = "setp.ge.u32 p, t, 0;
        bar.red.and.pred q, 1, 64, p; selp.u32 n, 1, 0, q; st.global.u32 [o], n;
        bar.red.popc.u32 n, 1, 64, p; st.global.u32 [o+4], n;
        bar.red.or.pred q, 1, 64, !p; selp.u32 n, 1, 0, q; st.global.u32 [o+8], n;";
    assert_eq!(run(counts, 50)[..3], [1, 50, 0]);
    assert_eq!(run(counts, 64)[..3], [1, 64, 0]);
    // Lanes exit before, and after, the others have arrived.
    for leave in ["@p bra GONE; bar.sync 1, 64; GONE: ret;", "@p ret; bar.sync 1, 64;"] {
        run(&format!("setp.ge.u32 p, t, 50; {leave}"), 64);
        run(&format!("setp.ge.u32 p, t, 50; {}", leave.replace("bar.sync", "barrier.sync")), 64);
    }
    let and = "setp.ge.u32 p, t, 50; @p bra GONE; setp.lt.u32 q, t, 50;
        bar.red.and.pred q, 1, 64, q; selp.u32 n, 1, 0, q; st.global.u32 [at], n; GONE:";
    let out = run(and, 64);
    assert!(out[..50].iter().all(|&held| held == 1) && out[50..].iter().all(|&n| n == 0));
}

/// A thread that completes a barrier without waiting for it may use it again at once.
#[test]
fn completed_barrier_can_be_reused() {
    let again = "setp.lt.u32 p, t, 32; @p bra FIRST;
        bar.sync 2, 64; bar.arrive 1, 64; bar.arrive 1, 64; bar.sync 3, 64; bra END;
        FIRST: bar.arrive 1, 64; bar.sync 2, 64; bar.sync 3, 64; bar.sync 1, 64; END:";
    run(again, 64);
    let alone = "setp.lt.u32 p, t, 32; @p bra FIRST;
        bar.sync 2, 64; bar.arrive 1, 64; bar.sync 1, 32; bra END;
        FIRST: bar.arrive 1, 64; bar.sync 2, 64; END:";
    run(alone, 64);
}

#[test]
fn conflicting_arrivals_fault() {
    let two = |first: &str, second: &str| {
        format!(
            "setp.lt.u32 p, t, 32; setp.lt.u32 q, t, 48; @p bra FIRST; {second} bra END; FIRST: {first} END:"
        )
    };
    let counts = |threads, others| FaultKind::BarrierCount { barrier: 1, threads, others };
    assert_eq!(fault(&two("bar.sync 1, 64;", "bar.sync 1, 96;"), 64), counts(96, 64));
    assert_eq!(fault(&two("bar.sync 1;", "bar.sync 1, 32;"), 64), counts(32, 64));
    run(&two("bar.sync 1;", "bar.sync 1, 64;"), 64);
    run(&two("bar.sync 1, 64;", "bar.arrive 1, 64;"), 64);
    let purposes = FaultKind::BarrierPurpose { barrier: 1 };
    let (popc, and) = ("bar.red.popc.u32 n, 1, q;", "bar.red.and.pred q, 1, q;");
    run(&two(popc, popc), 64);
    for (first, second) in [(popc, "bar.sync 1;"), ("bar.sync 1;", popc), (popc, and)] {
        assert_eq!(fault(&two(first, second), 64), purposes, "{first} {second}");
    }
    let bad = |barrier, threads| FaultKind::BadBarrier { barrier, threads };
    assert_eq!(fault("mov.u32 n, 16; bar.sync n, 64;", 64), bad(16, None));
    assert_eq!(fault("bar.sync 1, 40;", 64), bad(1, Some(40)));
    assert_eq!(fault("bar.sync 1, -32;", 64), bad(1, Some(u32::MAX - 31)));
}
