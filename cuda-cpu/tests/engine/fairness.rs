//! Threads that wait for others, and loops of every kind: other threads run, and the launch can be ended.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cuda_cpu::{FaultKind, LaunchError, Limits};

use crate::args;
use crate::host::Host;

const HEADER: &str = ".version 7.0\n.target sm_70\n.address_size 64\n";

/// Loops without end, or with a distant one.
const ENDLESS: &str = "
.visible .entry barrier()
{
L:  bar.sync 0;
    bra L;
}
.visible .entry pairs()
{
    // Each warp waits for itself repeatedly.
    .reg .b32 %r<2>;
    mov.u32 %r0, %tid.x;
    shr.u32 %r0, %r0, 5;
L:  bar.sync %r0, 32;
    bra L;
}
.func tree(.param .b32 n)
{
    .reg .pred %p;
    .reg .b32 %r<2>;
    ld.param.u32 %r1, [n];
    setp.eq.u32 %p, %r1, 0;
    @%p ret;
    sub.u32 %r1, %r1, 1;
    call tree, (%r1);
    call tree, (%r1);
    ret;
}
.visible .entry recursion()
{
    .reg .b32 %r<2>;
    mov.u32 %r1, 200;
    call tree, (%r1);
    ret;
}
.visible .entry indexed()
{
    .reg .b32 %r<2>;
    mov.u32 %r1, 0;
T:  .branchtargets A, B;
A:  brx.idx %r1, T;
B:  ret;
}
.extern .func (.param .b64 r) malloc(.param .b64 a);
.visible .entry builtin()
{
    .reg .b64 %d<2>;
    mov.u64 %d0, 0xFFFFFFFFFFFFFFFF;
L:  call (%d1), malloc, (%d0);
    bra L;
}
.visible .entry asleep()
{
L:  nanosleep.u32 1;
    bra L;
}
";

const KERNELS: [&str; 6] = ["barrier", "pairs", "recursion", "indexed", "builtin", "asleep"];

fn kind(result: Result<(), LaunchError>) -> FaultKind {
    match result {
        Err(LaunchError::Fault(fault)) => fault.kind,
        other => panic!("no fault: {other:?}"),
    }
}

#[test]
fn endless_loops_reach_the_limit() {
    let mut h = Host::new(&format!("{HEADER}{ENDLESS}"));
    let limit = 100_000;
    h.limits.iterations = Some(limit);
    for kernel in KERNELS {
        for threads in [32, 50, 256] {
            let kind = kind(h.launch(kernel, 2, threads, args![]));
            assert_eq!(kind, FaultKind::Budget { limit }, "{kernel}, {threads} threads");
        }
    }
}

#[test]
fn endless_loops_can_be_cancelled() {
    for kernel in KERNELS {
        let cancel: &AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
        let mut h = Host::with_pool(&format!("{HEADER}{ENDLESS}"), 2);
        h.limits = Limits { cancel: Some(cancel), ..Limits::default() };
        std::thread::scope(|s| {
            s.spawn(|| {
                std::thread::sleep(Duration::from_millis(20));
                cancel.store(true, Ordering::Relaxed);
            });
            let kind = kind(h.launch(kernel, 4, 64, args![]));
            assert_eq!(kind, FaultKind::Cancelled, "{kernel}");
        });
    }
}

#[test]
fn blocks_at_barriers_yield_to_others() {
    // The first block waits for the last one, in a loop with a barrier.
    let mut h = Host::new(&format!(
        "{HEADER}.visible .entry k(.param .u64 x)
        {{
            .reg .pred %p; .reg .b32 %r<3>; .reg .b64 %d<2>;
            ld.param.u64 %d1, [x];
            mov.u32 %r1, %ctaid.x;
            setp.ne.u32 %p, %r1, 0;
            @%p bra SET;
        L:  bar.sync 0;
            ld.global.u32 %r2, [%d1];
            setp.eq.u32 %p, %r2, 0;
            @%p bra L;
            ret;
        SET: st.global.u32 [%d1], %r1;
            ret;
        }}"
    ));
    h.limits.iterations = Some(1 << 30);
    for threads in [32, 128, 1024] {
        let x = h.zeros::<u32>(1);
        h.run("k", 2, threads, args![x]);
    }
}

#[test]
fn barrier_completes_while_its_warp_runs() {
    // Lanes 0 to 15 wait for the others, which arrive and then wait for a word from the first ones.
    let mut h = Host::new(&format!(
        "{HEADER}.visible .entry k()
        {{
            .shared .b32 word;
            .reg .pred %p; .reg .b32 %r<3>;
            mov.u32 %r1, %tid.x;
            st.shared.u32 [word], 0;
            setp.ge.u32 %p, %r1, 16;
            @%p bra OTHERS;
            bar.sync 1, 32;
            st.volatile.shared.u32 [word], 1;
            ret;
        OTHERS:
            bar.arrive 1, 32;
        L:  ld.volatile.shared.u32 %r2, [word];
            setp.eq.u32 %p, %r2, 0;
            @%p bra L;
            ret;
        }}"
    ));
    h.limits.iterations = Some(1 << 24);
    h.run("k", 1, 32, args![]);
}
