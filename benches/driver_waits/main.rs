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
    calls::{Handles, calls},
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
        let launch = || Ok([time(|| gpu.launch_on_other())?, time(|| gpu.wait_for_other())?]);
        let (called, launched) = during_a_kernel(&gpu, || time(|| (call.run)()), launch)?;
        let [launches, ends] = launched.map(millis);
        println!("| driver | {} | {:.2} | {launches:.2} | {ends:.2} |", call.name, millis(called));
    }
    section("Calls during a module load that waits for such a kernel", &["the call, ms"]);
    let prepared = during_load::prepare(&gpu)?;
    for call in &during_load::calls(&gpu, &prepared) {
        let (_, took) = during_a_kernel(&gpu, during_load::load, || time(|| (call.run)()))?;
        println!("| driver | {} | {:.2} |", call.name, millis(took));
    }
    Ok(())
}

/// Makes `call` on another thread while a kernel runs, and `then` on this one when `call` has had time to begin.
fn during_a_kernel<A: Send, B>(
    gpu: &Gpu,
    call: impl FnOnce() -> Result<A> + Send,
    then: impl FnOnce() -> Result<B>,
) -> Result<(A, B)> {
    gpu.synchronize()?;
    gpu.run_for(KERNEL)?;
    thread::sleep(BEFORE_CALL);
    let (called, then) = thread::scope(|scope| {
        let called = scope.spawn(|| {
            gpu.bind()?;
            call()
        });
        thread::sleep(BEFORE_LAUNCH);
        let then = then();
        (called.join(), then)
    });
    let called = called.map_err(|_| "the call panicked")??;
    gpu.synchronize()?;
    Ok((called, then?))
}

fn time(run: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let start = Instant::now();
    run()?;
    Ok(start.elapsed())
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
