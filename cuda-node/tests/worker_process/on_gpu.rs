//! Workers with an endless kernel on a GPU, and the memory that they leave. Ignored where there is no GPU.

use std::{
    io::Read as _,
    sync::Arc,
    time::{Duration, Instant},
};

use cuda_driver::CudaProvider;

use cuda_core::{Access, Arguments, Device, DeviceBuffer, LaunchConfig};
use cuda_node::{
    gpu::{GpuInfo, GpuMonitor as _, MemoryCheck, MemoryReturn, NvmlMonitor, ProcessMemory},
    process::WorkerEnds,
};
use libtest_mimic::Trial;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::{
    cases::{block_on, kill_supervisor},
    roles::{launcher, started},
};

/// The memory that a worker allocates, in bytes.
const MEMORY: usize = 4 << 30;

const ENDLESS: &str = "
.version 7.0
.target sm_70
.address_size 64
.visible .entry endless(.param .u64 flag)
{
    .reg .b64 %address;
    .reg .b32 %value;
    .reg .pred %zero;
    ld.param.u64 %address, [flag];
again:
    ld.volatile.global.u32 %value, [%address];
    setp.eq.u32 %zero, %value, 0;
    @%zero bra again;
    ret;
}";

pub fn all() -> Vec<Trial> {
    let no_gpu = NvmlMonitor::new().is_err();
    vec![
        Trial::test("killed_worker_returns_its_gpu_memory", || {
            block_on(killed_worker_returns_its_gpu_memory());
            Ok(())
        })
        .with_ignored_flag(no_gpu),
        Trial::test("killed_supervisor_ends_an_endless_kernel", || {
            block_on(killed_supervisor_ends_an_endless_kernel());
            Ok(())
        })
        .with_ignored_flag(no_gpu),
    ]
}

/// The role of a worker with an endless kernel. Sends a byte when the kernel is submitted. Never returns.
pub fn endless_kernel(mut ends: WorkerEnds) {
    let device = Device::open(&CudaProvider::new(), 0).unwrap();
    let stream = device.new_stream().unwrap();
    let flag = DeviceBuffer::<u32>::zeroed(&stream, MEMORY / 4).unwrap();
    let module = device.load_ptx_blocking(ENDLESS).unwrap();
    let kernel = module.function("endless").unwrap();
    let mut arguments = Arguments::new();
    arguments.buffer(&flag, Access::Read);
    // SAFETY: the kernel reads the first element of the buffer, which is as long as the stream uses it.
    unsafe { kernel.launch(&stream, LaunchConfig::new(1, 1), &arguments) }.unwrap();
    std::io::Write::write_all(&mut ends.commands, b"k").unwrap();
    // The normal end of this process would wait for the kernel.
    let _ = ends.commands.read(&mut [0]);
}

fn first_gpu(monitor: &NvmlMonitor) -> GpuInfo {
    let devices = monitor.devices().unwrap();
    println!("{devices:#?}");
    devices.into_iter().find(GpuInfo::runs_kernels).expect("a GPU runs kernels")
}

async fn killed_worker_returns_its_gpu_memory() {
    let monitor = Arc::new(NvmlMonitor::new().unwrap());
    let gpu = first_gpu(&monitor).uuid;
    let mut check = MemoryCheck::before_launch(monitor.clone(), gpu.clone()).await.unwrap();
    let before = monitor.used(&gpu).unwrap();
    let launcher = launcher("kernel").environment("CUDA_VISIBLE_DEVICES", gpu.as_str());
    let (mut worker, mut ends) = launcher.launch().unwrap();
    started(&mut ends).await;
    assert_eq!(ends.commands.read_u8().await.unwrap(), b'k');

    let observed = check.observe(worker.pid()).await.unwrap();
    let during = monitor.used(&gpu).unwrap();
    println!("before {before}, during {during}, of the process {observed:?}");
    assert!(during >= before + MEMORY as u64);
    if let ProcessMemory::Used(bytes) = observed {
        assert!(bytes >= MEMORY as u64);
    }

    let killed = Instant::now();
    worker.kill();
    worker.reaped().await;
    let reaped = killed.elapsed();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    let outcome = check.memory_returned(worker.pid(), deadline).await.unwrap();
    println!(
        "reaped after {reaped:?}, memory back after {:?}: {outcome:?}; used {}",
        killed.elapsed(),
        monitor.used(&gpu).unwrap(),
    );
    assert_eq!(outcome, MemoryReturn::Returned);
    assert!(ends.bulk.write_all(b"x").await.is_err());
}

async fn killed_supervisor_ends_an_endless_kernel() {
    let monitor = Arc::new(NvmlMonitor::new().unwrap());
    let gpu = first_gpu(&monitor).uuid;
    let check = MemoryCheck::before_launch(monitor, gpu).await.unwrap();
    let workers = kill_supervisor("kernel-supervisor");
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    let outcome = check.memory_returned(workers[0], deadline).await.unwrap();
    assert_eq!(outcome, MemoryReturn::Returned);
}
