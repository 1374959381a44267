//! Measures driver calls that wait for kernels on other streams.
//!
//! `cargo bench -p benches --bench driver_waits` needs a GPU with a driver of CUDA 13.0 or newer. It uses raw driver
//! calls only.
//!
//! The first part measures which calls wait for a running kernel, and which of them delay launches of other threads. A
//! kernel runs for [`KERNEL`]. A second thread makes the call [`BEFORE_CALL`] later. The first thread launches an empty
//! kernel on another stream [`BEFORE_LAUNCH`] after the call.
//!
//! The second part measures which calls wait while the load or unload of a module waits for a kernel. The second thread
//! loads or unloads a module, and the first thread makes the call.

mod calls;
mod during_module_change;
mod gpu;

use std::{
    thread,
    time::{Duration, Instant},
};

use benches::section;
use cudarc::driver::sys;

use crate::{
    calls::{Handles, calls},
    during_module_change::Change,
    gpu::{Gpu, Result},
};

/// The time for which the kernel runs.
const KERNEL: Duration = Duration::from_millis(250);
/// The time for which a kernel runs while one stream is created.
const SHORT_KERNEL: Duration = Duration::from_millis(4);
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
    let prepared = during_module_change::prepare(&gpu)?;
    for (name, change) in [("load", Change::Load), ("unload", Change::Unload)] {
        let title = format!("Calls during a module {name} that waits for such a kernel");
        section(&title, &["the call, ms"]);
        for call in &during_module_change::calls(&gpu, &prepared) {
            change.prepare(&prepared)?;
            let changes = || change.run(&prepared);
            let (_, took) = during_a_kernel(&gpu, changes, || time(|| (call.run)()))?;
            println!("| driver | {} | {:.2} |", call.name, millis(took));
        }
    }
    streams_that_wait(&gpu)
}

/// Creates streams while short kernels run in sequence, and prints which creations waited. Then destroys the streams
/// and creates as many again.
fn streams_that_wait(gpu: &Gpu) -> Result<()> {
    section(
        "256 streams that are created while kernels run",
        &["one, us", "device memory, MiB", "waited", "the first of them"],
    );
    let turns = [
        ("the first ones", 0),
        ("when those were destroyed", 0),
        ("with the highest priority", gpu::highest_priority()?),
        ("when those were destroyed", gpu::highest_priority()?),
    ];
    for (turn, priority) in turns {
        let (mut streams, mut waited, mut others) = (Vec::new(), Vec::new(), Duration::ZERO);
        let before = gpu::free_memory()?;
        for index in 0..256 {
            gpu.run_for(SHORT_KERNEL)?;
            let begin = Instant::now();
            streams.push(gpu::new_stream(priority)?);
            match begin.elapsed() {
                took if took > SHORT_KERNEL / 4 => waited.push(index),
                took => others += took,
            }
            gpu.synchronize()?;
        }
        let mean = others.as_secs_f64() * 1e6 / (streams.len() - waited.len()) as f64;
        let memory = (before - gpu::free_memory()?) as f64 / (1 << 20) as f64;
        for stream in streams {
            // SAFETY: made above, and nothing uses it.
            gpu::check(unsafe { sys::cuStreamDestroy_v2(stream) })?;
        }
        let waits = waited.len();
        println!("| driver | {turn} | {mean:.1} | {memory:.1} | {waits} | {waited:?} |");
    }
    Ok(())
}

/// Runs `call` on another thread while a kernel runs, and then `then` on this thread, `BEFORE_LAUNCH` later.
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
