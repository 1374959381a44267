//! Misuse of tensor cores, asynchronous copies and mbarriers: it is a named fault and never a hang.

use cuda_cpu::{Fault, FaultKind, FaultSpace, LaunchError, Limits, MbarrierMisuse, WaitsFor};

use super::kernel;
use crate::args;
use crate::host::Host;

pub(super) const REGISTERS: &str =
    ".shared .align 16 .b8 room[256]; .shared .align 8 .b64 s; .shared .align 8 .b64 r;
.reg .pred p, q; .reg .b32 n<8>; .reg .b64 k;";

/// Runs a kernel and returns the words at `o`.
fn launch(body: &str, threads: u32, limits: Limits<'static>) -> Result<Vec<u32>, LaunchError> {
    let mut h = Host::new(&kernel(REGISTERS, body));
    h.limits = limits;
    let input = h.upload(&(100..162).collect::<Vec<u32>>());
    let out = h.upload(&[7u32; 256]);
    h.launch("k", 1, threads, args![input, input, input, out])?;
    Ok(h.download(out, 256))
}

pub(super) fn run(body: &str, threads: u32) -> Vec<u32> {
    launch(body, threads, Limits::default()).unwrap_or_else(|e| panic!("{e}"))
}

pub(super) fn fault(body: &str, threads: u32) -> Fault {
    match launch(body, threads, Limits::default()) {
        Err(LaunchError::Fault(fault)) => *fault,
        other => panic!("no fault: {other:?}"),
    }
}

/// Returns code in which the first thread initializes an mbarrier with this number of arrivals at `s`.
fn barrier(arrivals: u32) -> String {
    format!(
        "mov.u32 t, %tid.x; setp.ne.u32 q, t, 0; @!q mbarrier.init.shared.b64 [s], {arrivals};
        bar.sync 0;\n"
    )
}

const WAIT: &str = "WAIT: mbarrier.try_wait.parity.shared.b64 p, [s], 0; @!p bra WAIT;\n";

fn waits_for(fault: &Fault) -> Vec<(u32, u32, WaitsFor)> {
    let FaultKind::Deadlock { waiting } = &fault.kind else { panic!("{fault}") };
    waiting.iter().map(|w| (w.warp, w.lanes, w.waits_for)).collect()
}

#[test]
fn barriers_that_are_never_complete_are_deadlocks() {
    let body = barrier(2) + "@!q mbarrier.arrive.shared.b64 k, [s];\n" + WAIT;
    let f = fault(&body, 64);
    let both = [0, 1].map(|warp| (warp, u32::MAX, WaitsFor::Mbarrier(256)));
    assert_eq!(waits_for(&f), both, "{f}");
    assert!(f.to_string().contains("the mbarrier at 0x100"), "{f}");

    // The other warp waits for this one.
    let body = barrier(2) + "setp.lt.u32 p, t, 32; @p bra WAIT; bar.sync 0; ret;\n" + WAIT;
    let mut waiting = waits_for(&fault(&body, 64));
    waiting.sort_by_key(|w| w.0);
    let here = (0, u32::MAX, WaitsFor::Mbarrier(256));
    assert_eq!(waiting, [here, (1, u32::MAX, WaitsFor::Barrier(0))]);

    // The other lanes have exited.
    let body = barrier(1) + "setp.ne.u32 p, t, 3; @p ret;\n" + WAIT;
    assert_eq!(waits_for(&fault(&body, 32)), [(0, 8, WaitsFor::Mbarrier(256))]);

    let body = "mov.u32 t, %tid.x; setp.ge.u32 p, t, 32; @p bra L;
        barrier.cluster.arrive; barrier.cluster.wait; bar.sync 0; ret; L: bar.sync 0;";
    let mut waiting = waits_for(&fault(body, 64));
    waiting.sort_by_key(|w| w.0);
    let barrier = (1, u32::MAX, WaitsFor::Barrier(0));
    assert_eq!(waiting, [(0, u32::MAX, WaitsFor::Cluster), barrier]);
}

#[test]
fn polling_ends_with_the_budget() {
    for wait in
        ["test_wait.parity.shared.b64 p, [s], 0", "try_wait.parity.shared.b64 p, [s], 0, 100"]
    {
        let body = barrier(1) + &format!("L: mbarrier.{wait}; @!p bra L;");
        for limits in [
            Limits { iterations: Some(100_000), ..Limits::default() },
            Limits { instructions: Some(100_000), ..Limits::default() },
        ] {
            let Err(LaunchError::Fault(f)) = launch(&body, 64, limits) else { panic!("no fault") };
            assert!(
                matches!(f.kind, FaultKind::Budget { .. } | FaultKind::InstructionBudget { .. }),
                "{f}"
            );
        }
    }
}

#[test]
fn polling_threads_yield_to_others() {
    for wait in ["test_wait.parity.shared.b64 p, [s], 0", "try_wait.parity.shared.b64 p, [s], 0"] {
        // The last warp arrives, and so do the odd lanes of each warp, one after the other.
        let body = barrier(1 + 4 * 16)
            + &format!(
                "and.b32 u, t, 1; setp.eq.u32 q, u, 0; @q bra L;
                mbarrier.arrive.shared.b64 k, [s]; setp.ne.u32 q, t, 127; @q bra L;
                mbarrier.arrive.shared.b64 k, [s];
                L: mbarrier.{wait}; @!p bra L;
                mul.wide.u32 x, t, 4; add.u64 o, o, x; st.global.u32 [o], t;"
            );
        assert_eq!(run(&body, 128)[..128], (0..128).collect::<Vec<u32>>());
    }
}

/// A wait expires if no thread can continue. A later arrival may then complete the barrier.
#[test]
fn wait_expires_if_no_thread_can_continue() {
    let body = barrier(32)
        + "mov.u32 n0, 0; L: mbarrier.try_wait.parity.shared.b64 p, [s], 0; @p bra DONE;
        add.u32 n0, n0, 1; setp.eq.u32 q, n0, 3; @q mbarrier.arrive.shared.b64 k, [s]; bra L;
        DONE: mul.wide.u32 x, t, 4; add.u64 o, o, x; st.global.u32 [o], n0;";
    let counts = run(&body, 32);
    assert!(counts[..32].iter().all(|&n| n >= 3), "{counts:?}");
}

#[test]
fn copies_are_invisible_before_the_wait() {
    let store = "st.global.v2.b32 [o], {n0, n1};";
    let body = format!(
        "setp.ne.u32 p, lane, 0; @p ret; st.shared.v4.b32 [room], {{5, 5, 5, 5}};
        cp.async.cg.shared.global [room], [a], 16; cp.async.commit_group;
        cp.async.ca.shared.global [room+16], [a+16], 4; cp.async.commit_group;
        cp.async.wait_group 2; ld.shared.b32 n0, [room];
        cp.async.wait_group 1; ld.shared.b32 n1, [room]; {store}"
    );
    assert_eq!(run(&body, 32)[..2], [5, 100], "cp.async");
    let body = format!(
        "setp.ne.u32 p, lane, 0; @p ret; mbarrier.init.shared.b64 [s], 1; st.shared.b32 [room], 5;
        mbarrier.arrive.expect_tx.shared.b64 k, [s], 16;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [room], [a], 16, [s];
        ld.shared.b32 n0, [room]; {WAIT} ld.shared.b32 n1, [room]; {store}"
    );
    assert_eq!(run(&body, 32)[..2], [5, 100], "to shared memory");
    let body = format!(
        "setp.ne.u32 p, lane, 0; @p ret; st.shared.v4.b32 [room], {{5, 6, 7, 8}};
        cp.async.bulk.global.shared::cta.bulk_group [o+64], [room], 16; cp.async.bulk.commit_group;
        cp.async.bulk.wait_group 1; ld.global.b32 n0, [o+68];
        cp.async.bulk.wait_group 0; ld.global.b32 n1, [o+68]; {store}"
    );
    assert_eq!(run(&body, 32)[..2], [7, 6], "to global memory");
    let body = "setp.ne.u32 p, lane, 0; @p ret; st.shared.v4.b32 [room], {5, 6, 7, 8};
        cp.async.bulk.global.shared::cta.bulk_group [o+64], [room], 16; cp.async.bulk.commit_group;";
    assert_eq!(run(body, 32)[16..21], [5, 6, 7, 8, 7], "when the block ends");
}

#[test]
fn copies_read_exactly_their_bytes() {
    // The input has 248 bytes.
    for (copy, want) in [
        ("[a+224], 16", [156, 157, 158, 159]),
        ("[a+244], 4", [161, 5, 5, 5]),
        ("[a+240], 16, 8", [160, 161, 0, 0]),
        ("[a+248], 8, 0", [0, 0, 5, 5]),
        ("[none], 16, q", [0, 0, 0, 0]),
    ] {
        let body = format!(
            ".reg .b64 none; mov.b64 none, 0;
            setp.ne.u32 p, lane, 0; @p ret; setp.eq.u32 q, lane, 0;
            st.shared.v4.b32 [room], {{5, 5, 5, 5}};
            cp.async.ca.shared.global [room], {copy}; cp.async.wait_all;
            ld.shared.v4.b32 {{n0, n1, n2, n3}}, [room]; st.global.v4.b32 [o], {{n0, n1, n2, n3}};"
        );
        assert_eq!(run(&body, 32)[..4], want, "{copy}");
    }
}

#[test]
fn faults_name_the_first_lane_and_the_memory() {
    let bulk = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes";
    let init = "mbarrier.init.shared.b64 [s], 2;";
    let bad = |misuse| FaultKind::BadMbarrier { address: 256, misuse };
    let shared = |address, bytes, write| {
        let space = FaultSpace::Shared;
        FaultKind::OutOfBounds { space, address, bytes, write }
    };
    let cases: Vec<(String, FaultKind)> = vec![
        ("mbarrier.arrive.shared.b64 k, [s];".into(), bad(MbarrierMisuse::NotInitialized)),
        ("mov.u32 t, 0; mbarrier.init.shared.b64 [s], t;".into(), bad(MbarrierMisuse::Count(0))),
        (
            "mov.u32 t, 1048576; mbarrier.init.shared.b64 [s], t;".into(),
            bad(MbarrierMisuse::Count(1 << 20)),
        ),
        (
            format!("{init} mbarrier.inval.shared.b64 [s]; {WAIT}"),
            bad(MbarrierMisuse::NotInitialized),
        ),
        (
            format!("{init} mbarrier.arrive.shared.b64 k, [s], 3;"),
            bad(MbarrierMisuse::TooManyArrivals { pending: 2, count: 3 }),
        ),
        (
            format!("{init} mbarrier.arrive.noComplete.shared.b64 k, [s], 2;"),
            bad(MbarrierMisuse::Completes),
        ),
        (
            format!(
                "{init} {}",
                "mbarrier.expect_tx.relaxed.cta.shared.b64 [s], 1048575;".repeat(2)
            ),
            bad(MbarrierMisuse::Bytes(2_097_150)),
        ),
        (
            format!("{init} mov.u32 t, 24; {bulk} [room], [a], t, [s];"),
            FaultKind::BadCopy { bytes: 24 },
        ),
        (
            "mov.u32 t, 5; cp.async.ca.shared.global [room], [a], 4, t;".into(),
            FaultKind::BadCopy { bytes: 5 },
        ),
        (
            "mov.u32 t, s; mapa.shared::cluster.u32 t, t, 2;".into(),
            FaultKind::NoSuchBlock { rank: 2, blocks: 1 },
        ),
        (format!("{init} {bulk} [room+256], [a], 32, [s];"), shared(256, 32, true)),
        ("cp.async.ca.shared.global [room+272], [a], 4;".into(), shared(272, 4, true)),
        (
            format!("{init} {bulk} [room], [a+8], 16, [s];"),
            FaultKind::Misaligned {
                space: FaultSpace::Global,
                address: 8,
                bytes: 16,
                write: false,
            },
        ),
        (
            "cp.async.ca.shared.global [room+4], [a], 8;".into(),
            FaultKind::Misaligned { space: FaultSpace::Shared, address: 4, bytes: 8, write: true },
        ),
        (
            "cp.async.ca.shared.global [room], [a+240], 16;".into(),
            FaultKind::OutOfBounds {
                space: FaultSpace::Global,
                address: 240,
                bytes: 16,
                write: false,
            },
        ),
    ];
    for (what, want) in cases {
        let f = fault(&format!("mov.u32 t, %tid.x; setp.ne.u32 p, t, 5; @p ret; {what}"), 32);
        let mut kind = f.kind.clone();
        // The address of the input is arbitrary.
        if let FaultKind::Misaligned { space: FaultSpace::Global, address, .. }
        | FaultKind::OutOfBounds { space: FaultSpace::Global, address, .. } = &mut kind
        {
            *address &= 0xFF;
        }
        assert_eq!((kind, f.thread), (want, [5, 0, 0]), "{what}: {f}");
    }
}
