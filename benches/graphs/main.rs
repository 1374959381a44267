//! Measures graphs: replays of chains, the graph cache, many pipelines at once, long kernels, branches, and stalls of
//! other threads.
//!
//! `cargo bench -p benches --bench graphs [-- cpu|cuda [block..]]` runs the blocks `chains`, `tasks`, `kernels`,
//! `branches` and `stalls`, or all of them if none is named. On a GPU the first rows of each block are driver calls
//! through `cudarc`, on the same stream.

mod branches;
mod chains;
mod kernels;
mod ours;
mod stalls;
mod tasks;

use benches::raw::Raw;

use crate::ours::Ours;

type Block = fn(Option<&Raw>, &Ours) -> Result<(), Box<dyn std::error::Error>>;

const BLOCKS: [(&str, Block); 5] = [
    ("chains", chains::measure),
    ("tasks", tasks::measure),
    ("kernels", kernels::measure),
    ("branches", branches::measure),
    ("stalls", stalls::measure),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let asked: Vec<_> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let device = match asked.first() {
        Some(address) => cuda_async::open_blocking(address)?,
        None => cuda_async::default_device()?,
    };
    let info = device.info();
    println!("# {} ({}), driver {:?}", info.name, info.address, info.driver);
    let raw = if info.address.starts_with("cuda") { Some(Raw::new()?) } else { None };
    let ours = Ours::new(&device)?;
    for (name, measure) in BLOCKS {
        if asked.len() < 2 || asked.iter().skip(1).any(|wanted| wanted == name) {
            measure(raw.as_ref(), &ours)?;
        }
    }
    println!("\n{:?}", device.graph_cache());
    Ok(())
}
