//! Measures which driver calls wait for kernels on other streams, and which of them hold up launches of other threads
//! meanwhile. Then measures which calls wait while a module load waits for a kernel. Raw driver calls only.
//!
//! `cargo bench -p benches --bench driver_waits` needs a GPU with a driver of CUDA 13.0 or newer. A kernel runs for
//! [`KERNEL`]. A second thread makes the call [`BEFORE_CALL`] later, and the first thread launches an empty kernel on
//! another stream when the call has had [`BEFORE_LAUNCH`] to begin. In the second part the second thread loads a module,
//! and the first one makes the call.

mod calls;
mod during_load;
mod gpu;

use std::{
    thread,
    time::{Duration, Instant},
};

use benches::section;

use crate::{
    calls::{Call, Handles, calls},
    gpu::{Gpu, Result},
};

/// The time for which the kernel runs.
const KERNEL: Duration = Duration::from_millis(250);
/// The time from the launch of the kernel to the call.
const BEFORE_CALL: Duration = Duration::from_millis(20);
/// The time from the call to the launch on the other stream; in the second part, from the module load to the call.
const BEFORE_LAUNCH: Duration = Duration::from_millis(20);

fn main() -> Result<()> {
    let gpu = Gpu::open()?;
    println!("# {}", gpu.name()?);
    section(
        "Calls during a kernel of 250 ms",
        &["the call, ms", "a launch on another stream, ms", "its end, ms"],
    );
    let handles = Handles::default();
    for call in &calls(&gpu, &handles) {
        let [calls, launches, ends] = during_a_kernel(&gpu, call)?.map(|it| it.as_secs_f64() * 1e3);
        println!("| driver | {} | {calls:.2} | {launches:.2} | {ends:.2} |", call.name);
    }
    section("Calls during a module load that waits for such a kernel", &["the call, ms"]);
    let prepared = during_load::prepare(&gpu)?;
    for call in &during_load::calls(&gpu, &prepared) {
        let took = during_a_load(&gpu, call)?.as_secs_f64() * 1e3;
        println!("| driver | {} | {took:.2} |", call.name);
    }
    Ok(())
}

/// The duration of the call, made while a module load of another thread waits for the kernel.
fn during_a_load(gpu: &Gpu, call: &Call<'_>) -> Result<Duration> {
    gpu.synchronize()?;
    gpu.run_for(KERNEL)?;
    thread::sleep(BEFORE_CALL);
    let took = thread::scope(|scope| {
        let loaded = scope.spawn(|| {
            gpu.bind()?;
            during_load::load()
        });
        thread::sleep(BEFORE_LAUNCH);
        let took = time(|| (call.run)());
        loaded.join().map_err(|_| "the load panicked")??;
        took
    })?;
    gpu.synchronize()?;
    Ok(took)
}

/// The durations of the call, of the launch by the other thread, and of that thread's wait for its kernel.
fn during_a_kernel(gpu: &Gpu, call: &Call<'_>) -> Result<[Duration; 3]> {
    gpu.synchronize()?;
    gpu.run_for(KERNEL)?;
    thread::sleep(BEFORE_CALL);
    let times = thread::scope(|scope| {
        let called = scope.spawn(|| {
            gpu.bind()?;
            time(|| (call.run)())
        });
        thread::sleep(BEFORE_LAUNCH);
        let launched = time(|| gpu.launch_on_other());
        let ended = time(|| gpu.wait_for_other());
        let called = called.join().map_err(|_| "the call panicked")?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>([called?, launched?, ended?])
    })?;
    gpu.synchronize()?;
    Ok(times)
}

fn time(run: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let start = Instant::now();
    run()?;
    Ok(start.elapsed())
}
