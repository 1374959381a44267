//! What happens at the same time: a kernel and who waits for it, forks, a thousand tasks, an executor's other
//! tasks, copies and kernels. And what operations cost the heap.
//!
//! `cargo bench -p benches --bench concurrency [-- cpu|cuda [block..]]`; the blocks are `kernel`, `forks`, `tasks`,
//! `heartbeat`, `building`, `overlap`, all of them if none is named. On a GPU the first rows of each are the driver,
//! called through `cudarc`.

mod building;
mod forks;
mod heartbeat;
mod kernel;
mod ours;
mod overlap;
mod sizes;
mod tasks;

use benches::{heap::Counting, raw::Raw};

use crate::{ours::Ours, sizes::Sizes};

#[global_allocator]
static HEAP: Counting = Counting;

type Block = fn(Option<&Raw>, &Ours, &Sizes) -> Result<(), Box<dyn std::error::Error>>;

const BLOCKS: [(&str, Block); 6] = [
    ("kernel", kernel::measure),
    ("forks", forks::measure),
    ("tasks", tasks::measure),
    ("heartbeat", heartbeat::measure),
    ("building", building::measure),
    ("overlap", overlap::measure),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let asked: Vec<_> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let device = match asked.first() {
        Some(address) => cuda_async::open(address)?,
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
