//! Kernels that fault, each on a CPU device of its own.

use cuda_async::{
    BoxedOp, Device, Error, LaunchConfig,
    cuda_core::FaultKind,
    cuda_cpu::{Checks, CpuOptions, Schedule},
    join_all, launch,
    policy::SingleStream,
    prelude::*,
};
use cuda_cpu::CpuProvider;

use crate::{devices::own_lease, polling::own_devices};

const FAULTS: &str = include_str!("../../../kernels/faults.ptx");

fn device() -> Device {
    Device::open(&CpuProvider::default(), 0).unwrap()
}

fn fault_of(error: Error) -> cuda_async::cuda_core::Fault {
    match error {
        Error::Fault(fault) => *fault,
        other => panic!("{other:?}"),
    }
}

#[test]
fn write_past_the_end_names_the_thread() {
    let device = device();
    let kernel = device.load_ptx_blocking(FAULTS).unwrap().function("off_by_one").unwrap();
    let stream = device.new_stream().unwrap();
    let op = zeros::<f32>(32).then(|x| {
        // SAFETY: on the CPU device, a write out of bounds is caught.
        unsafe { launch(&kernel, LaunchConfig::new(2, 32), (x, 32u32)) }
    });
    let fault = fault_of(op.sync_on(&stream).map(drop).unwrap_err());
    assert_eq!(fault.kind, FaultKind::IllegalAddress);
    assert_eq!(fault.kernel.as_deref(), Some("off_by_one"));
    let site = fault.site.unwrap();
    assert_eq!((site.block, site.thread), ([1, 0, 0], [0, 0, 0]));
    assert!(site.address.is_some() && site.ptx_line.is_some() && site.nearest.is_some());
}

/// An empty buffer has an address, and no byte there.
#[test]
fn byte_of_an_empty_buffer_is_a_fault() {
    const PTX: &str = ".version 7.0\n.target sm_70\n.address_size 64
.visible .entry write_byte(.param .u64 to) {
    .reg .b64 %d;
    ld.param.u64 %d, [to];
    st.global.u8 [%d], 1;
    ret;
}
.visible .entry read_byte(.param .u64 from) {
    .reg .b16 %h;
    .reg .b64 %d;
    ld.param.u64 %d, [from];
    ld.global.u8 %h, [%d];
    ret;
}";
    for kernel in ["write_byte", "read_byte"] {
        let [cpu, link] = own_devices();
        for device in [cpu, link, own_lease(CpuProvider::default())] {
            let kernel = device.load_ptx_blocking(PTX).unwrap().function(kernel).unwrap();
            let stream = device.new_stream().unwrap();
            let op = zeros::<u8>(0).then(|x| {
                // SAFETY: these devices check every access.
                unsafe { launch(&kernel, LaunchConfig::new(1, 1), (x,)) }
            });
            let fault = fault_of(op.sync_on(&stream).map(drop).unwrap_err());
            assert_eq!(fault.kind, FaultKind::IllegalAddress);
            let nearest = fault.site.unwrap().nearest.unwrap();
            assert!(nearest.contains("allocation of 0 bytes"), "{nearest}");
        }
    }
}

#[test]
fn every_waiter_gets_the_fault_and_the_device_can_be_reset() {
    let device = device();
    let trap = device.load_ptx_blocking(FAULTS).unwrap().function("trap_at").unwrap();
    let policy = SingleStream::new(&device).unwrap();
    let faulting = zeros::<u32>(64).then(|x| {
        // SAFETY: writes x, of 64 elements, or traps.
        unsafe { launch(&trap, LaunchConfig::new(1, 64), (x, 5u32, 64u32)) }
    });
    let faulting = faulting.schedule(&policy);
    let waiting: Vec<_> =
        (0..100).map(|_| zeros::<u8>(8).then(to_host).schedule(&policy)).collect();
    let fault = fault_of(futures::executor::block_on(faulting).map(drop).unwrap_err());
    assert_eq!(fault.kind, FaultKind::Trap);
    assert_eq!(fault.site.unwrap().thread, [5, 0, 0]);
    for future in waiting {
        // In flight at the fault, or refused after it.
        let error = futures::executor::block_on(future).unwrap_err();
        assert!(matches!(error, Error::Fault(_) | Error::DeviceLost { .. }), "{error:?}");
    }
    let stream = device.new_stream().unwrap();
    let later = zeros::<u8>(8).sync_on(&stream).unwrap_err();
    let Error::DeviceLost { address, cause } = &later else { panic!("{later:?}") };
    assert_eq!(address, "cpu");
    assert!(later.is_sticky() && cause.contains("in kernel `trap_at`"), "{cause}");
    assert_eq!(cause.matches("`Device::reset()`").count(), 1, "{cause}");
    device.reset().unwrap();
    assert_eq!(zeros::<u8>(8).then(to_host).sync_on(&stream).unwrap(), [0; 8]);
}

/// Also if the operation meets the fault while it submits, on its own stream or on a branch's stream.
#[test]
fn faulting_operation_gets_the_fault() {
    let device = device();
    let trap = device.load_ptx_blocking(FAULTS).unwrap().function("trap_at").unwrap();
    let stream = device.new_stream().unwrap();
    let trapping = || {
        let trap = trap.clone();
        zeros::<u32>(64).then(move |x| {
            // SAFETY: writes x, of 64 elements, or traps.
            unsafe { launch(&trap, LaunchConfig::new(1, 64), (x, 5u32, 64u32)) }
        })
    };
    // The fault happens between the launch and the next submission.
    let dawdle = || std::thread::sleep(std::time::Duration::from_millis(5));
    let late = |millis| {
        value(()).then(move |()| {
            std::thread::sleep(std::time::Duration::from_millis(millis));
            zeros::<u8>(8)
        })
    };
    let forks: [BoxedOp<'_, ()>; 6] = [
        zip!(trapping(), late(5)).map(drop).boxed(),
        zip!(trapping(), late(5).named("late")).map(drop).boxed(),
        zip!(late(0), trapping(), late(5)).map(drop).boxed(),
        zip!(late(0), trapping()).then(move |_| late(5)).map(drop).boxed(),
        zip!(zip!(trapping(), late(5)), late(0)).map(drop).boxed(),
        join_all([trapping().map(drop).boxed(), late(5).map(drop).boxed()]).map(drop).boxed(),
    ];
    for fork in forks {
        let error = fork.sync_on(&stream).unwrap_err();
        assert_eq!(fault_of(error.root().clone()).kind, FaultKind::Trap);
        device.reset().unwrap();
    }
    for forked in [false, true] {
        let chain = trapping().then(move |_| {
            dawdle();
            let branch = || zeros::<u8>(8).then(to_host);
            if forked {
                join_all([branch(), branch()]).boxed()
            } else {
                join_all([branch()]).boxed()
            }
        });
        assert_eq!(fault_of(chain.sync_on(&stream).unwrap_err()).kind, FaultKind::Trap);
        device.reset().unwrap();
    }
    let awaited = trapping().then(move |_| {
        dawdle();
        zeros::<u8>(8).then(to_host)
    });
    let policy = SingleStream::new(&device).unwrap();
    let ended = futures::executor::block_on(awaited.schedule(&policy));
    assert_eq!(fault_of(ended.unwrap_err()).kind, FaultKind::Trap);
}

/// Steps in a context of their own (`shared`, `settled`, `wait_for_memory`) count as the run's, also on the run's
/// stream: it ends when they are complete, with their fault.
#[test]
fn run_waits_for_steps_in_other_contexts() {
    let device = device();
    let (stream, policy) = (device.new_stream().unwrap(), SingleStream::new(&device).unwrap());
    let trap = device.load_ptx_blocking(FAULTS).unwrap().function("trap_at").unwrap();
    let spin = device.load_ptx_blocking(include_str!("../../../kernels/spin.ptx")).unwrap();
    let spin = spin.function("spin").unwrap();
    let trapping = || {
        let trap = trap.clone();
        let slow = zeros::<u32>(1).then(|x| {
            // SAFETY: writes x, of one element.
            unsafe { launch(&spin, LaunchConfig::new(1, 1), (x, 1u32, 100_000u32, 1u32)) }
        });
        slow.then(|_| zeros::<u32>(64)).then(move |x| {
            // SAFETY: writes x, of 64 elements, or traps.
            unsafe { launch(&trap, LaunchConfig::new(1, 64), (x, 5u32, 64u32)) }.map(drop)
        })
    };
    let minute = std::time::Duration::from_secs(60);
    let forms = || -> [BoxedOp<'_, ()>; 6] {
        [
            trapping().boxed().shared().map(drop).boxed(),
            zip!(trapping().boxed().shared(), value(())).map(drop).boxed(),
            zip!(value(()), trapping().boxed().shared()).map(drop).boxed(),
            trapping().boxed().shared().settled().map(drop).boxed(),
            zip!(trapping().wait_for_memory(minute), value(())).map(drop).boxed(),
            zip!(value(()).then(|()| trapping().boxed().shared()), value(())).map(drop).boxed(),
        ]
    };
    let check = |form: usize, ended: Result<(), Error>| {
        let error = ended.expect_err(&format!("form {form} ended before its work"));
        assert_eq!(fault_of(error).kind, FaultKind::Trap, "form {form}");
        device.reset().unwrap();
    };
    for (form, op) in forms().into_iter().enumerate() {
        check(form, op.sync_on(&stream));
    }
    for (form, op) in forms().into_iter().enumerate() {
        check(form, futures::executor::block_on(op.schedule(&policy)));
    }
}

#[test]
fn asserts_and_misaligned_accesses_are_named() {
    let device = device();
    let module = device.load_ptx_blocking(FAULTS).unwrap();
    let stream = device.new_stream().unwrap();
    let (below, misaligned) =
        (module.function("assert_below").unwrap(), module.function("misaligned_store").unwrap());
    let asserting = h2d(vec![1u32, 2, 30, 4]).then(|x| {
        // SAFETY: reads x, of 4 elements.
        unsafe { launch(&below, LaunchConfig::new(1, 4), (x, 10u32, 4u32)) }
    });
    let fault = fault_of(asserting.sync_on(&stream).map(drop).unwrap_err());
    assert_eq!((fault.kind, fault.site.unwrap().thread), (FaultKind::Assert, [2, 0, 0]));
    device.reset().unwrap();
    let storing = zeros::<u8>(64).then(|x| {
        // SAFETY: on the CPU device, a misaligned write is caught.
        unsafe { launch(&misaligned, LaunchConfig::new(1, 1), (x, 3u64, 1u32)) }
    });
    let fault = fault_of(storing.sync_on(&stream).map(drop).unwrap_err());
    assert_eq!(fault.kind, FaultKind::Misaligned);
}

/// Work that a fault prevented stays an error after a reset, and the stream works again.
#[test]
fn work_lost_to_a_reset_gives_no_output() {
    let attempt = || {
        let device = device();
        let trap = device.load_ptx_blocking(FAULTS).unwrap().function("trap_at").unwrap();
        let stream = device.new_stream().unwrap();
        let source = h2d(vec![7u32; 1000]).sync_on(&stream).unwrap();
        // SAFETY: writes its buffer, of 64 elements, or traps; the output is dropped.
        let launched = unsafe {
            zeros::<u32>(64)
                .then(|x| launch(&trap, LaunchConfig::new(1, 64), (x, 5u32, 64u32)))
                .async_on(&stream)
        };
        drop(launched);
        let download = device
            .pinned_uninitialized(1000)
            .and_then(|place| source.download(&stream, 0..1000, place));
        let accepted =
            download.inspect_err(|refused| assert!(refused.is_sticky())).is_ok_and(|download| {
                assert!(stream.synchronize().unwrap_err().is_sticky());
                device.reset().unwrap();
                assert!(download.wait().unwrap_err().is_sticky());
                true
            });
        device.reset().unwrap();
        assert!(to_host(&source).sync_on(&stream).unwrap() == vec![7u32; 1000]);
        accepted
    };
    // A download that comes after the trap is refused, and then the handle has no work that could be lost.
    assert!((0..1000).any(|_| attempt()), "the trap came before the download each time");
}

/// A reset does not harm work in flight on a healthy device.
#[test]
fn reset_of_a_healthy_device_loses_nothing() {
    let device = device();
    std::thread::scope(|threads| {
        let worker = threads.spawn(|| {
            let stream = device.new_stream().unwrap();
            for round in 0..300u32 {
                let host = h2d(vec![round; 5000]).then(to_host).sync_on(&stream).unwrap();
                assert!(host == vec![round; 5000]);
            }
        });
        while !worker.is_finished() {
            device.reset().unwrap();
        }
    });
}

/// The kinds of faults that only a device with checks and a budget finds. Each is reported on its stream, with its
/// source line, and the device works after a reset.
#[test]
fn checked_device_finds_more_faults_and_can_be_reset() {
    macro_rules! ptx {
        ($name:literal) => {
            include_str!(concat!("../../../kernels/bugs/", $name, ".ptx"))
        };
    }
    let planted = [
        (ptx!("unwritten"), "unwritten_shared", 64, 50u32, FaultKind::Uninitialized),
        (ptx!("unwritten"), "unwritten_local", 32, 5, FaultKind::Uninitialized),
        (ptx!("races"), "race_block", 64, 3, FaultKind::Race),
        (ptx!("races"), "race_warp", 64, 3, FaultKind::Race),
        (ptx!("waiting"), "divergent_barriers", 32, 16, FaultKind::BarrierDivergence),
        (ptx!("waiting"), "deadlock", 64, 1, FaultKind::Deadlock),
        (ptx!("waiting"), "endless", 32, 5, FaultKind::Budget),
        (ptx!("heap"), "double_free", 32, 5, FaultKind::IllegalAddress),
        (ptx!("bounds"), "shared_past_end", 64, 64, FaultKind::IllegalAddress),
    ];
    for schedule in [Schedule::Parallel, Schedule::Fixed, Schedule::Shuffled { seed: 5 }] {
        let options =
            CpuOptions::default().checks(Checks::all()).schedule(schedule).budget(100_000);
        let device = Device::open(&CpuProvider::new(options), 0).unwrap();
        let stream = device.new_stream().unwrap();
        for (ptx, kernel, threads, n, kind) in planted {
            let module = device.load_ptx_blocking(ptx).unwrap();
            let run = |name: &str| {
                let kernel = module.function(name).unwrap();
                let op = h2d((0..64).collect::<Vec<u32>>()).then(move |x| {
                    // SAFETY: writes x, of 64 elements; what else it does the CPU device catches.
                    unsafe { launch(&kernel, LaunchConfig::new(1, threads), (x, n)) }
                });
                op.sync_on(&stream).map(drop)
            };
            let fault = fault_of(run(kernel).expect_err(kernel));
            assert_eq!((fault.kind, fault.kernel.as_deref()), (kind, Some(kernel)), "{fault}");
            let source = fault.site.as_ref().unwrap().source.as_ref().unwrap();
            assert!(source.file.starts_with("kernels/bugs/"), "{fault}");
            assert!(fault.to_string().contains(&format!(", {source}")), "{fault}");
            assert!(zeros::<u8>(1).sync_on(&stream).unwrap_err().is_sticky());
            device.reset().unwrap();
            run(&format!("{kernel}_mended")).unwrap();
        }
    }
}

/// `vecadd(a, b, c, n)` writes `c`, which the launch passes by shared reference.
#[test]
fn write_through_an_argument_that_is_only_read_is_a_fault_that_names_it() {
    let launched = |checks| {
        let options = CpuOptions::default().checks(checks);
        let device = Device::open(&CpuProvider::new(options), 0).unwrap();
        let stream = device.new_stream().unwrap();
        let module = device.load_ptx_blocking(include_str!("../../../kernels/vecadd.ptx")).unwrap();
        let vecadd = module.function("vecadd").unwrap();
        let (a, c) = zip!(h2d(vec![1.0f32; 32]), zeros::<f32>(32)).sync_on(&stream).unwrap();
        let config = LaunchConfig::new(1, 32);
        // SAFETY: the CPU device makes the write a fault, or nothing else uses `c` meanwhile.
        let shared = unsafe { launch(&vecadd, config, (&a, &a, &c, 32u32)) };
        let shared = shared.sync_on(&stream).map(drop);
        if shared.is_err() {
            device.reset().unwrap();
        }
        // SAFETY: reads `a` and writes `c`, of 32 elements each.
        let owned = unsafe { launch(&vecadd, config, (&a, &a, c, 32u32)) };
        assert_eq!(owned.then(|(_, _, c)| to_host(c)).sync_on(&stream).unwrap(), [2.0; 32]);
        shared
    };
    let fault = fault_of(launched(Checks::all()).unwrap_err());
    assert_eq!(fault.kind, FaultKind::ReadOnlyArgument);
    assert!(fault.what.contains("parameter 2 (`vecadd_param_2`)"), "{fault}");
    assert!(fault.what.contains("as `&mut`"), "{fault}");
    launched(Checks::none()).unwrap();
}

/// Memory that the host has not written counts as uninitialized.
#[test]
fn read_of_unwritten_memory_is_a_fault() {
    let options = CpuOptions::default().checks(Checks::none().uninitialized());
    let device = Device::open(&CpuProvider::new(options), 0).unwrap();
    let stream = device.new_stream().unwrap();
    let module =
        device.load_ptx_blocking(include_str!("../../../kernels/bugs/control.ptx")).unwrap();
    let kernel = module.function("asserted_mended").unwrap();
    let run = |x: cuda_async::DeviceBuffer<u32>| {
        // SAFETY: reads and writes x, of 64 elements.
        let op = unsafe { launch(&kernel, LaunchConfig::new(1, 64), (x, 5u32)) };
        op.sync_on(&stream).map(drop)
    };
    let unwritten = cuda_async::uninitialized::<u32>(64).sync_on(&stream).unwrap();
    assert_eq!(fault_of(run(unwritten).unwrap_err()).kind, FaultKind::Uninitialized);
    device.reset().unwrap();
    run(zeros(64).sync_on(&stream).unwrap()).unwrap();
    run(h2d(vec![1; 64]).sync_on(&stream).unwrap()).unwrap();
}
