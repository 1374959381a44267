//! Unwritten values may be passed on until a result depends on them. Of two faults, the right one is reported.

use cuda_cpu::{Checks, FaultKind, FaultSpace, LaunchError};

use crate::args;
use crate::host::Host;

/// A kernel may load shared and local memory that was never written, and may pass the value on.
#[test]
fn unwritten_values_may_be_passed_on() {
    let header = ".version 7.0\n.target sm_70\n.address_size 64\n";
    let kernel = ".visible .entry k(.param .u64 x) {
        .shared .b32 word[64]; .local .b32 own[4];
        .reg .b32 %r<9>; .reg .b64 %d<3>; .reg .pred %p<4>;
        ld.param.u64 %d1, [x];
        mov.u32 %r0, 0;
        mov.u32 %r1, %tid.x;
        setp.lt.u32 %p1, %r1, 7;
        ld.LOAD;
        REST
        ret; }";
    let run = |load: &str, rest: &str| {
        let text = kernel.replace("LOAD", load).replace("REST", rest);
        let mut host = Host::new(&format!("{header}{text}"));
        host.checks = Checks::none().uninitialized();
        host.launch("k", 1, 32, args![host.zeros::<u32>(64)])
    };
    let shared = "shared.u32 %r2, [word+4]";
    let local = "local.v2.u32 {%r2, %r3}, [own]";
    for passed_on in [
        "",
        "mov.u32 %r2, 1; st.global.u32 [%d1], %r2;",
        "add.u32 %r3, %r2, 1; st.shared.u32 [word+8], %r3; st.local.u32 [own+4], %r3;",
        "selp.u32 %r3, %r2, %r1, %p1; @!%p1 st.global.u32 [%d1], %r3;",
        "setp.lt.u32 %p2, %r2, 5; and.pred %p3, %p1, %p2; not.pred %p1, %p1; and.pred %p3, %p3, %p1; @%p3 trap;",
        "setp.ge.u32 %p3, %r1, 0; setp.lt.or.u32 %p2, %r2, 5, %p3; @!%p2 trap;",
        "setp.lt.and.u32 %p2, %r2, 5, %p1; @%p1 mov.u32 %r4, 1;",
        "shfl.sync.idx.b32 %r3, %r2, 0, 31, 0xffffffff;",
        "st.shared.u32 [word], %r2; st.shared.u32 [word], %r1; ld.shared.u32 %r2, [word]; st.global.u32 [%d1], %r2;",
    ] {
        for load in [shared, local] {
            run(load, passed_on).unwrap_or_else(|error| panic!("{load}; {passed_on}: {error}"));
        }
    }
    for used in [
        "st.global.u32 [%d1], %r2;",
        "st.global.v2.u32 [%d1], {%r1, %r2};",
        "mov.u32 %r3, %r2; mad.lo.u32 %r3, %r1, %r1, %r3; st.global.u32 [%d1], %r3;",
        "setp.lt.u32 %p2, %r2, 5; @%p2 bra L; L:",
        "setp.lt.u32 %p2, %r2, 5; and.pred %p3, %p1, %p2; @%p3 mov.u32 %r3, 1;",
        "selp.u32 %r3, %r2, %r1, %p1; st.global.u32 [%d1], %r3;",
        "cvt.u64.u32 %d2, %r2; add.u64 %d2, %d1, %d2; ld.global.u32 %r3, [%d2];",
        "atom.global.add.u32 %r3, [%d1], %r2;",
        "st.shared.u32 [word], %r2; ld.shared.u32 %r3, [word]; st.global.u32 [%d1], %r3;",
        "st.local.u32 [own+8], %r2; ld.local.u32 %r3, [own+8]; st.global.u32 [%d1], %r3;",
        "bar.sync %r2;",
        "shfl.sync.idx.b32 %r3, %r2, 0, 31, 0xffffffff; st.global.u32 [%d1], %r3;",
        "atom.shared.inc.u32 %r3, [word+4], %r1;",
    ] {
        for (load, space, line) in
            [(shared, FaultSpace::Shared, 11), (local, FaultSpace::Local, 11)]
        {
            let error = run(load, used).expect_err(used);
            let LaunchError::Fault(fault) = error else { panic!("{error}") };
            let FaultKind::Uninitialized { space: found, .. } = fault.kind else {
                panic!("{used}: {fault}")
            };
            // The fault is at the first load, or at the copy.
            let copied = used.starts_with("st.shared")
                || used.starts_with("st.local")
                || used.contains(".inc");
            assert!(copied || (found, fault.line) == (space, line), "{used}: {fault}");
        }
    }
    // A load counts the bytes that its pragma declares as used.
    let half = "ld.LOAD; st.local.u16 [own], %r1; .pragma \"used_bytes_mask MASK\"; ld.local.u32 %r2, [own];";
    let with = |mask: &str| {
        let rest = format!("{} st.global.u32 [%d1], %r2;", &half[9..].replace("MASK", mask));
        run("local.u32 %r4, [own+8]", &rest)
    };
    with("0x3").unwrap();
    with("0x5").unwrap_err();
}

/// A read of unwritten shared memory that is not half of a race is reported as itself, also if the kernel continues,
/// and before any fault that follows from it.
#[test]
fn unwritten_read_is_reported_if_it_is_no_race() {
    let text = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k(.param .u64 x) {
        .shared .b32 word[64]; .reg .b32 %r<3>; .reg .b64 %d<3>; .reg .pred %p;
        ld.shared.u32 %r1, [word+4];
        ld.param.u64 %d1, [x];
        st.global.u32 [%d1], %r1;
        AFTER
        ret; }";
    for after in [
        "",
        "bar.sync 0; bar.sync 0;",
        "trap;",
        "ld.global.u32 %r2, [%d1+1000000];",
        "L: bra L;",
        "bar.sync 1, 1024;",
    ] {
        let mut host = Host::new(&text.replace("AFTER", after));
        host.checks = Checks::all();
        host.limits.instructions = Some(100_000);
        let error = host.launch("k", 1, 64, args![host.zeros::<u32>(1)]).unwrap_err();
        let LaunchError::Fault(fault) = error else { panic!("{error}") };
        let space = FaultSpace::Shared;
        assert_eq!(fault.kind, FaultKind::Uninitialized { space, address: 4, bytes: 4 }, "{after}");
        assert_eq!((fault.line, fault.thread), (6, [0; 3]), "{after}");
    }
}

/// Runs a kernel in which only lane 20 shuffles, from an absent lane. Its `%r1` is undefined.
fn with_an_undefined_lane(rest: &str, threads: u32) -> Result<(), LaunchError> {
    let text = format!(
        ".version 8.0\n.target sm_80\n.address_size 64
        .func (.reg .b32 %o) same(.reg .b32 %i) {{ mov.b32 %o, %i; ret; }}
        .visible .entry k(.param .u64 x) {{
        .shared .b32 word[64]; .reg .b32 %r<9>; .reg .b64 %d<3>; .reg .pred %p<4>;
        ld.param.u64 %d1, [x]; mov.u32 %r0, %tid.x; mul.wide.u32 %d2, %r0, 4; add.u64 %d2, %d1, %d2;
        mov.b32 %r1, %r0; setp.eq.u32 %p1, %r0, 20; setp.lt.u32 %p2, %r0, 16;
        @%p1 shfl.sync.idx.b32 %r1, %r0, 31, 31, 0x00100000;
        {rest}
        ret; }}"
    );
    let mut host = Host::new(&text);
    host.checks = Checks::none().uninitialized();
    host.launch("k", 1, threads, args![host.zeros::<u32>(64)])
}

/// Values that lanes exchange stay undefined, also with different origins and through memory. Overwriting makes them
/// defined again.
#[test]
fn undefined_shuffle_values_are_tracked() {
    let store = "st.global.u32 [%d2], %r2;";
    let others = "@!%p1 st.global.u32 [%d2], %r2;";
    let split = "@%p2 bra L; shfl.sync.bfly.b32 %r1, %r1, 16, 31, -1; bra E; \
                 L: shfl.sync.bfly.b32 %r1, %r1, 16, 31, -1; E: mov.b32 %r2, %r1;";
    for fine in [
        "",
        "mov.b32 %r1, 0; st.global.u32 [%d2], %r1;",
        &format!("shfl.sync.bfly.b32 %r2, %r1, 16, 31, -1; setp.eq.u32 %p3, %r0, 4; @!%p3 {store}"),
        &format!("{split} setp.eq.u32 %p3, %r0, 4; @!%p3 {store}"),
        // The predicate is whether the source is in range. Its previous value does not matter.
        "setp.eq.u32 %p3, %r1, 0; shfl.sync.idx.b32 %r2|%p3, %r0, 0, 31, -1; selp.u32 %r3, 1, 0, %p3; st.global.u32 [%d2], %r3;",
        "setp.eq.u32 %p3, %r1, 0; vote.sync.ballot.b32 %r3, %p3, -1; and.b32 %r3, %r3, 1; st.global.u32 [%d2], %r3;",
        "mov.b32 %r2, %r1; setp.eq.u32 %p3, %r0, 0; bar.red.popc.u32 %r2, 0, %p3; st.global.u32 [%d2], %r2;",
        "mov.b32 %r2, %r1; call (%r2), same, (%r0); st.global.u32 [%d2], %r2;",
        "call (%r2), same, (%r1);",
        "vabsdiff.u32.u32.u32 %r2, %r1, %r0;",
        &format!("mov.b32 %r2, %r1; {others}"),
    ] {
        with_an_undefined_lane(fine, 32).unwrap_or_else(|error| panic!("{fine}: {error}"));
    }
    for used in [
        "st.global.u32 [%d2], %r1;",
        &format!("shfl.sync.bfly.b32 %r2, %r1, 16, 31, -1; {store}"),
        &format!("{split} {store}"),
        &format!("shfl.sync.idx.b32 %r2, %r0, %r1, 31, -1; {store}"),
        &format!("vabsdiff.u32.u32.u32 %r2, %r1, %r0; {store}"),
        "setp.eq.u32 %p3, %r1, 0; vote.sync.any.pred %p3, %p3, -1;",
        &format!("st.shared.u32 [word], %r1; bar.sync 0; ld.shared.u32 %r2, [word]; @!%p1 {store}"),
    ] {
        // If all lanes write, the last one determines the value.
        let used = used.replace("st.shared.u32 [word]", "@%p1 st.shared.u32 [word]");
        let Err(LaunchError::Fault(fault)) = with_an_undefined_lane(&used, 32) else {
            panic!("{used}: nothing found")
        };
        let lane = FaultKind::AbsentLane { lane: 31, members: 1 << 20 };
        assert_eq!((fault.kind, fault.thread, fault.line), (lane, [20, 0, 0], 9), "{used}");
    }
}

/// A load of an unwritten value that a thread has stored. The fault names the first load and its thread.
#[test]
fn fault_names_the_first_load() {
    let text = ".version 8.0\n.target sm_80\n.address_size 64
        .func (.param .b32 o) twice(.param .b32 i) { .reg .b32 %r;
        ld.param.u32 %r, [i]; add.u32 %r, %r, %r; st.param.b32 [o], %r; ret; }
        .visible .entry k(.param .u64 x) {
        .shared .b32 word[64]; .shared .b32 sum[64]; .reg .b32 %r<9>; .reg .b64 %d<3>; .reg .pred %p<4>;
        .param .b32 i; .param .b32 o;
        ld.param.u64 %d1, [x]; mov.u32 %r0, %tid.x; mul.wide.u32 %d2, %r0, 4; setp.eq.u32 %p1, %r0, 37;
        mov.u64 %d0, word; add.u64 %d0, %d0, %d2; @!%p1 st.shared.u32 [%d0], %r0; bar.sync 0;
        ld.shared.u32 %r1, [%d0];
        PASS
        mov.u64 %d0, sum; add.u64 %d0, %d0, %d2; st.shared.u32 [%d0], %r1; bar.sync 0;
        setp.eq.u32 %p2, %r0, 0; ld.shared.u32 %r2, [sum+148]; @%p2 st.global.u32 [%d1], %r2;
        ret; }";
    for pass in ["", "st.param.b32 [i], %r1; call (o), twice, (i); ld.param.b32 %r1, [o];"] {
        let mut host = Host::new(&text.replace("PASS", pass));
        host.checks = Checks::none().uninitialized();
        let error = host.launch("k", 1, 64, args![host.zeros::<u32>(64)]).unwrap_err();
        let LaunchError::Fault(fault) = error else { panic!("{error}") };
        let space = FaultSpace::Shared;
        let first = FaultKind::Uninitialized { space, address: 148, bytes: 4 };
        assert_eq!(
            (fault.kind.clone(), fault.thread, fault.line),
            (first, [37, 0, 0], 11),
            "{fault}"
        );
    }
}
