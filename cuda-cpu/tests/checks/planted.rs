//! `kernels/bugs`: one kernel for each kind of fault, and its corrected version.

use cuda_cpu::{Checks, Fault, FaultKind, FaultSpace, LaunchError, Waiting, WaitsFor};

use crate::args;
use crate::bugs::{Bug, WORDS, bug};
use crate::host::Host;
use crate::source;

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

/// The host frees the memory before the launch.
#[test]
fn use_after_host_free() {
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
    let FaultKind::Uninitialized { space: FaultSpace::Global, bytes: 4, address } = fault.kind
    else {
        panic!("{fault}")
    };
    assert_eq!(fault.nearest.map(|near| address - near.address), Some(4));

    let (fault, _) =
        source.find(&bug("unwritten_shared", (64, 50), 0, "u32 sum = tile", "ld.shared.u32"));
    let expected = FaultKind::Uninitialized { space: FaultSpace::Shared, address: 252, bytes: 4 };
    assert_eq!(fault.kind, expected);
    assert!(
        fault.to_string().contains("that was never written, at byte 252 of `tile` (256 bytes"),
        "{fault}"
    );

    let (fault, _) =
        source.find(&bug("unwritten_local", (32, 5), 0, "sum += digits[i];", "ld.local"));
    // One access to words 4 to 7.
    let expected = FaultKind::Uninitialized { space: FaultSpace::Local, address: 16, bytes: 16 };
    assert_eq!(fault.kind, expected);
}

/// Memory that neither the host nor a copy of written memory has written.
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
            assert_eq!(fault.kind, FaultKind::Uninitialized { space, address: at, bytes: 4 });
        }
        other => panic!("{other:?}"),
    };
    unwritten(run(&host, x), x);
    host.memory.fill(x, &[1, 2, 3, 4], 10).unwrap();
    host.memory.write(x + 44, &[0; 84]).unwrap();
    unwritten(run(&host, x), x + 40);
    host.memory.copy(y, x, 256).unwrap();
    unwritten(run(&host, y), y + 40);
    // A kernel writes the missing part.
    host.run("misaligned_mended", 1, 32, args![y, 32u32]);
    host.memory.copy(x, y, 124).unwrap();
    run(&host, x).unwrap();
    // Without the check, the read returns what is in memory.
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
    // The fault names the place into which the call was inlined.
    let call = fault.source.as_ref().unwrap().inlined_at.as_ref().unwrap();
    assert!(source.cuda.lines().nth(call.line as usize - 1).unwrap().contains("check("), "{fault}");
    assert!(fault.to_string().contains(" inlined at kernels/bugs/control.cu:"), "{fault}");

    let (fault, _) = source.find(&bug("asserted", (32, 20), 20, "assert(x[", "call"));
    let FaultKind::Assert { message, line, .. } = &fault.kind else { panic!("{fault}") };
    assert_eq!((message.as_str(), *line), ("x[threadIdx.x] < n", fault.source.unwrap().line));
}

/// Finds a race. Checks the other access: its thread, and the text of its lines.
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
    // The first warp has read the word that the second one writes now. The read of unwritten memory is reported as the
    // race.
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

#[test]
fn warps() {
    let source = source!("warps");
    let shuffle = "sum += __shfl_down_sync(0x000000ff, sum, step);";
    let (fault, _) = source.find(&bug("shuffle_outside", (32, 4), 4, shuffle, "shfl.sync.down"));
    assert_eq!(fault.kind, FaultKind::AbsentLane { lane: 8, members: 0xff });
    assert!(fault.to_string().contains("lane 8 is not in the member mask 0x000000ff"), "{fault}");

    let shuffle = "__shfl_xor_sync(0xffffffff, value, 16);";
    let (fault, _) =
        source.find(&bug("shuffle_from_exited", (32, 16), 0, shuffle, "shfl.sync.bfly"));
    assert_eq!(fault.kind, FaultKind::AbsentLane { lane: 16, members: u32::MAX });
    assert!(fault.to_string().contains("lane 16 has exited or does not exist"), "{fault}");

    let vote = "value = __ballot_sync(0xffffffff";
    let (fault, _) = source.find(&bug("vote_and_shuffle", (32, 5), 0, vote, "vote.sync.ballot"));
    let FaultKind::Deadlock { waiting } = &fault.kind else { panic!("{fault}") };
    let waits: Vec<_> = waiting.iter().map(|w| (w.lanes, w.waits_for)).collect();
    assert_eq!(waits, [(0xffff, WaitsFor::Warp), (0xffff_0000, WaitsFor::Warp)]);
    let words = "for other lanes of their member mask in `vote.sync.ballot.b32`";
    assert!(fault.to_string().contains(words), "{fault}");

    let sync = "\"bar.sync 1, 96;\"";
    let (fault, _) = source.find(&bug("barrier_counts", (64, 32), 32, sync, "bar.sync 1, 96;"));
    assert_eq!(fault.kind, FaultKind::BarrierCount { barrier: 1, threads: 96, others: 64 });

    let (fault, _) =
        source.find(&bug("wrong_function", (32, 1), 0, "= step(threadIdx.x);", "call"));
    let FaultKind::CallMismatch { function } = &fault.kind else { panic!("{fault}") };
    assert!(function.contains("note"), "{fault}");
}
