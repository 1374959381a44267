//! The instruction budget is exact.

use cuda_cpu::{Fault, FaultKind, LaunchError, Limits, Schedule};

use crate::args;
use crate::host::Host;

/// Each warp executes 4 instructions, and 3 for each of `n` rounds. The `mov` does not count.
const LOOP: &str = ".version 7.0
.target sm_70
.address_size 64
.visible .entry k(.param .u32 n)
{
    .reg .pred %p<3>; .reg .b32 %r<4>;
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %tid.x;
    setp.eq.u32 %p2, %r1, 0;
    @%p2 bra DONE;
L:  sub.u32 %r1, %r1, 1;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra L;
DONE:
    ret;
}
.visible .entry split()
{
    .reg .pred %p<2>; .reg .b32 %r<3>;
    mov.u32 %r1, %tid.x;
    setp.lt.u32 %p1, %r1, 5;
    @%p1 bra LOW;
    add.u32 %r2, %r1, 1;
    add.u32 %r2, %r1, 2;
    bra DONE;
LOW:
    @!%p1 add.u32 %r2, %r1, 3;
DONE:
    ret;
}
.visible .entry forever()
{
L:  bra L;
}";

fn run(h: &Host, kernel: &str, blocks: u32, threads: u32, limit: u64) -> Option<Box<Fault>> {
    let args: &[_] = if kernel == "k" { args![10u32] } else { &[] };
    match h.launch(kernel, blocks, threads, args) {
        Ok(()) => None,
        Err(LaunchError::Fault(fault)) => {
            assert_eq!(fault.kind, FaultKind::InstructionBudget { limit });
            Some(fault)
        }
        Err(other) => panic!("{other}"),
    }
}

fn host(limit: u64, threads: usize) -> Host {
    let mut h = if threads > 1 { Host::with_pool(LOOP, threads) } else { Host::new(LOOP) };
    h.limits = Limits { instructions: Some(limit), ..Limits::default() };
    h
}

#[test]
fn launch_within_the_limit_passes_and_beyond_it_faults() {
    // 2 blocks of 3 warps.
    let (needed, lines) = (2 * 3 * (3 + 30 + 1), ["sub", "setp", "bra", "ret"]);
    for workers in [1, 3] {
        assert_eq!(run(&host(needed, workers), "k", 2, 70, needed), None);
        for missing in [1, 2, 7, needed] {
            let limit = needed - missing;
            let fault = run(&host(limit, workers), "k", 2, 70, limit).expect("one too many");
            let line = LOOP.lines().nth(fault.line as usize - 1).unwrap();
            assert!(
                workers > 1 || missing > 7 || lines.iter().any(|l| line.contains(l)),
                "{fault}"
            );
        }
    }
}

/// Counted by hand: 2 for all lanes (the `mov` does not count), 3 for those that continue, 1 for the others, whose
/// guard is false, and `ret` after convergence.
#[test]
fn fragments_of_a_warp_count_separately() {
    assert_eq!(run(&host(7, 1), "split", 1, 32, 7), None);
    let fault = run(&host(6, 1), "split", 1, 32, 6).unwrap();
    assert!(LOOP.lines().nth(fault.line as usize - 1).unwrap().contains("ret"));
}

#[test]
fn single_worker_stops_at_the_same_instruction() {
    let ends = || {
        let mut h = host(12_345, 1);
        h.schedule = Schedule::Fixed;
        run(&h, "forever", 3, 40, 12_345).unwrap()
    };
    let first = ends();
    assert!((0..5).all(|_| ends() == first));
    assert!(first.to_string().contains("a loop without end, or too small a budget"), "{first}");
    assert!(LOOP.lines().nth(first.line as usize - 1).unwrap().contains("bra L"));
}
