//! Random programs with failures on leases: faults, allocations that are refused, resets, dropped operations, graphs
//! with lost inputs, a bad network, restarts of the node, sessions that take turns.
//!
//! A [`model`] says what each operation may report, and what a read may give. A failure prints the seed and the
//! smallest program that still fails. `RANDOM_PROGRAMS_SEED=0x..` repeats that program, but not the times of its network
//! and of the restarts. `RANDOM_PROGRAMS_COUNT=1000` runs more programs.

mod model;
mod program;
mod run;

use std::{
    io::Write as _,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use cuda_lease::{Exclusivity, LeaseBuilder};
use relay::{Relay, RelayOptions};
use tokio::runtime::Runtime;

use self::{
    program::{Program, Random},
    run::{Machine, QUOTA, World, Wrong},
};
use crate::harness::{LONG, Node, Signal, device};

const THREADS: u64 = 4;

/// The seed of the first program of a run. The next programs have the numbers after it.
const SEED: u64 = 0xfa11_0000;

/// The number of programs that run on one lease.
const PROGRAMS_OF_A_LEASE: u64 = 8;

/// A network for a lease.
fn network(random: &mut Random) -> RelayOptions {
    let mut options = RelayOptions::default();
    if random.below(2) == 0 {
        options.seed = random.next();
        options.both(|impairment| {
            impairment.delay = Duration::from_micros(300);
            impairment.loss = 0.01;
            impairment.duplicate = 0.01;
            impairment.reorder = 0.02;
            impairment.reorder_delay = Duration::from_millis(2);
        });
    }
    options
}

/// Acquires a lease whose packets go through a relay.
fn world(address: &str, class: Exclusivity, random: &mut Random, runtime: &Runtime) -> World {
    let relay = Relay::start(address.parse().unwrap(), network(random)).unwrap();
    let lease = LeaseBuilder::new(relay.address().to_string()).min_vram(QUOTA);
    let lease = lease.exclusive(class).wait(LONG).resume_within(LONG);
    let end = Instant::now() + LONG;
    let lease = loop {
        match lease.clone().acquire_blocking() {
            Ok(lease) => break lease,
            // The node starts again.
            Err(error) if error.is_retryable() && Instant::now() < end => {}
            Err(error) => panic!("{error}"),
        }
    };
    World { lease, relay: Arc::new(relay), runtime: runtime.handle().clone() }
}

/// The duration of a cut: longer than the time after which a silent connection is lost.
const SILENCE: Duration = Duration::from_millis(5600);

/// Cuts the connection during some programs, so that its session resumes. In half of these cuts, packets of the client
/// still reach the node.
fn cut(relay: &Arc<Relay>, seed: u64) {
    if seed % 16 != 5 {
        return;
    }
    let set = move |relay: &Relay, partitioned| {
        relay.update(|options| {
            options.to_client.partitioned = partitioned;
            options.to_server.partitioned = partitioned && seed % 32 == 5;
        })
    };
    let relay = relay.clone();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(seed % 97));
        _ = set(&relay, true);
        std::thread::sleep(SILENCE);
        _ = set(&relay, false);
    });
}

fn run_program(world: World, program: &Program) -> Result<Option<World>, Wrong> {
    let result = catch_unwind(AssertUnwindSafe(move || {
        if program.ends_early {
            let mut machine = Machine::new(&world)?;
            for (number, step) in program.steps.iter().enumerate() {
                machine.step(step).map_err(|wrong| format!("step {number}, {step:?}: {wrong}"))?;
            }
            machine.end_early(|| world.lease.close())?;
            return Ok(None);
        }
        run::run(&world, program)?;
        Ok(Some(world))
    }));
    result.unwrap_or_else(|_| Err("the program panicked".into()))
}

/// Names a program that hangs, and ends the process, because the program cannot be stopped.
fn give_up_on(running: &Option<(u64, Instant)>) {
    if let Some((seed, since)) = running
        && since.elapsed() > LONG + LONG / 2
    {
        // Not `eprintln!`, which the test harness captures.
        _ = writeln!(std::io::stderr(), "random program {seed:#x} hangs");
        std::process::exit(101);
    }
}

/// Removes steps that the failure does not need.
fn smaller(
    fails: impl Fn(&Program) -> Option<Wrong>,
    mut program: Program,
    mut wrong: Wrong,
) -> (Program, Wrong) {
    let end = Instant::now() + Duration::from_secs(60);
    let mut size = program.steps.len() / 2;
    while size > 0 {
        let mut at = 0;
        while at < program.steps.len() && Instant::now() < end {
            let mut candidate = program.clone();
            candidate.steps.drain(at..(at + size).min(program.steps.len()));
            if let Some(of_candidate) = fails(&candidate) {
                (program, wrong) = (candidate, of_candidate);
            } else {
                at += size;
            }
        }
        size /= 2;
    }
    (program, wrong)
}

#[test]
fn random_programs_with_failures_agree_with_a_model() {
    run_programs(Exclusivity::Shared);
}

/// The leases share the device in turns.
#[test]
fn random_programs_with_failures_agree_with_a_model_in_turns() {
    run_programs(Exclusivity::Session);
}

fn run_programs(class: Exclusivity) {
    if device() != "cpu" {
        return println!("skipped: a fault of a GPU ends the session");
    }
    let variable = |name| std::env::var(name).ok();
    let count = variable("RANDOM_PROGRAMS_COUNT")
        .map_or(32, |count| count.parse().expect("RANDOM_PROGRAMS_COUNT is a number"));
    let again = variable("RANDOM_PROGRAMS_SEED").map(|seed| {
        u64::from_str_radix(seed.trim_start_matches("0x"), 16)
            .expect("RANDOM_PROGRAMS_SEED is a hexadecimal number")
    });
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let mut node = Node::start(&["--state", state.to_str().unwrap(), "--spares", "2"]);
    let address = node.address.clone();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let (failure, has_failed) = (Mutex::new(None), AtomicBool::new(false));
    let running: Vec<_> = (0..THREADS).map(|_| Mutex::new(None)).collect();
    let work = |thread: usize| {
        let mut kept: Option<(World, u64)> = None;
        while !has_failed.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                break;
            }
            let seed = again.unwrap_or(SEED + number);
            *running[thread].lock().unwrap() = Some((seed, Instant::now()));
            let mut random = Random(!seed);
            let (lease, programs) =
                kept.take().unwrap_or_else(|| (world(&address, class, &mut random, &runtime), 0));
            cut(&lease.relay, seed);
            match run_program(lease, &Program::drawn(seed)) {
                Ok(Some(lease)) if programs < PROGRAMS_OF_A_LEASE => {
                    kept = Some((lease, programs + 1));
                }
                Ok(lease) => lease.into_iter().for_each(|world| world.lease.close()),
                Err(wrong) => {
                    // Not `eprintln!`, which the test harness captures.
                    _ = writeln!(std::io::stderr(), "RANDOM_PROGRAMS_SEED={seed:#x}: {wrong}");
                    failure.lock().unwrap().get_or_insert((seed, wrong));
                    has_failed.store(true, Ordering::Relaxed);
                }
            }
            done.fetch_add(1, Ordering::Relaxed);
        }
        *running[thread].lock().unwrap() = None;
    };
    std::thread::scope(|threads| {
        let work = &work;
        let workers: Vec<_> =
            (0..THREADS as usize).map(|thread| threads.spawn(move || work(thread))).collect();
        let mut restarted = 0;
        while workers.iter().any(|worker| !worker.is_finished()) {
            std::thread::sleep(Duration::from_millis(5));
            running.iter().for_each(|running| give_up_on(&running.lock().unwrap()));
            let is_due = done.load(Ordering::Relaxed) / 12 > restarted;
            if is_due && !has_failed.load(Ordering::Relaxed) {
                restarted += 1;
                node.restart([Signal::KILL, Signal::TERM][restarted as usize % 2]);
            }
        }
    });
    if let Some((seed, wrong)) = failure.into_inner().unwrap() {
        let fails = |program: &Program| {
            (0..2).find_map(|_| {
                *running[0].lock().unwrap() = Some((seed, Instant::now()));
                let lease = world(&address, class, &mut Random(!seed), &runtime);
                run_program(lease, program).err()
            })
        };
        let is_over = AtomicBool::new(false);
        let (program, last) = std::thread::scope(|threads| {
            threads.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(5));
                    give_up_on(&running[0].lock().unwrap());
                }
            });
            let smallest = smaller(fails, Program::drawn(seed), wrong.clone());
            is_over.store(true, Ordering::Relaxed);
            smallest
        });
        panic!("RANDOM_PROGRAMS_SEED={seed:#x}: {wrong}\nsmallest: {last}\n{program:#?}");
    }
}
