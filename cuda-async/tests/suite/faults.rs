//! Kernels that go wrong: on the CPU device, with a device of its own for each.

use cuda_async::{Device, FaultKind, LaunchConfig, SingleStream, join_all, launch, prelude::*};
use cuda_cpu::CpuProvider;

const FAULTS: &str = include_str!("../../../kernels/faults.ptx");

fn device() -> Device {
    Device::open(&CpuProvider::default(), 0).unwrap()
}

fn fault_of(error: Error) -> cuda_async::Fault {
    match error {
        Error::Fault(fault) => *fault,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_write_past_the_end_names_the_thread() {
    let device = device();
    let kernel = device.load_ptx(FAULTS).unwrap().function("off_by_one").unwrap();
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

#[test]
fn every_waiter_is_told_and_the_device_can_be_reset() {
    let device = device();
    let trap = device.load_ptx(FAULTS).unwrap().function("trap_at").unwrap();
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
        // In flight when it happened, or refused by then.
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

/// Also if it was met while the operation still submitted, on its own stream or on a branch's.
#[test]
fn the_operation_that_faults_is_told_the_fault() {
    let device = device();
    let trap = device.load_ptx(FAULTS).unwrap().function("trap_at").unwrap();
    let stream = device.new_stream().unwrap();
    let trapping = || {
        let trap = trap.clone();
        zeros::<u32>(64).then(move |x| {
            // SAFETY: writes x, of 64 elements, or traps.
            unsafe { launch(&trap, LaunchConfig::new(1, 64), (x, 5u32, 64u32)) }
        })
    };
    // Between the launch and what comes next there is time enough for the fault.
    let dawdle = || std::thread::sleep(std::time::Duration::from_millis(5));
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

#[test]
fn asserts_and_misaligned_accesses_have_names() {
    let device = device();
    let module = device.load_ptx(FAULTS).unwrap();
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

/// What a fault kept from running stays an error after a reset, though the stream goes on.
#[test]
fn what_a_reset_loses_is_never_there() {
    let device = device();
    let trap = device.load_ptx(FAULTS).unwrap().function("trap_at").unwrap();
    let stream = device.new_stream().unwrap();
    let source = h2d(vec![7u32; 1000]).sync_on(&stream).unwrap();
    // SAFETY: writes its buffer, of 64 elements, or traps; the output is dropped.
    let launched = unsafe {
        zeros::<u32>(64)
            .then(|x| launch(&trap, LaunchConfig::new(1, 64), (x, 5u32, 64u32)))
            .async_on(&stream)
    };
    drop(launched);
    let landing =
        device.landing_place(1000).and_then(|place| source.download(&stream, 0..1000, place));
    assert!(stream.synchronize().unwrap_err().is_sticky());
    device.reset().unwrap();
    // Refused at once if the trap came first.
    if let Ok(landing) = landing {
        assert!(landing.wait().unwrap_err().is_sticky());
    }
    assert!(to_host(&source).sync_on(&stream).unwrap() == vec![7u32; 1000]);
}

/// A reset beside healthy work harms none of it.
#[test]
fn a_reset_of_a_healthy_device_loses_nothing() {
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
