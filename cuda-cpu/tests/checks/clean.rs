//! Correct kernels: no check reports them in any order, and the results are the same.

use cuda_cpu::{Checks, Schedule};

use crate::args;
use crate::host::Host;

/// The orders in which these tests run.
fn schedules() -> impl Iterator<Item = Schedule> {
    let shuffled = (0..12).map(|seed| Schedule::Shuffled { seed });
    [Schedule::Parallel, Schedule::Fixed].into_iter().chain(shuffled)
}

fn host(ptx: &str, schedule: Schedule) -> Host {
    let mut host = Host::with_pool(ptx, 2);
    (host.checks, host.schedule) = (Checks::all(), schedule);
    host.limits.instructions = Some(10_000_000);
    host
}

#[test]
fn correct_cooperation_is_not_reported() {
    let ptx = include_str!("../../../kernels/bugs/patterns.ptx");
    for kernel in [
        "producer_consumer",
        "warp_steps",
        "shuffled_sum",
        "locked",
        "locked_outside",
        "handed_on",
        "last_one_sums",
        "neighbours",
        "all_write_the_same",
        "early_exit",
        "late_lanes",
        "calls",
    ] {
        let run = |schedule| {
            let h = host(ptx, schedule);
            let x = h.upload(&(0..64).collect::<Vec<u32>>());
            let result = h.launch(kernel, 1, 64, args![x, 5u32]);
            result.unwrap_or_else(|error| panic!("{schedule:?}: {error}"));
            h.download::<u32>(x, 64)
        };
        let expected = run(Schedule::Parallel);
        assert!(schedules().all(|schedule| run(schedule) == expected), "{kernel}");
    }
}
