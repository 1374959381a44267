//! Compares the CPU device with plain Rust: a kernel on all cores, and the same work in a loop on one core.
//!
//! `cargo bench -p benches --bench cpu_device [-- NAME] [-- --small]`. Results are compared before timing.
//! `--small` selects the problem sizes of `benches/peers/ptoxide` and `benches/peers/numba_simulator`.

mod cases;
mod inputs;
mod machine;
mod scalar;
mod sizes;
mod work;

use std::cell::RefCell;

use benches::{Effort, Way, medians, report, section};
use cuda_async::LaunchConfig;

use crate::machine::Machine;

const EFFORT: Effort = Effort { rounds: 7, in_a_row: 1 };
const SMALL_EFFORT: Effort = Effort { rounds: 101, in_a_row: 1 };

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let asked = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let small = std::env::args().any(|arg| arg == "--small");
    let (sizes, effort) = if small { (sizes::SMALL, SMALL_EFFORT) } else { (sizes::FULL, EFFORT) };
    let machine = Machine::new()?;
    let mut ratios = Vec::new();
    section(&machine.name, &["plain Rust, one core, ms", "CPU device, ms", "ratio"]);
    for (name, make) in cases::ALL {
        if asked.as_ref().is_some_and(|asked| asked != name) {
            continue;
        }
        let mut work = make(&machine, &sizes)?;
        if !work.agrees() {
            return Err(format!("{name}: results differ").into());
        }
        let work = RefCell::new(work);
        let mut ways = [
            Way::new("plain Rust", || work.borrow_mut().plain()),
            Way::new("CPU device", || work.borrow_mut().device()),
        ];
        let times = medians(&mut ways, effort);
        let [plain, device] = times[..] else { continue };
        let (size, ratio) = (sizes.text(name), device / plain);
        println!("| {name} | {size} | {:.3} | {:.3} | {ratio:.2} |", plain / 1e3, device / 1e3);
        ratios.push(ratio);
    }
    let mean = ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64;
    println!("| geometric mean of {} | | | | {:.2} |", ratios.len(), mean.exp());
    if asked.is_none() && !small {
        small_launches(&machine)?;
    }
    Ok(())
}

/// Measures the launch of an empty kernel and the wait for it.
fn small_launches(machine: &Machine) -> Result<(), Box<dyn std::error::Error>> {
    let empty = machine.kernel(include_str!("../../kernels/basic.ptx"), "empty")?;
    section("small launches", &["median us", "to the first"]);
    let ways = [("1 thread", 1, 1), ("8 blocks of 256 threads", 8, 256)]
        .map(|(name, grid, block)| {
            let (empty, config) = (&empty, LaunchConfig::new(grid, block));
            // SAFETY: the kernel has no parameters.
            Way::new(name, move || unsafe { machine.run(empty, config, ()) })
        })
        .into();
    report("empty kernel", ways, Effort { rounds: 20, in_a_row: 20 });
    Ok(())
}
