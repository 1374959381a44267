//! Measures concurrency: waits for a kernel, forks, a thousand tasks, the delay of an executor's other tasks, overlap
//! of copies and kernels, the heap allocations of operations, and the processor time of waiting.
//!
//! `cargo bench -p benches --bench concurrency [-- cpu|cuda [block..]]` runs the blocks `kernel`, `forks`, `tasks`,
//! `heartbeat`, `building`, `overlap`, `vectors` and `waiting`, or all of them if none is named. On a GPU the first
//! rows of each block are driver calls through `cudarc`.

mod building;
mod forks;
mod heartbeat;
mod kernel;
mod ours;
mod overlap;
mod sizes;
mod tasks;
mod vectors;
mod waiting;

use benches::{heap::Counting, raw::Raw};

use crate::{ours::Ours, sizes::Sizes};

#[global_allocator]
static HEAP: Counting = Counting;

type Block = fn(Option<&Raw>, &Ours, &Sizes) -> Result<(), Box<dyn std::error::Error>>;

const BLOCKS: [(&str, Block); 8] = [
    ("kernel", kernel::measure),
    ("forks", forks::measure),
    ("tasks", tasks::measure),
    ("heartbeat", heartbeat::measure),
    ("building", building::measure),
    ("overlap", overlap::measure),
    ("vectors", vectors::measure),
    ("waiting", waiting::measure),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let asked: Vec<_> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let device = match asked.first() {
        Some(address) => cuda_async::open_blocking(address)?,
        None => cuda_async::default_device()?,
    };
    let info = device.info();
    let on_gpu = info.address.starts_with("cuda");
    println!("# {} ({}), driver {:?}", info.name, info.address, info.driver);
    let raw = if on_gpu { Some(Raw::new()?) } else { None };
    let sizes = if on_gpu { sizes::GPU } else { sizes::CPU };
    let ours = Ours::new(&device)?;
    for (name, measure) in BLOCKS {
        if asked.len() < 2 || asked.iter().skip(1).any(|wanted| wanted == name) {
            measure(raw.as_ref(), &ours, &sizes)?;
        }
    }
    Ok(())
}
