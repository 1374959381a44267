//! Fixed and shuffled orders.

use cuda_cpu::{Checks, Schedule};

use crate::args;
use crate::host::Host;

/// A kernel whose results show the order of execution: clocks, ranks of arrival, and the last write.
const ORDER: &str = ".version 7.0
.target sm_70
.address_size 64
.visible .entry tells(.param .u64 x, .param .u64 next)
{
    .reg .pred %p; .reg .b32 %r<8>; .reg .b64 %d<8>;
    ld.param.u64 %d1, [x];
    ld.param.u64 %d2, [next];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mad.lo.u32 %r4, %r2, %r3, %r1;
    mul.wide.u32 %d3, %r4, 16;
    add.u64 %d3, %d1, %d3;
    mov.u64 %d4, %clock64;
    mov.u64 %d5, %globaltimer;
    atom.global.add.u32 %r5, [%d2], 1;
    mov.u32 %r6, %clock;
    add.u32 %r6, %r6, %r5;
    st.global.u64 [%d3], %d4;
    st.global.u32 [%d3+8], %r5;
    st.global.u32 [%d3+12], %r6;
    and.b32 %r7, %r1, 3;
L:  sub.s32 %r7, %r7, 1;
    atom.global.add.u32 %r5, [%d2], 1;
    setp.ge.s32 %p, %r7, 0;
    @%p bra L;
    st.global.u64 [%d3], %d5;
    st.global.u32 [%d3+8], %r5;
    ret;
}";

fn told(schedule: Schedule, checks: Checks) -> Vec<u32> {
    let mut h = Host::with_pool(ORDER, 3);
    (h.schedule, h.checks) = (schedule, checks);
    let (blocks, threads) = (7, 100);
    let words = (blocks * threads * 4) as usize;
    let (x, next) = (h.zeros::<u32>(words), h.zeros::<u32>(1));
    h.run("tells", blocks, threads, args![x, next]);
    h.download(x, words)
}

#[test]
fn fixed_order_is_deterministic() {
    let first = told(Schedule::Fixed, Checks::none());
    for _ in 0..4 {
        assert!(told(Schedule::Fixed, Checks::none()) == first);
    }
    // The checks do not change the order.
    assert!(told(Schedule::Fixed, Checks::all()) == first);
}

#[test]
fn shuffled_order_depends_only_on_the_seed() {
    let of = |seed| told(Schedule::Shuffled { seed }, Checks::none());
    let all: Vec<_> = (0..8).map(of).collect();
    for (seed, first) in all.iter().enumerate() {
        assert!(of(seed as u64) == *first);
        assert!(all.iter().filter(|other| *other == first).count() == 1, "{seed} is like another");
    }
}

/// A bug that shows in some orders only: the kernel assumes that the last block runs last.
const LUCKY: &str = ".version 7.0
.target sm_70
.address_size 64
.visible .entry lucky(.param .u64 x)
{
    .reg .pred %p; .reg .b32 %r<4>; .reg .b64 %d<2>;
    ld.param.u64 %d1, [x];
    mov.u32 %r1, %ctaid.x;
    atom.global.max.u32 %r2, [%d1], %r1;
    setp.gt.u32 %p, %r2, %r1;
    @%p trap;
    ret;
}
.visible .entry lucky_warps(.param .u64 x)
{
    // The kernel assumes that warp 1 finds the value that warp 0 writes.
    .shared .b32 word;
    .reg .pred %p; .reg .b32 %r<4>;
    mov.u32 %r1, %tid.x;
    st.volatile.shared.u32 [word], 0;
    bar.sync 0;
    setp.ge.u32 %p, %r1, 32;
    @%p bra SECOND;
    mov.u32 %r2, 1;
    st.volatile.shared.u32 [word], %r2;
    ret;
SECOND:
    ld.volatile.shared.u32 %r3, [word];
    setp.eq.u32 %p, %r3, 0;
    @%p trap;
    ret;
}";

#[test]
fn shuffled_orders_reveal_order_dependent_bugs() {
    for (kernel, blocks) in [("lucky", 20), ("lucky_warps", 1)] {
        let fails = |schedule| {
            let mut h = Host::new(LUCKY);
            (h.schedule, h.checks) = (schedule, Checks::none());
            h.launch(kernel, blocks, 64, args![h.zeros::<u32>(1)]).is_err()
        };
        assert!(!fails(Schedule::Fixed), "{kernel}");
        let found = (0..20).filter(|&seed| fails(Schedule::Shuffled { seed })).count();
        assert!(found >= 4, "{kernel}: {found} of 20 orders");
    }
}

/// Blocks that wait for each other, and loops that wait for time to pass, end in every order.
#[test]
fn waiting_kernels_end_in_every_order() {
    let timed = include_str!("../../../kernels/timed.ptx");
    for schedule in [Schedule::Fixed, Schedule::Shuffled { seed: 3 }] {
        let mut h = Host::new(timed);
        h.schedule = schedule;
        let elapsed = || {
            let elapsed = h.zeros::<u64>(1);
            h.run("timed", 1, 1, args![elapsed, 1000u32]);
            h.download::<u64>(elapsed, 1)[0]
        };
        let first = elapsed();
        assert!((1000..1100).contains(&first), "{first}");
        assert_eq!(elapsed(), first);
    }
    let wait = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k(.param .u64 x) {
        .reg .pred %p; .reg .b32 %r<5>; .reg .b64 %d<2>;
        ld.param.u64 %d1, [x];
        mov.u32 %r1, %ctaid.x;
        mov.u32 %r2, %nctaid.x;
        atom.global.add.u32 %r3, [%d1], 1;
    L:  ld.volatile.global.u32 %r3, [%d1];
        setp.lt.u32 %p, %r3, %r2;
        @%p bra L;
        ret; }";
    for seed in 0..10 {
        let mut h = Host::new(wait);
        h.schedule = Schedule::Shuffled { seed };
        h.limits.instructions = Some(10_000_000);
        h.run("k", 40, 1, args![h.zeros::<u32>(1)]);
    }
}
