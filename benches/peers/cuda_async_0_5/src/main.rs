//! The benchmarks `overhead`, `concurrency` and `graphs` with NVIDIA's cuda-async in place of this library: the same
//! blocks, sizes, kernels and raw driver calls, measured by the same code.
//!
//! `peer_cuda_async [block..]` runs the blocks `launches`, `graphs`, `kernel`, `forks`, `tasks`, `heartbeat`,
//! `building` and `streams`, or all of them if none is named. The peer reads its spin budget once, from an environment
//! variable, so the program starts a second process to measure without spinning.

mod building;
mod forks;
mod graphs;
mod heartbeat;
mod kernel;
mod launches;
mod ours;
mod peer;
mod streams;
mod tasks;

use std::{
    error::Error,
    process::{Command, ExitCode},
};

use benches::{heap::Counting, raw::Raw};

use crate::peer::Peer;

#[global_allocator]
static HEAP: Counting = Counting;

/// The spin budget, in microseconds.
const SPIN: &str = "CUDA_ASYNC_SPIN_BUDGET_US";

type Block = fn(&Raw, &Peer) -> Result<(), Box<dyn Error>>;

const BLOCKS: [(&str, Block); 8] = [
    ("launches", launches::measure),
    ("graphs", graphs::measure),
    ("kernel", kernel::measure),
    ("forks", forks::measure),
    ("tasks", tasks::measure),
    ("heartbeat", heartbeat::measure),
    ("building", building::measure),
    ("streams", streams::measure),
];

/// Blocks whose figures depend on the spin budget.
const SPINNING: [&str; 4] = ["launches", "kernel", "tasks", "building"];

fn main() -> ExitCode {
    let asked: Vec<_> = std::env::args().skip(1).collect();
    let known = |asked: &&String| BLOCKS.iter().any(|(name, _)| name == asked);
    if let Some(unknown) = asked.iter().find(|asked| !known(asked)) {
        eprintln!(
            "unknown block `{unknown}`; the blocks are {}",
            BLOCKS.map(|(name, _)| name).join(", ")
        );
        return ExitCode::from(2);
    }
    let peer = match Peer::new() {
        Ok(peer) => peer,
        Err(error) => {
            eprintln!("cannot open GPU 0, which this benchmark needs: {error}");
            return ExitCode::FAILURE;
        }
    };
    match measure(&asked, peer) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(asked: &[String], peer: Peer) -> Result<(), Box<dyn Error>> {
    let raw = Raw::new()?;
    let spins = std::env::var(SPIN).map_or("default".to_owned(), |micros| micros + " us");
    println!("\n# cuda-async {}, {}, spin budget: {spins}", version(), peer.device.device_name()?);
    for (name, measure) in BLOCKS {
        if asked.is_empty() || asked.iter().any(|wanted| wanted == name) {
            measure(&raw, &peer)?;
        }
    }
    drop((raw, peer));
    without_spinning(asked)
}

/// Repeats the measurements in a process that does not spin.
fn without_spinning(asked: &[String]) -> Result<(), Box<dyn Error>> {
    let wanted = |name: &&str| asked.is_empty() || asked.iter().any(|asked| asked == name);
    let blocks: Vec<_> = SPINNING.into_iter().filter(wanted).collect();
    if std::env::var_os(SPIN).is_none() && !blocks.is_empty() {
        let status = Command::new(std::env::current_exe()?).args(blocks).env(SPIN, "0").status()?;
        if !status.success() {
            return Err(format!("the process without spinning ended with {status}").into());
        }
    }
    Ok(())
}

/// The version in `Cargo.lock` at compile time.
fn version() -> &'static str {
    let lock = include_str!("../Cargo.lock");
    let packages = lock.split("name = \"cuda-async\"\nversion = \"").skip(1);
    // The lock file also lists this library's `cuda-async`, which has no line `source`.
    let mut versions = packages.filter_map(|package| package.split_once("\"\nsource = "));
    versions.next().map_or("unknown", |(version, _)| version)
}
