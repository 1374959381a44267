//! The benchmark `concurrency` with NVIDIA's cuda-async in our place: the same blocks, sizes, kernels and raw driver
//! calls, measured by the same code.
//!
//! `peer_cuda_async [block..]`; the blocks are `kernel`, `forks`, `tasks`, `heartbeat`, `building`, all of them if none
//! is named. How long it spins is an environment variable that it reads once; so what is measured without spinning is
//! measured by a second process, which this one starts.

mod building;
mod forks;
mod heartbeat;
mod kernel;
mod peer;
mod tasks;

use std::{error::Error, process::Command};

use benches::{heap::Counting, raw::Raw};

use crate::peer::Peer;

#[global_allocator]
static HEAP: Counting = Counting;

/// The variable, in microseconds.
const SPIN: &str = "CUDA_ASYNC_SPIN_BUDGET_US";

type Block = fn(&Raw, &Peer) -> Result<(), Box<dyn Error>>;

const BLOCKS: [(&str, Block); 5] = [
    ("kernel", kernel::measure),
    ("forks", forks::measure),
    ("tasks", tasks::measure),
    ("heartbeat", heartbeat::measure),
    ("building", building::measure),
];

fn main() -> Result<(), Box<dyn Error>> {
    let asked: Vec<_> = std::env::args().skip(1).collect();
    let peer = Peer::new()?;
    let raw = Raw::new()?;
    let spins = std::env::var(SPIN).map_or("as it comes".to_owned(), |micros| micros + " us");
    println!("\n# cuda-async {}, {}, spinning: {spins}", version(), peer.device.name()?);
    for (name, measure) in BLOCKS {
        if asked.is_empty() || asked.iter().any(|wanted| wanted == name) {
            measure(&raw, &peer)?;
        }
    }
    drop((raw, peer));
    without_spinning(&asked)
}

/// Measures again, in a process that does not spin.
fn without_spinning(asked: &[String]) -> Result<(), Box<dyn Error>> {
    let wanted = |name: &&str| asked.is_empty() || asked.iter().any(|asked| asked == name);
    let blocks: Vec<_> = ["kernel", "tasks", "building"].into_iter().filter(wanted).collect();
    if std::env::var_os(SPIN).is_none() && !blocks.is_empty() {
        Command::new(std::env::current_exe()?).args(blocks).env(SPIN, "0").status()?;
    }
    Ok(())
}

/// The version that this was built with.
fn version() -> &'static str {
    let lock = include_str!("../Cargo.lock");
    let package = lock.split("name = \"cuda-async\"\nversion = \"").nth(1);
    package.and_then(|package| package.split('"').next()).unwrap_or("unknown")
}
