//! Operations composed at random agree with plain Rust, whatever is cancelled or fails beside them.
//!
//! A [`program`] keeps a few buffers and does some steps: graphs whose parts are shared, forked, cancelled and failing, run
//! in every way; changes in place; reads; replacements. [`run`] does so on a device, from many threads at once
//! on the same streams, and compares with a [`reference`] that knows no device. On the CPU device each stream takes its
//! time ([`Timing::Adversarial`]), so what is not ordered goes wrong soon.
//!
//! Everything but the interleaving of threads follows from a seed. A failure names it, with the smallest program that
//! still failed; `RANDOM_PROGRAMS_SEED=0x..` runs that one again and again. `RANDOM_PROGRAMS_COUNT=100000` runs for longer.

mod build;
mod program;
mod reference;
mod run;

use std::{
    io::{self, Write},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use cuda_async::{
    Device,
    cuda_cpu::{CpuOptions, CpuProvider, Timing},
};
#[cfg(feature = "cuda")]
use cuda_core::cuda::CudaProvider;

use self::{
    program::{Program, Step},
    run::{World, Wrong},
};
use crate::{devices, link::LinkProvider, on_every_device};

on_every_device! { random_programs_agree }

/// Threads that run programs.
const THREADS: usize = 6;

/// The first seed of a run; the others count on from it.
const SEED: u64 = 0x5eed_0000;

fn adversarial() -> CpuProvider {
    let mut options = CpuOptions::default();
    let max_delay = Duration::from_micros(400);
    options.timing = Timing::Adversarial { seed: SEED, max_delay };
    CpuProvider::new(options)
}

/// A device of the same kind that nobody else uses, and how many programs it is worth.
fn own(device: &Device) -> (Device, u64) {
    let is = |other: Option<Device>| other.as_ref() == Some(device);
    if is(devices::cpu()) {
        (Device::open(&adversarial(), 0).unwrap(), 4000)
    } else if is(devices::link()) {
        (LinkProvider::new(std::time::Duration::from_micros(200)).open_device(), 200)
    } else {
        another_gpu_device()
    }
}

#[cfg(feature = "cuda")]
fn another_gpu_device() -> (Device, u64) {
    (Device::open(&CudaProvider::new(), 0).unwrap(), 500)
}

#[cfg(not(feature = "cuda"))]
fn another_gpu_device() -> (Device, u64) {
    unreachable!("built without `cuda`")
}

fn random_programs_agree(device: &Device) {
    let (device, count) = own(device);
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
}

/// Runs programs from many threads, and gives the first that was wrong.
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

/// A program that hangs cannot be ended: it is named, and the tests end.
fn give_up_on(running: &Option<(u64, Instant)>) {
    if let Some((number, since)) = running
        && since.elapsed() > Duration::from_secs(60)
    {
        // Not `eprintln!`, which tests keep to themselves.
        let _ = writeln!(io::stderr(), "random program {number} from {SEED:#x} on hangs");
        std::process::exit(101);
    }
}

/// The program without the steps, runs and parts that it does not need to fail, as far as that is found soon.
fn smaller(device: &Device, mut program: Program) -> Program {
    let end = Instant::now() + Duration::from_secs(15);
    // A failure may have taken the device.
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

/// The program without its `position`th step or run.
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

/// What was dropped has gone: once aborted tasks have been dropped too.
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
