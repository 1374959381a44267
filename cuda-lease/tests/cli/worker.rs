//! A device of a node whose workers are processes, so that an endless kernel can be killed. A worker is this test
//! program, started again.

use std::sync::Arc;

use cuda_cpu::CpuProvider;
use cuda_node::{
    process::{SandboxReport, WorkerEnds, WorkerLauncher, die_with_supervisor},
    supervisor::DeviceOptions,
    worker,
};

/// Returns a CPU device with worker processes.
pub(crate) fn device() -> DeviceOptions {
    let arguments = ["--exact", "worker::serves_one_lease", "--ignored", "--nocapture"];
    let launcher = WorkerLauncher::new(std::env::current_exe().unwrap());
    DeviceOptions::process(arguments.into_iter().fold(launcher, WorkerLauncher::argument))
}

#[test]
#[ignore = "the node of another test starts it as a worker"]
fn serves_one_lease() {
    let ends = WorkerEnds::take().unwrap();
    die_with_supervisor().unwrap();
    let sandbox = SandboxReport::default();
    worker::run(Arc::new(CpuProvider::default()), 0, ends, Some(&sandbox), None).unwrap();
}
