//! Faults: their kind, their location and their thread.

use std::sync::atomic::{AtomicBool, Ordering};

use cuda_cpu::{Fault, FaultKind, FaultSpace, Invalid, LaunchError, Limits, Waiting, WaitsFor};

use crate::args;
use crate::host::Host;

fn host() -> Host {
    Host::new(include_str!("../../../kernels/faults.ptx"))
}

fn fault(result: Result<(), LaunchError>) -> Fault {
    match result {
        Err(LaunchError::Fault(fault)) => *fault,
        other => panic!("no fault: {other:?}"),
    }
}

#[test]
fn out_of_bounds() {
    let h = host();
    let x = h.zeros::<u32>(10);
    let f = fault(h.launch("store_at", 1, 1, args![x, 10i64, 7u32]));
    let address = x + 40;
    let bounds =
        |write| FaultKind::OutOfBounds { space: FaultSpace::Global, address, bytes: 4, write };
    assert_eq!(f.kind, bounds(true));
    assert_eq!(f.kernel, "store_at");
    assert_eq!(f.nearest.map(|n| (n.address, n.size, n.distance)), Some((x, 40, 1)));
    assert!(f.line > 28, "{}", f.line);
    assert!(f.to_string().contains("1 byte after the allocation of 40 bytes"), "{f}");
    let f = fault(h.launch("load_at", 1, 1, args![x, x, 10i64]));
    assert_eq!(f.kind, bounds(false));
    h.run("store_at", 1, 1, args![x, 9i64, 7u32]);
    assert_eq!(h.download::<u32>(x, 10)[9], 7);
}

#[test]
fn fault_names_the_thread() {
    let h = host();
    let x = h.zeros::<f32>(70);
    let f = fault(h.launch("off_by_one", 2, 64, args![x, 70u32]));
    assert_eq!((f.block, f.thread), ([1, 0, 0], [6, 0, 0]));
}

#[test]
fn use_after_free() {
    let h = host();
    let x = h.zeros::<u32>(10);
    h.memory.free(x).unwrap();
    let f = fault(h.launch("store_at", 1, 1, args![x, 3i64, 7u32]));
    assert_eq!(f.kind, FaultKind::UseAfterFree { address: x + 12, bytes: 4, write: true });
    assert!(h.memory.free(x).unwrap_err().freed);
}

#[test]
fn misaligned_null_and_shared() {
    let h = host();
    let x = h.zeros::<u32>(10);
    let f = fault(h.launch("misaligned_store", 1, 1, args![x, 6u64, 1u32]));
    assert!(matches!(f.kind, FaultKind::Misaligned { bytes: 4, write: true, .. }), "{f}");
    let f = fault(h.launch("null_store", 1, 1, &[]));
    assert!(matches!(f.kind, FaultKind::OutOfBounds { address: 0, .. }), "{f}");
    let f = fault(h.launch("shared_store_at", 1, 32, args![x, 32u32]));
    let space = FaultSpace::Shared;
    assert_eq!(f.kind, FaultKind::OutOfBounds { space, address: 128, bytes: 4, write: true });
}

#[test]
fn trap_and_assert() {
    let h = host();
    let x = h.zeros::<u32>(100);
    let f = fault(h.launch("trap_at", 4, 32, args![x, 70u32, 100u32]));
    assert_eq!((f.kind, f.block, f.thread), (FaultKind::Trap, [2, 0, 0], [6, 0, 0]));
    let x = h.upload(&[1u32, 2, 9, 3]);
    let f = fault(h.launch("assert_below", 1, 32, args![x, 5u32, 4u32]));
    assert_eq!(f.thread, [2, 0, 0]);
    let FaultKind::Assert { message, line, .. } = &f.kind else { panic!("{f}") };
    assert!(message.contains("x[i] < limit") && *line > 0, "{f}");
}

#[test]
fn deadlock_lists_the_waiting_threads() {
    let h = host();
    let f = fault(h.launch("stuck_barrier", 1, 32, args![h.zeros::<u32>(32)]));
    let FaultKind::Deadlock { waiting } = &f.kind else { panic!("{f}") };
    assert!(
        matches!(
            waiting[..],
            [Waiting { warp: 0, lanes: u32::MAX, waits_for: WaitsFor::Barrier(1), .. }]
        ),
        "{f}"
    );
}

#[test]
fn budget_and_cancel() {
    static CANCEL: AtomicBool = AtomicBool::new(false);
    let mut h = host();
    h.limits.iterations = Some(100_000);
    let x = h.zeros::<u32>(1);
    let f = fault(h.launch("run_forever", 1, 1, args![x]));
    assert_eq!(f.kind, FaultKind::Budget { limit: 100_000 });
    h.limits = Limits { cancel: Some(&CANCEL), ..Limits::default() };
    std::thread::scope(|s| {
        s.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            CANCEL.store(true, Ordering::Relaxed);
        });
        assert_eq!(fault(h.launch("run_forever", 1, 1, args![x])).kind, FaultKind::Cancelled);
    });
}

#[test]
fn invalid_launches() {
    let h = host();
    let x = h.zeros::<u32>(10);
    let invalid = |result| match result {
        Err(LaunchError::Invalid(invalid)) => invalid,
        other => panic!("{other:?}"),
    };
    let run =
        |grid: u32, block: u32| invalid(h.launch("store_at", grid, block, args![x, 0i64, 1u32]));
    assert!(matches!(run(0, 1), Invalid::Grid(_)));
    assert!(matches!(run(1, 1025), Invalid::Block(_)));
    let many = h.launch("store_at", 1, (u32::MAX, u32::MAX, u32::MAX), args![x, 0i64, 1u32]);
    assert!(matches!(invalid(many), Invalid::Block(_)));
    let shared = h.launch_shared("store_at", 1, 1, 228 << 10, args![x, 0i64, 1u32]);
    assert!(matches!(invalid(shared), Invalid::Shared { .. }));
}

#[test]
fn unknown_instructions_are_named() {
    let ptx = ".version 8.0 .target sm_80 .address_size 64
        .visible .entry k() {
            .reg .b32 %r<3>;
            mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r1}, {%r1}, {%r1}, {%r1};
            add.u32 %r1, %r2, 1;
            add.ftz.u32 %r1, %r2, 1;
            add.ftz.u32 %r2, %r2, 1;
            ret;
        }";
    let module = cuda_ptx::parse(ptx).unwrap();
    let memory = cuda_cpu::Memory::new(1 << 20);
    let error = cuda_cpu::Program::load(&module, &memory).unwrap_err();
    assert_eq!((error.count, error.problems.len()), (3, 2));
    assert_eq!((error.problems[1].occurrences, error.problems[1].line), (2, 6));
    assert_eq!((error.problems[0].line, error.problems[0].column), (4, 13));
    assert!(error.to_string().contains("add.ftz.u32"), "{error}");
    assert_eq!(memory.usage().used, 0);
}

#[test]
fn functions_that_no_kernel_calls_are_compared_with_the_table() {
    let problems = |instruction: &str| {
        let ptx = format!(
            ".version 3.0 .target sm_20 .address_size 64
            .func unused(.param .b64 p) {{
                .reg .b32 %r<3>; .reg .b64 %d<3>;
                {instruction}
                ret;
            }}
            .visible .entry k() {{ ret; }}"
        );
        let memory = cuda_cpu::Memory::new(1 << 20);
        match cuda_cpu::Program::load(&cuda_ptx::parse(&ptx).unwrap(), &memory) {
            Ok(_) => String::new(),
            Err(error) => {
                assert_eq!((error.count, error.problems[0].line), (1, 4), "{error}");
                assert_eq!(error.problems[0].function, "unused");
                error.problems[0].reason.to_string()
            }
        }
    };
    assert!(problems("add.u32 %r1, %d1, 1;").contains("operand 2"));
    assert!(problems("ld.global.nc.u32 %r1, [%d1];").contains("needs `.version 3.1`"));
    assert!(problems("add.foo %r1, %r1, 1;").contains("no such instruction"));
    assert_eq!(problems("add.u32 %r1, %r1, 1;"), "");
    // The CPU device has no textures, but no kernel uses them.
    assert_eq!(problems("tex.1d.v4.u32.s32 {%r0, %r1, %r2, %r0}, [%d0, {%r1}];"), "");
}

/// Returns the reason why a module is refused, whose instruction is in a kernel or in a function that no kernel calls.
fn refusal(instruction: &str, in_kernel: bool) -> String {
    let (used, unused) = if in_kernel { (instruction, "") } else { ("", instruction) };
    let registers = "
        .reg .pred %p<3>; .reg .b16 %h<3>; .reg .b32 %r<5>; .reg .b64 %d<3>; .reg .b128 %q<3>;
        .reg .f32 %f<3>; .reg .f64 %e<3>; .shared .b64 s; .local .b64 l;";
    let ptx = format!(
        ".version 9.2 .target sm_90a .address_size 64 .global .b64 g;
        .func unused(.param .b64 p) {{ {registers} {unused} ret; }}
        .visible .entry k() {{ {registers} {used} ret; }}"
    );
    let memory = cuda_cpu::Memory::new(1 << 20);
    match cuda_cpu::Program::load(&cuda_ptx::parse(&ptx).unwrap(), &memory) {
        Ok(_) => String::new(),
        Err(error) => error.problems[0].reason.to_string(),
    }
}

#[test]
fn operands_that_no_gpu_has_are_refused() {
    for (instruction, operand) in [
        ("prefetch.global.L1 [%q1];", 1),
        ("mbarrier.inval.b64 [%q1];", 1),
        ("mbarrier.inval.b64 [g];", 1),
        ("mbarrier.test_wait.b64 %p1, [l], %d1;", 2),
        ("mbarrier.test_wait.b64 %p1, [s], %e1;", 3),
        ("mbarrier.test_wait.parity.b64 %p1, [s], 2;", 3),
        ("mbarrier.init.b64 [s], 0;", 2),
        ("mbarrier.init.b64 [s], 1048576;", 2),
        ("mbarrier.arrive.b64 %d1, [s], 0;", 3),
        ("mbarrier.pending_count.b64 %r1, %e1;", 2),
        ("bar.sync 16;", 1),
        ("bar.red.popc.u32 %r1, -1, %p1;", 2),
        ("barrier.sync 0x123456789;", 1),
        ("bar.warp.sync %f1;", 1),
        ("elect.sync %f1|%p1, %r1;", 1),
        ("match.any.sync.b32 %r1, %r2, 0f3F800000;", 3),
        ("vote.sync.all.pred %p1, %p2, %f1;", 3),
        ("redux.sync.and.b32 %r1, %f1, %r2;", 2),
        ("ld.global.L2::cache_hint.u32 %r1, [%d1], %e1;", 3),
        ("cp.async.bulk.prefetch.L2.global [%d1], 8;", 2),
        ("cp.async.ca.shared.global [%d1], [%d1], 4, 5;", 4),
        ("set.gt.or.bf16.f32 %h1, %f1, %f2, 1;", 4),
        ("cvt.rn.bf16.s16 %h1, %d1;", 2),
        ("cvt.u32.u64 %r1, %tid.x;", 2),
        ("bfe.u32 %r1, %r2, 256, 1;", 3),
        ("pmevent 16;", 1),
        ("setp.gt.f16 %p1|%p2, %h1, %h2;", 1),
        ("mov.b64 %d1, [s];", 2),
        ("prefetchu.L1 [s];", 1),
        ("mapa.u64 %d1, g, 1;", 2),
        ("getctarank.u64 %r1, %clock64;", 2),
        ("alloca.u64 %d1, %d2, 3;", 3),
        ("vadd.u32.u32.u32.add -%r1, %r2, %r3, %r4;", 1),
        ("vadd2.u32.u32.u32 %r1, %r2.b3210, %r3, %r4;", 2),
        ("vadd4.u32.u32.u32 %r1.b01, %r2, %r3, %r4;", 1),
        ("vmad.s32.s32.s32 %r1, %r2, %r3, %r4.h0;", 4),
    ] {
        for in_kernel in [true, false] {
            let reason = refusal(instruction, in_kernel);
            assert!(reason.contains(&format!("operand {operand} is")), "{instruction} {reason}");
        }
    }
    let reason = refusal("cp.async.ca.global.shared [%d1], [%d1], 4;", true);
    assert!(reason.contains("no such instruction"), "{reason}");
}

#[test]
fn unusual_operands_that_a_gpu_has_are_taken() {
    for instruction in [
        "cp.async.wait_group -1;",
        "cp.async.wait_group 0x123456789;",
        "cp.async.bulk.wait_group -1;",
        "cp.async.ca.shared.global [%d1], [%d1], 8, 8;",
        "cp.async.ca.shared.global [%d1], [%d1], 8, %r1+4;",
        "ld.global.ca.L2::128B.u32 %r1, [%d1];",
        "st.global.cg.L2::cache_hint.u32 [%d1], %r1, %d2;",
        "mbarrier.init.b64 [s], 1048575;",
        "bar.sync 15;",
        "mov.b64 {%r1, %r2}, %clock64;",
        "mov.b64 {%r1, %r2}, s;",
        "lop3.b32 _, %r1, %r2, %r3, 5;",
        "setp.gt.f32 _, %f1, %f2;",
        "setp.gt.or.f16x2 %p1, %r1, %r2, %p2;",
        "ld.relaxed.gpu.global.L1::no_allocate.b128 %q1, [%d1];",
        "st.global.L2::cache_hint.b128 [%d1], %q1, %d2;",
        "ld.mmio.relaxed.sys.s16 {%r1}, [%d1];",
        "isspacep.param %p1, %r1;",
        "cvta.to.shared.u64 %d1, 8;",
        "cvt.sat.s16.u32 %h1, %tid.x;",
        "cvt.rn.f16x2.f32 %r1, %r2, %d1;",
        "vmad.s32.s32.s32 %r1, -%r2, %r3.h1, %r4;",
        "vadd4.u32.u32.u32 %r1.b31, %r2.b7654, %r3, %r4;",
        "shfl.sync.idx.b32 %r1, %r2, 0f00000000, %f1, -1;",
    ] {
        for in_kernel in [true, false] {
            assert_eq!(refusal(instruction, in_kernel), "", "{instruction}");
        }
    }
}
