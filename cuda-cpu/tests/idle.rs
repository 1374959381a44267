//! A device that has nothing to do takes no processor time: in a process of its own, for it looks at what the process
//! uses.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests

use std::{sync::Arc, thread::sleep, time::Duration};

use cuda_core::{
    Command, FunctionId, Launch, LaunchConfig, ModuleId, ModuleImage, Notice, NoticeSink, Provider,
    Request, StreamId,
};
use cuda_cpu::{CpuOptions, CpuProvider};

const PTX: &str = "
.version 7.0
.target sm_70
.address_size 64
.visible .entry k() { ret; }
";
const STREAMS: u64 = 4;

struct Nobody;

impl NoticeSink for Nobody {
    fn notice(&self, _: Notice) {}
}

/// Processor time that all threads of this process have taken, in hundredths of a second.
fn used() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, after_name) = stat.rsplit_once(')').unwrap();
    let field = |n: usize| after_name.split_whitespace().nth(n).unwrap().parse::<u64>().unwrap();
    field(11) + field(12)
}

#[test]
fn nothing_to_do_takes_no_time() {
    let device = CpuProvider::new(CpuOptions::default()).open(0, Arc::new(Nobody)).unwrap();
    let image = ModuleImage::Ptx(PTX.into());
    device.request(Request::LoadModule { id: ModuleId(1), image }).unwrap();
    // Many blocks, so that every thread has had something to do.
    for stream in (1..=STREAMS).map(StreamId) {
        device.request(Request::CreateStream { id: stream, priority: 0 }).unwrap();
        let launch = Launch {
            function: FunctionId { module: ModuleId(1), entry: 0 },
            config: LaunchConfig::new(50_000, 32),
            params: vec![].into(),
            relocations: vec![].into(),
        };
        // SAFETY: the kernel does nothing.
        unsafe { device.enqueue(stream, Command::Launch(launch), &[]) }.unwrap();
    }
    for stream in (1..=STREAMS).map(StreamId) {
        device.request(Request::Synchronize { stream }).unwrap();
    }
    assert!(used() > 0, "the clock does not count");
    // Threads look around for a little before they sleep.
    sleep(Duration::from_millis(100));
    let before = used();
    sleep(Duration::from_secs(2));
    assert!(used() - before <= 1, "{} ms in 2 s", 10 * (used() - before));
}
