//! Kernels that fault on a real GPU while hundreds of operations wait, with every kind of completion. A fault destroys
//! the CUDA context of the process, so each case runs in a process of its own.

use std::{
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use cuda_async::{
    Device, DeviceBuffer, Error, Function, LaunchConfig, cuda_core::FaultKind, launch,
    policy::SingleStream, prelude::*, runtime::set_max_spin,
};
use cuda_driver::{Completion, CudaProvider};

use crate::{devices::cuda, kernels::Kernels, polling::iterations_for};

const WAITING: usize = 400;
const BLOCKED: usize = 8;
/// The time limit of the driver. On an H200 it reports a fault after about 150 ms, a trap after 3.1 s of queries, and a
/// failed assertion beside other work after 2.9 s at most.
const REPORTED: Duration = Duration::from_secs(10);
/// The time limit of every operation, after the report.
const TOLD: Duration = Duration::from_secs(1);

macro_rules! each {
    ($($name:ident: $fault:literal, $way:literal;)*) => {$(
        #[test]
        fn $name() {
            in_a_child($fault, $way);
        }
    )*};
}

each! {
    out_of_bounds_stream_write: "store_at", "write";
    out_of_bounds_host_function: "store_at", "function";
    out_of_bounds_spinning: "store_at", "spin";
    trap_stream_write: "trap_at", "write";
    trap_host_function: "trap_at", "function";
    trap_spinning: "trap_at", "spin";
    assert_stream_write: "assert_below", "write";
    assert_host_function: "assert_below", "function";
    assert_spinning: "assert_below", "spin";
    misaligned_stream_write: "misaligned_store", "write";
    misaligned_host_function: "misaligned_store", "function";
    misaligned_spinning: "misaligned_store", "spin";
    out_of_bounds_graph: "store_at", "graph";
    trap_graph: "trap_at", "graph";
}

fn in_a_child(fault: &str, way: &str) {
    if cuda().is_none() {
        return;
    }
    // Each process has its own context, which takes half a gibibyte.
    static ONE_AT_A_TIME: parking_lot::Mutex<()> = parking_lot::Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "faults_on_gpu::child", "--ignored", "--nocapture"])
        .env("SUITE_FAULT", fault)
        .env("SUITE_WAY", way)
        // All streams run concurrently. By default some of them share a queue.
        .env("CUDA_DEVICE_MAX_CONNECTIONS", "32")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("1 passed"), "{fault}, {way}");
}

#[test]
#[ignore = "loses the GPU for its process: run by the tests of this file"]
fn child() {
    let (Ok(fault), Ok(way)) = (std::env::var("SUITE_FAULT"), std::env::var("SUITE_WAY")) else {
        return;
    };
    let ended = std::sync::Arc::new(AtomicBool::new(false));
    end_a_process_that_hangs(ended.clone());
    let completion = match way.as_str() {
        "function" => Completion::HostFunction,
        _ => Completion::default(),
    };
    set_max_spin(if way == "spin" { Duration::from_secs(1) } else { Duration::ZERO });
    let device = Device::open(&CudaProvider::new().completion(completion), 0).unwrap();
    match way.as_str() {
        "spin" => alone(&device, &fault),
        "graph" => in_a_graph(&device, &fault),
        _ => with_hundreds(&device, &fault),
    }
    lost_device_stays_lost(&device);
    drop(device);
    let cpu = cuda_async::open_blocking("cpu").unwrap();
    let still = h2d(vec![7]).then(to_host).sync_on(&cpu.new_stream().unwrap());
    assert_eq!(still.unwrap(), [7], "the process goes on with other devices");
    ended.store(true, Ordering::Relaxed);
}

fn end_a_process_that_hangs(ended: std::sync::Arc<AtomicBool>) {
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(30));
        if !ended.load(Ordering::Relaxed) {
            println!("it hangs");
            std::process::exit(9);
        }
    });
}

/// The operation that faults.
fn faulting(
    device: &Device,
    fault: &str,
) -> impl DeviceOp<Output = DeviceBuffer<u32>> + use<> + 'static {
    let ptx = include_str!("../../../kernels/faults.ptx");
    let kernel: Function = device.load_ptx_blocking(ptx).unwrap().function(fault).unwrap();
    let fault = fault.to_owned();
    h2d(vec![100u32; 64]).then(move |x| {
        let one = LaunchConfig::new(1, 1);
        // SAFETY: none of it is: that the device stops it is what is tested, in a process of its own.
        unsafe {
            match fault.as_str() {
                // Far beyond the mapped memory of the pool.
                "store_at" => launch(&kernel, one, (x, 1i64 << 40, 1u32)).boxed(),
                "trap_at" => {
                    let all = LaunchConfig::new(1, 64);
                    launch(&kernel, all, (x, 5u32, 64u32)).boxed()
                }
                "assert_below" => {
                    let all = LaunchConfig::new(1, 64);
                    launch(&kernel, all, (x, 50u32, 64u32)).boxed()
                }
                _ => launch(&kernel, one, (x, 3u64, 1u32)).boxed(),
            }
        }
    })
}

fn assert_told(fault: &str, error: &Error) {
    let Error::Fault(told) = error else { panic!("{error:?}") };
    let expected = match fault {
        "store_at" => FaultKind::IllegalAddress,
        "trap_at" => FaultKind::Trap,
        "assert_below" => FaultKind::Assert,
        _ => FaultKind::Misaligned,
    };
    // A driver may report a trap as an unspecified failure of the launch.
    assert!(told.kind == expected || told.kind == FaultKind::Other, "{told:?}");
    println!("{fault}: {error}");
}

/// One future, which spins.
fn alone(device: &Device, fault: &str) {
    let policy = SingleStream::new(device).unwrap();
    let op = faulting(device, fault).then(to_host);
    let start = Instant::now();
    let error = futures::executor::block_on(op.schedule(&policy)).unwrap_err();
    assert_told(fault, &error);
    assert!(start.elapsed() < REPORTED, "{:?}", start.elapsed());
}

/// A node of a graph faults, beside launches of another graph.
fn in_a_graph(device: &Device, fault: &str) {
    let [stream, beside] = [(); 2].map(|()| device.new_stream().unwrap());
    let graph = faulting(device, fault).graph_on(&stream).unwrap();
    let other = h2d(vec![1u32; 64]).graph_on(&beside).unwrap();
    graph.upload().unwrap();
    other.upload().unwrap();
    other.launch().sync_on(&beside).unwrap();
    let start = Instant::now();
    let error = graph.launch().sync_on(&stream).map(drop).unwrap_err();
    assert_told(fault, &error);
    assert!(start.elapsed() < REPORTED, "{:?}", start.elapsed());
    assert!(other.launch().sync_on(&beside).is_err());
    drop((graph, other));
}

/// Futures in tokio and threads that block, on many streams, behind work that is still running.
fn with_hundreds(device: &Device, fault: &str) {
    let (kernels, busy) =
        (Kernels::load(device), iterations_for(device, Duration::from_millis(100)));
    // First: a driver may load a module only once all kernels have ended.
    let op = faulting(device, fault);
    let streams: Vec<_> = (0..8).map(|_| device.new_stream().unwrap()).collect();
    let work = |kernels: &Kernels| {
        let kernels = kernels.clone();
        zeros::<u32>(32)
            .then(move |out| kernels.spin(out, busy))
            .then(to_host)
            .map(|host| host.len())
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().unwrap();
    let shared = work(&kernels).shared();
    let tasks: Vec<_> = (0..WAITING)
        .map(|i| {
            let policy = SingleStream::from(streams[i % streams.len()].clone());
            let shared = shared.clone();
            let work = work(&kernels);
            runtime.spawn(async move {
                match i % 3 {
                    0 => shared.schedule(&policy).await.map(|len| *len),
                    _ => work.schedule(&policy).await,
                }
            })
        })
        .collect();
    let blocked: Vec<_> = (0..BLOCKED)
        .map(|i| {
            let (stream, work) = (streams[i % streams.len()].clone(), work(&kernels));
            std::thread::spawn(move || work.sync_on(&stream))
        })
        .collect();
    let own = device.new_stream().unwrap();
    let start = Instant::now();
    let faulted = runtime.spawn(op.schedule(&SingleStream::from(own)));
    let error = runtime.block_on(faulted).unwrap().map(drop).unwrap_err();
    assert_told(fault, &error);
    let reported = start.elapsed();
    let outcomes: Vec<_> = tasks.into_iter().map(|task| runtime.block_on(task).unwrap()).collect();
    let outcomes: Vec<_> = outcomes
        .into_iter()
        .chain(blocked.into_iter().map(|thread| thread.join().unwrap()))
        .collect();
    let told = start.elapsed() - reported;
    let failed: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
    assert!(failed.iter().all(|error| error.is_sticky()), "{failed:?}");
    println!("{} of {} failed, {told:?} after the report", failed.len(), outcomes.len());
    println!("reported after {reported:?}");
    assert!(failed.len() > WAITING / 2, "they were to be waiting");
    assert!(reported < REPORTED && told < TOLD, "{reported:?}, {told:?}");
}

/// Later operations get the error at once, and no drop panics.
fn lost_device_stays_lost(device: &Device) {
    let lost = |error: Error| assert!(matches!(error, Error::DeviceLost { .. }), "{error:?}");
    let start = Instant::now();
    let use_it = |device: Result<Device, Error>| match device.and_then(|device| device.new_stream())
    {
        Err(error) => lost(error),
        Ok(stream) => lost(zeros::<u8>(4).sync_on(&stream).map(drop).unwrap_err()),
    };
    use_it(Ok(device.clone()));
    // It was opened before, or not.
    use_it(cuda_async::open_blocking("cuda"));
    lost(
        device.load_ptx_blocking(include_str!("../../../kernels/basic.ptx")).map(drop).unwrap_err(),
    );
    assert!(matches!(device.reset(), Err(Error::Unsupported { .. })));
    assert!(start.elapsed() < Duration::from_millis(500), "{:?}", start.elapsed());
}
