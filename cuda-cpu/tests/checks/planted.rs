//! `kernels/bugs`: one kernel for each kind of fault, and its mended twin.

use cuda_cpu::{Checks, Fault, FaultKind, FaultSpace, LaunchError, Schedule, Waiting, WaitsFor};

use crate::args;
use crate::host::Host;

/// A source, its PTX, and where the compiler says it is.
struct Source {
    path: &'static str,
    cuda: &'static str,
    ptx: &'static str,
}

macro_rules! source {
    ($name:literal) => {
        Source {
            path: concat!("kernels/bugs/", $name, ".cu"),
            cuda: include_str!(concat!("../../../kernels/bugs/", $name, ".cu")),
            ptx: include_str!(concat!("../../../kernels/bugs/", $name, ".ptx")),
        }
    };
}

/// Words of `x`, which hold their index.
const WORDS: u32 = 64;

/// A kernel that goes wrong, and what has to be said of it.
struct Bug {
    kernel: &'static str,
    threads: u32,
    n: u32,
    thread: u32,
    /// What stands in the CUDA line, and in the PTX line.
    line: &'static str,
    ptx: &'static str,
}

impl Source {
    fn host(&self) -> Host {
        let mut host = Host::new(self.ptx);
        host.checks = Checks::all();
        host.limits.instructions = Some(100_000);
        host
    }

    /// Runs the kernel and its twin; gives the fault, of which everything but the kind is as it should be, and `x`.
    #[track_caller]
    fn find(&self, bug: &Bug) -> (Fault, u64) {
        let host = self.host();
        let x: Vec<u32> = (0..WORDS).collect();
        let x = host.upload(&x);
        let mended = format!("{}_mended", bug.kernel);
        for schedule in [Schedule::Parallel, Schedule::Fixed, Schedule::Shuffled { seed: 1 }] {
            let twin = Host { schedule, ..self.host() };
            let x = twin.upload(&(0..WORDS).collect::<Vec<_>>());
            twin.run(&mended, 1, bug.threads, args![x, bug.n]);
        }
        let error = host.launch(bug.kernel, 1, bug.threads, args![x, bug.n]).unwrap_err();
        let LaunchError::Fault(fault) = error else { panic!("{error}") };
        assert_eq!(fault.kernel, bug.kernel);
        assert_eq!(fault.block, [0; 3], "{fault}");
        assert_eq!(fault.thread, [bug.thread, 0, 0], "{fault}");
        self.is_at(bug, &fault);
        (*fault, x)
    }

    #[track_caller]
    fn is_at(&self, bug: &Bug, fault: &Fault) {
        let line = |text: &'static str, line: u32| text.lines().nth(line as usize - 1).unwrap();
        assert!(line(self.ptx, fault.line).contains(bug.ptx), "{fault}");
        let source = fault.source.as_ref().unwrap_or_else(|| panic!("no CUDA line: {fault}"));
        assert_eq!(source.file, self.path);
        assert!(line(self.cuda, source.line).contains(bug.line), "{fault}");
        assert!(fault.to_string().contains(&source.to_string()), "{fault}");
    }
}

fn bug(
    kernel: &'static str,
    (threads, n): (u32, u32),
    thread: u32,
    line: &'static str,
    ptx: &'static str,
) -> Bug {
    Bug { kernel, threads, n, thread, line, ptx }
}

#[test]
fn bounds() {
    let source = source!("bounds");
    let out = |space, address, write| FaultKind::OutOfBounds { space, address, bytes: 4, write };
    let (global, shared, local) = (FaultSpace::Global, FaultSpace::Shared, FaultSpace::Local);

    let (fault, x) =
        source.find(&bug("global_past_end", (96, WORDS), WORDS, "x[i] = i;", "st.global.u32"));
    assert_eq!(fault.kind, out(global, x + 256, true));
    assert!(
        fault.to_string().ends_with(&format!("1 byte after the allocation of 256 bytes at {x:#x}"))
    );

    let (fault, x) =
        source.find(&bug("global_before_start", (32, WORDS), 0, "u32 left", "ld.global.u32"));
    assert_eq!(fault.kind, out(global, x - 4, false));
    assert_eq!(fault.nearest.map(|near| (near.address, near.distance)), Some((x, -4)));

    let (fault, _) = source.find(&bug(
        "shared_past_end",
        (64, WORDS),
        40,
        "tile[threadIdx.x] =",
        "st.shared.u32",
    ));
    assert_eq!(fault.kind, out(shared, 160, true));
    let tile = fault.variable.as_ref().unwrap();
    assert!(
        tile.source_name() == "tile" && (tile.address, tile.size, tile.offset) == (0, 160, 160)
    );
    assert!(fault.to_string().contains("1 byte after `tile` (160 bytes"), "{fault}");

    let (fault, _) =
        source.find(&bug("shared_before_start", (64, WORDS), 0, "u32 left", "ld.shared.u32"));
    assert!(matches!(fault.kind, FaultKind::OutOfBounds { space: FaultSpace::Shared, .. }));
    assert!(fault.to_string().contains("4 bytes before `line` (256 bytes"), "{fault}");

    let (fault, _) = source.find(&bug("local_past_end", (32, 9), 0, "digits[i] =", "st.local.u32"));
    assert_eq!(fault.kind, out(local, 32, true));

    let (fault, _) =
        source.find(&bug("local_before_start", (32, 0), 0, "digits[(int)n - 1]", "ld.local.u32"));
    assert!(matches!(fault.kind, FaultKind::OutOfBounds { space: FaultSpace::Local, .. }));

    let (fault, x) = source.find(&bug(
        "misaligned",
        (32, WORDS),
        0,
        "*(u32 *)(bytes + 4 * threadIdx.x + 2)",
        "st.global.u32",
    ));
    let misaligned = FaultKind::Misaligned { space: global, address: x + 2, bytes: 4, write: true };
    assert_eq!(fault.kind, misaligned);
    assert_eq!(fault.nearest.map(|near| (near.address, near.distance)), Some((x, 0)));
}

#[test]
fn heap() {
    let source = source!("heap");
    let (fault, _) =
        source.find(&bug("after_free", (32, 7), 1, "x[0] = own[2];", "ld.volatile.u32"));
    assert!(
        matches!(fault.kind, FaultKind::UseAfterFree { bytes: 4, write: false, .. }),
        "{fault}"
    );
    let near = fault.nearest.unwrap();
    assert!(
        near.freed && near.size == 16 && fault.to_string().contains("inside the freed"),
        "{fault}"
    );

    let (fault, _) = source.find(&bug("double_free", (32, 5), 5, "free(own);", "call"));
    assert!(matches!(fault.kind, FaultKind::BadFree { freed: true, .. }), "{fault}");
    assert!(fault.to_string().contains("which was freed already"), "{fault}");

    let (fault, _) = source.find(&bug("free_inside", (32, 5), 0, "free(own);", "call"));
    assert!(matches!(fault.kind, FaultKind::BadFree { freed: false, .. }), "{fault}");
    assert!(fault.to_string().contains("inside the allocation of 64 bytes"), "{fault}");

    let (fault, x) = source.find(&bug("free_of_hosts", (32, 5), 0, "free(x);", "call"));
    assert_eq!(fault.kind, FaultKind::BadFree { address: x, freed: false });
}

/// Freed by the host, before the launch.
#[test]
fn after_the_host_freed_it() {
    let host = source!("bounds").host();
    let x = host.zeros::<u32>(WORDS as usize);
    host.memory.free(x).unwrap();
    let error = host.launch("global_past_end", 1, 32, args![x, 32u32]).unwrap_err();
    let LaunchError::Fault(fault) = error else { panic!("{error}") };
    assert_eq!(fault.kind, FaultKind::UseAfterFree { address: x, bytes: 4, write: true });
}

#[test]
fn unwritten() {
    let source = source!("unwritten");
    let (fault, _) = source.find(&bug("unwritten_global", (32, 8), 0, "sum += own[i];", "ld.u32"));
    let FaultKind::Uninitialised { space: FaultSpace::Global, bytes: 4, address } = fault.kind
    else {
        panic!("{fault}")
    };
    assert_eq!(fault.nearest.map(|near| address - near.address), Some(4));

    let (fault, _) =
        source.find(&bug("unwritten_shared", (64, 50), 0, "u32 sum = tile", "ld.shared.u32"));
    let expected = FaultKind::Uninitialised { space: FaultSpace::Shared, address: 252, bytes: 4 };
    assert_eq!(fault.kind, expected);
    assert!(
        fault.to_string().contains("that nobody has written, at byte 252 of `tile` (256 bytes"),
        "{fault}"
    );

    let (fault, _) =
        source.find(&bug("unwritten_local", (32, 5), 0, "sum += digits[i];", "ld.local"));
    // Words 4 to 7 in one access.
    let expected = FaultKind::Uninitialised { space: FaultSpace::Local, address: 16, bytes: 16 };
    assert_eq!(fault.kind, expected);
}

/// Written by nobody: not by the host, nor by a copy of what nobody has written.
#[test]
fn unwritten_by_the_host() {
    let mut host = source!("bounds").host();
    let run =
        |host: &Host, x: u64| host.launch("global_before_start_mended", 1, 32, args![x, 32u32]);
    let x = host.memory.alloc(256, 256).unwrap();
    let y = host.memory.alloc(256, 256).unwrap();
    let unwritten = |result: Result<(), LaunchError>, at: u64| match result {
        Err(LaunchError::Fault(fault)) => {
            let space = FaultSpace::Global;
            assert_eq!(fault.kind, FaultKind::Uninitialised { space, address: at, bytes: 4 });
        }
        other => panic!("{other:?}"),
    };
    unwritten(run(&host, x), x);
    host.memory.fill(x, &[1, 2, 3, 4], 10).unwrap();
    host.memory.write(x + 44, &[0; 84]).unwrap();
    unwritten(run(&host, x), x + 40);
    host.memory.copy(y, x, 256).unwrap();
    unwritten(run(&host, y), y + 40);
    // A kernel writes it, with what is not there.
    host.run("misaligned_mended", 1, 32, args![y, 32u32]);
    host.memory.copy(x, y, 124).unwrap();
    run(&host, x).unwrap();
    // Without the check it is what it is.
    host.checks = Checks::none();
    run(&host, host.memory.alloc(256, 256).unwrap()).unwrap();
}

#[test]
fn waiting() {
    let source = source!("waiting");
    let bar = "asm volatile(\"bar.sync 0;\"";
    let (fault, _) = source.find(&bug("divergent_barriers", (32, 16), 16, bar, "bar.sync 0;"));
    let FaultKind::BarrierDivergence { at, elsewhere } = &fault.kind else { panic!("{fault}") };
    assert_eq!((at.lanes, elsewhere.lanes), (0xffff_0000, 0xffff));
    assert!(at.line != elsewhere.line && at.source != elsewhere.source, "{fault}");
    assert_eq!(fault.line, at.line);
    assert_eq!((at.waits_for, elsewhere.waits_for), (WaitsFor::Barrier(0), WaitsFor::Barrier(0)));

    let (fault, _) = source.find(&bug("barrier_and_shuffle", (32, 16), 0, bar, "bar.sync 0;"));
    let FaultKind::BarrierDivergence { at, elsewhere } = &fault.kind else { panic!("{fault}") };
    assert_eq!((at.lanes, at.waits_for), (0xffff, WaitsFor::Barrier(0)));
    assert_eq!((elsewhere.lanes, elsewhere.waits_for), (0xffff_0000, WaitsFor::Warp));

    let bar = "asm volatile(\"bar.sync 1, 64;\"";
    let (fault, _) = source.find(&bug("deadlock", (64, 1), 0, bar, "bar.sync 1, 64;"));
    let FaultKind::Deadlock { waiting } = &fault.kind else { panic!("{fault}") };
    let [first, second] = &waiting[..] else { panic!("{fault}") };
    assert!(matches!(
        first,
        Waiting { warp: 0, lanes: u32::MAX, waits_for: WaitsFor::Barrier(1), .. }
    ));
    assert!(matches!(
        second,
        Waiting { warp: 1, lanes: u32::MAX, waits_for: WaitsFor::Barrier(2), .. }
    ));
    assert!(second.source.as_ref().unwrap().line > first.source.as_ref().unwrap().line);

    let (fault, _) =
        source.find(&bug("outside_mask", (32, 3), 16, "__shfl_sync(0x0000ffff", "shfl.sync"));
    assert_eq!(fault.kind, FaultKind::LaneOutsideMask { members: 0xffff });

    let (fault, _) = source.find(&bug("endless", (32, 5), 0, "x[", "%"));
    assert_eq!(fault.kind, FaultKind::InstructionBudget { limit: 100_000 });
    assert!(fault.to_string().contains("100000 instructions is used up: a loop without end"));
}

#[test]
fn control() {
    let source = source!("control");
    let (fault, _) = source.find(&bug("bad_call", (32, 3), 2, "steps[threadIdx.x % n](", "call"));
    assert_eq!(fault.kind, FaultKind::BadCall { address: 0 });

    let (fault, _) = source.find(&bug("stack_overflow", (32, 0), 0, "u32 below = depth", "call"));
    assert!(matches!(fault.kind, FaultKind::CallDepth { .. }), "{fault}");

    let (fault, _) = source.find(&bug("trapped", (32, 7), 8, "__trap();", "trap;"));
    assert_eq!(fault.kind, FaultKind::Trap);
    // Where it was inlined.
    let call = fault.source.as_ref().unwrap().inlined_at.as_ref().unwrap();
    assert!(source.cuda.lines().nth(call.line as usize - 1).unwrap().contains("check("), "{fault}");
    assert!(fault.to_string().contains(" inlined at kernels/bugs/control.cu:"), "{fault}");

    let (fault, _) = source.find(&bug("asserted", (32, 20), 20, "assert(x[", "call"));
    let FaultKind::Assert { message, line, .. } = &fault.kind else { panic!("{fault}") };
    assert_eq!((message.as_str(), *line), ("x[threadIdx.x] < n", fault.source.unwrap().line));
}

/// The fault, and what it says of the other access: its thread, and what stands in its lines.
#[track_caller]
fn race(bug: &Bug, thread: u32, line: &str, ptx: &str) -> Fault {
    let source = source!("races");
    let (fault, _) = source.find(bug);
    let FaultKind::Race { other, .. } = &fault.kind else { panic!("{fault}") };
    assert_eq!(other.thread, [thread, 0, 0], "{fault}");
    let text = |text: &'static str, line: u32| text.lines().nth(line as usize - 1).unwrap();
    assert!(text(source.ptx, other.line).contains(ptx), "{fault}");
    let place = other.source.as_ref().unwrap();
    assert!(text(source.cuda, place.line).contains(line), "{fault}");
    assert!(fault.to_string().contains(&place.to_string()), "{fault}");
    fault
}

#[test]
fn races() {
    let n = 3;
    // The first warp has read what the second one writes now. That nobody had written it is told as the race.
    let found = bug("race_block", (64, n), 32, "tile[threadIdx.x] =", "st.shared.u32");
    let fault = race(&found, 31, "= tile[63 - threadIdx.x]", "ld.shared.u32");
    let FaultKind::Race { address: 128, bytes: 4, write: true, atomic: false, .. } = fault.kind
    else {
        panic!("{fault}")
    };
    assert!(fault.to_string().contains("at byte 128 of `tile` (256 bytes"), "{fault}");

    let found = bug("race_next_round", (64, n), 32, "sum += tile", "ld.shared.u32");
    race(&found, 31, "tile[threadIdx.x] = threadIdx.x * round;", "st.shared.u32");

    let found = bug("race_warp", (64, n), 0, "x[threadIdx.x] = tile", "ld.shared.u32");
    race(&found, 1, "tile[threadIdx.x] =", "st.shared.u32");

    let found = bug("race_same_store", (64, n), 1, "last = threadIdx.x + n;", "st.shared.u32");
    race(&found, 0, "last = threadIdx.x + n;", "st.shared.u32");

    let found = bug("race_atomic", (64, n), 1, "atomicAdd(&count, 1);", "shared.add.u32");
    race(&found, 0, "count = 0;", "st.shared.u32");

    let found = bug("race_flag", (64, n), 32, "x[0] = data;", "ld.shared.u32");
    race(&found, 0, "data = n;", "st.shared.u32");
}

/// What was loaded of shared and local memory that nobody has written may be passed on, until something depends
/// on it.
#[test]
fn what_nobody_has_written_may_be_passed_on() {
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
        host.checks = Checks::none().uninitialised();
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
        "atom.shared.inc.u32 %r3, [word+4], %r1;",
    ] {
        for (load, space, line) in
            [(shared, FaultSpace::Shared, 11), (local, FaultSpace::Local, 11)]
        {
            let error = run(load, used).expect_err(used);
            let LaunchError::Fault(fault) = error else { panic!("{error}") };
            let FaultKind::Uninitialised { space: found, .. } = fault.kind else {
                panic!("{used}: {fault}")
            };
            // Where it was loaded first, or where the copy was.
            let copied = used.starts_with("st.shared")
                || used.starts_with("st.local")
                || used.contains(".inc");
            assert!(copied || (found, fault.line) == (space, line), "{used}: {fault}");
        }
    }
    // Of a load, the bytes that it says it uses.
    let half = "ld.LOAD; st.local.u16 [own], %r1; .pragma \"used_bytes_mask MASK\"; ld.local.u32 %r2, [own];";
    let with = |mask: &str| {
        let rest = format!("{} st.global.u32 [%d1], %r2;", &half[9..].replace("MASK", mask));
        run("local.u32 %r4, [own+8]", &rest)
    };
    with("0x3").unwrap();
    with("0x5").unwrap_err();
}

/// A read of unwritten shared memory that is no half of a race is told as what it is, also by a kernel that
/// goes on, and in front of what comes of it.
#[test]
fn what_may_be_a_race_is_told_if_it_is_none() {
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
        assert_eq!(fault.kind, FaultKind::Uninitialised { space, address: 4, bytes: 4 }, "{after}");
        assert_eq!((fault.line, fault.thread), (6, [0; 3]), "{after}");
    }
}
