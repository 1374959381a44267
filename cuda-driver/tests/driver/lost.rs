//! Devices that are lost to a fault. Each runs in a process of its own.

use std::time::{Duration, Instant};

use cuda_core::{
    FaultKind, LaunchConfig,
    protocol::{
        Access, AllocId, Control, Error, Launch, Notice, Region, Relocation, Request, StreamId,
        Work,
    },
};

use crate::{
    harness::{Gpu, gpu, in_a_child, open},
    kernels::{POKE, TRAP},
};

const ONE: LaunchConfig = LaunchConfig::new(1, 1);

#[test]
fn trap_loses_the_device() {
    in_a_child("lost::child_trap");
}

#[test]
fn illegal_address_loses_the_device() {
    in_a_child("lost::child_illegal_address");
}

#[test]
fn misaligned_address_loses_the_device() {
    in_a_child("lost::child_misaligned_address");
}

/// The answers of a lost device.
fn assert_lost(gpu: Gpu) {
    let stream = StreamId(1);
    let begin = Instant::now();
    // Questions about work in flight return the fault itself.
    let questions = [gpu.want(gpu.last(stream)), gpu.sync(stream), gpu.peek(stream).map(drop)];
    for result in questions {
        assert!(matches!(result, Err(Error::Fault(_))), "{result:?}");
    }
    for result in [
        gpu.run(stream, Work::Join).map(drop),
        gpu.try_alloc(stream, AllocId(u64::MAX), 1).map(drop),
        gpu.control(Control::CreateStream { id: StreamId(u64::MAX), priority: 0 }),
        gpu.request(Request::Memory).map(drop),
        gpu.backend.host_block(16).map(drop),
        open(0).map(drop),
    ] {
        assert!(matches!(result, Err(Error::DeviceLost { .. })), "{result:?}");
        assert!(result.unwrap_err().is_sticky());
    }
    println!("nine answers took {:?}", begin.elapsed());
    println!("{}", gpu.sync(stream).unwrap_err());
    let reset = gpu.request(Request::Reset);
    assert!(matches!(reset, Err(Error::Unsupported { .. })), "{reset:?}");
    gpu.no_notice_within(Duration::from_millis(300));
    // Leaks the block, since the device may still use it. Nothing hangs or fails.
    let last = gpu.last(stream);
    gpu.close(vec![(last, Box::new(vec![0_u8; 64]))]);
}

#[test]
#[ignore = "loses the device: run by `trap_loses_the_device`"]
fn child_trap() {
    let Some(gpu) = gpu() else { return };
    let (stream, other, block) = (gpu.stream(), gpu.stream(), gpu.backend.host_block(64).unwrap());
    let trap = gpu.kernel(TRAP);
    let before = gpu.run(stream, Work::Join).unwrap();
    gpu.want(before).unwrap();
    gpu.progress_to(before);
    let begin = Instant::now();
    let trapped = gpu.launch(stream, trap, ONE, &[], &[]).unwrap();
    let beside = gpu.run(other, Work::Join).unwrap();
    for ticket in [trapped, beside] {
        gpu.want(ticket).unwrap();
    }
    let fault = loop {
        let notice = gpu.notice();
        println!("{:?}: {notice:?}", begin.elapsed());
        match notice {
            Notice::Lost { error: Error::Fault(fault) } => break fault,
            // The other stream may be complete before the fault is known.
            Notice::Progress { stream, .. } if stream == other => {}
            _ => panic!("{notice:?}"),
        }
    };
    assert!(matches!(fault.kind, FaultKind::Trap | FaultKind::Other), "{fault:?}");
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    drop(block); // calls no driver, so nothing fails
    assert_lost(gpu);
}

/// Stores one word at an odd address of an allocation, or at address 16. `block_until` meets the fault.
fn store(misaligned: bool, kind: FaultKind) {
    let Some(gpu) = gpu() else { return };
    let stream = gpu.stream();
    let region = Region { alloc: gpu.alloc(stream, 64), offset: 1 };
    let relocation = Relocation { at: 0, region, bytes: 4, access: Access::Write };
    let launch = Launch {
        function: gpu.kernel(POKE),
        config: ONE,
        params: 16_u64.to_ne_bytes().to_vec().into(),
        relocations: misaligned.then_some(relocation).into_iter().collect(),
        variables: Default::default(),
    };
    gpu.run(stream, Work::Launch(launch)).unwrap();
    match gpu.sync(stream) {
        Err(Error::Fault(fault)) => {
            println!("{fault}");
            assert_eq!(fault.kind, kind);
        }
        other => panic!("{other:?}"),
    }
    assert_lost(gpu);
}

#[test]
#[ignore = "loses the device: run by `illegal_address_loses_the_device`"]
fn child_illegal_address() {
    store(false, FaultKind::IllegalAddress);
}

#[test]
#[ignore = "loses the device: run by `misaligned_address_loses_the_device`"]
fn child_misaligned_address() {
    store(true, FaultKind::Misaligned);
}

/// A fault is found although the oldest stream that is watched cannot be queried.
#[test]
fn fault_is_reported_while_another_stream_is_captured() {
    in_a_child("lost::child_fault_behind_a_capture");
}

#[test]
#[ignore = "loses the device: run by `fault_is_reported_while_another_stream_is_captured`"]
fn child_fault_behind_a_capture() {
    use std::ffi::c_void;
    type Begin = unsafe extern "system" fn(*mut c_void, i32) -> i32;
    let Some(gpu) = gpu() else { return };
    let name = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };
    // SAFETY: the driver's library, which is loaded already.
    let library = unsafe { libloading::Library::new(name) }.unwrap();
    // SAFETY: the function has this type.
    let begin = unsafe { *library.get::<Begin>(b"cuStreamBeginCapture_v2\0").unwrap() };
    let (captured, other) = (gpu.stream(), gpu.stream());
    let trap = gpu.kernel(TRAP);
    let before = gpu.run(captured, Work::Join).unwrap();
    let (number, foreign) = (before.number + 1, gpu.backend.foreign().unwrap());
    let mut submit = |raw: cuda_core::RawStream| {
        // 2: `CU_STREAM_CAPTURE_MODE_RELAXED`.
        // SAFETY: a stream of the device, which is held.
        assert_eq!(unsafe { begin(raw.stream, 2) }, 0);
        gpu.want(before).unwrap();
        gpu.progress_to(before);
        let trapped = gpu.launch(other, trap, ONE, &[], &[]).unwrap();
        gpu.want(trapped).unwrap();
        let notice = gpu.notice();
        assert!(matches!(notice, Notice::Lost { error: Error::Fault(_) }), "{notice:?}");
        Ok(())
    };
    let ticket = cuda_core::protocol::Ticket { stream: captured, number };
    // SAFETY: the capture is never launched.
    _ = unsafe { foreign.submit(ticket, &[], &mut submit) };
}
