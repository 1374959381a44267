//! Random operations agree with plain Rust, while other operations are cancelled or fail.
//!
//! A [`program`] keeps a few buffers and runs some steps: graphs whose parts are shared, forked, cancelled and failing;
//! changes in place; reads; replacements. [`run`] runs programs on a device, from many threads on the same streams,
//! and compares with a [`reference`] that uses no device. On the CPU device each stream is delayed at random
//! ([`Timing::Adversarial`]), so a missing order soon gives a wrong result.
//!
//! Everything except the interleaving of threads follows from a seed. A failure prints the seed and the smallest
//! program that still fails. `RANDOM_PROGRAMS_SEED=0x..` repeats that program, and `RANDOM_PROGRAMS_COUNT=100000` runs
//! more programs.

mod build;
mod program;
mod reference;
mod run;

use std::{
    io::{self, Write},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use cuda_async::{
    Device,
    cuda_cpu::{CpuOptions, CpuProvider, Profile, Timing},
};

pub use self::program::Random;
use self::{
    program::{Program, Step},
    run::{World, Wrong},
};
use crate::{devices, link::LinkProvider, on_every_device};

on_every_device! { random_programs_agree }

/// The number of threads that run programs.
const THREADS: usize = 6;

/// The least number of submissions of a program that are skipped, on average.
const MIN_SKIPPED: f64 = 0.05;

/// The first seed of a run. The others follow it.
const SEED: u64 = 0x5eed_0000;

fn adversarial(profile: Arc<Profile>) -> CpuProvider {
    let mut options = CpuOptions::default().profile(profile);
    let max_delay = Duration::from_micros(400);
    options.timing = Timing::Adversarial { seed: SEED, max_delay };
    CpuProvider::new(options)
}

/// Returns a device of the same kind that no other test uses, the number of programs to run on it, and its profile if
/// it skips work of dropped operations.
fn own(device: &Device) -> (Device, u64, Option<Arc<Profile>>) {
    let profile = Arc::new(Profile::new());
    let is = |other: Option<Device>| other.as_ref() == Some(device);
    if is(devices::cpu()) {
        (Device::open(&adversarial(profile.clone()), 0).unwrap(), 4000, Some(profile))
    } else if is(devices::link()) {
        (LinkProvider::new(Duration::from_micros(200)).open_device(), 200, None)
    } else if is(devices::lease()) {
        let is_here = std::env::var_os("LEASE_NODE").is_none();
        let device = devices::own_lease(adversarial(profile.clone()));
        (device, 500, Some(profile).filter(|_| is_here))
    } else {
        (devices::own_cuda().unwrap(), 500, None)
    }
}

fn random_programs_agree(device: &Device) {
    let (device, count, profile) = own(device);
    let longer = std::env::var("RANDOM_PROGRAMS_COUNT").ok();
    let count = longer.map_or(count, |count| count.parse().expect("a number"));
    let again = std::env::var("RANDOM_PROGRAMS_SEED").ok().map(|seed| {
        u64::from_str_radix(seed.trim_start_matches("0x"), 16).expect("a seed in hexadecimal")
    });
    let seed_of = |number| again.unwrap_or(SEED + number);
    let kept = World::new(&device);
    device.synchronize().unwrap();
    let before = device.memory().unwrap().used;
    if let Some((number, wrong)) = first_failure(&kept, count, &|n| Program::drawn(seed_of(n))) {
        let seed = seed_of(number);
        let program = smaller(&device, Program::drawn(seed));
        panic!("program {number}, RANDOM_PROGRAMS_SEED={seed:#x}: {wrong}\nsmallest: {program:#?}");
    }
    comes_back(&device, before);
    if let Some(profile) = profile {
        let (skipped, per_program) = (profile.skipped(), profile.skipped() as f64 / count as f64);
        println!(
            "{skipped} submissions of {count} programs were skipped: {per_program:.2} of each"
        );
        // Programs of which nothing is skipped would show nothing about dropped work.
        assert!(again.is_some() || per_program > MIN_SKIPPED, "{skipped} of {count} programs");
    }
}

/// Runs programs from many threads and returns the first wrong one.
fn first_failure(
    world: &World,
    count: u64,
    program: &(dyn Fn(u64) -> Program + Sync),
) -> Option<(u64, Wrong)> {
    let (next, failure) = (AtomicU64::new(0), Mutex::new(None));
    let running: Vec<_> = (0..THREADS).map(|_| Mutex::new(None)).collect();
    let work = |thread: usize| {
        while failure.lock().unwrap().is_none() {
            let number = next.fetch_add(1, Ordering::Relaxed);
            *running[thread].lock().unwrap() = (number < count).then(|| (number, Instant::now()));
            if number >= count {
                return;
            }
            if let Err(wrong) = run::run(world, &program(number)) {
                failure.lock().unwrap().get_or_insert((number, wrong));
            }
        }
    };
    thread::scope(|threads| {
        let work = &work;
        let spawn = |thread| threads.spawn(move || work(thread));
        let workers: Vec<_> = (0..THREADS).map(spawn).collect();
        while workers.iter().any(|worker| !worker.is_finished()) {
            thread::sleep(Duration::from_millis(5));
            running.iter().for_each(|running| give_up_on(&running.lock().unwrap()));
        }
    });
    failure.into_inner().unwrap()
}

/// Names a program that hangs, and ends the process, because the program cannot be stopped.
fn give_up_on(running: &Option<(u64, Instant)>) {
    if let Some((number, since)) = running
        && since.elapsed() > Duration::from_secs(60)
    {
        // Not `eprintln!`, which the test harness captures.
        let _ = writeln!(io::stderr(), "random program {number} from {SEED:#x} on hangs");
        std::process::exit(101);
    }
}

/// Removes steps, runs and parts that the failure does not need, within a time limit.
fn smaller(device: &Device, mut program: Program) -> Program {
    let end = Instant::now() + Duration::from_secs(15);
    // The failure may have lost the device.
    let fails = |program: &Program| {
        let _ = device.reset();
        first_failure(&World::new(device), 200, &|_| program.clone()).is_some()
    };
    let mut position = 0;
    while Instant::now() < end {
        let Some(candidate) = without(&program, position) else { break };
        if fails(&candidate) {
            program = candidate;
        } else {
            position += 1;
        }
    }
    program
}

/// Returns the program without its `position`th step or run.
fn without(program: &Program, mut position: usize) -> Option<Program> {
    let mut program = program.clone();
    if position < program.steps.len() {
        program.steps.remove(position);
        return Some(program);
    }
    position -= program.steps.len();
    for step in &mut program.steps {
        let Step::Round(round) = step else { continue };
        if position < round.runs.len() {
            round.runs.remove(position);
            return Some(program);
        }
        position -= round.runs.len();
    }
    None
}

/// Checks that all dropped values are gone, after the aborted tasks are dropped too.
fn comes_back(device: &Device, before: u64) {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        device.synchronize().unwrap();
        let used = device.memory().unwrap().used;
        if used == before {
            return;
        }
        assert!(Instant::now() < end, "{used} bytes in use, {before} before");
        thread::sleep(Duration::from_millis(5));
    }
}
