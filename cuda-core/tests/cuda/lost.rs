//! Devices that are lost to a fault. Each runs in a process of its own.

use std::time::{Duration, Instant};

use cuda_core::{Command, Error, FaultKind, Launch, LaunchConfig, Region, Relocation, Request};

use crate::{
    harness::{Gpu, gpu, in_a_child, open},
    kernels::{POKE, TRAP},
};

const ONE: LaunchConfig = LaunchConfig::new(1, 1);

#[test]
fn a_trap() {
    in_a_child("lost::child_trap");
}

#[test]
fn an_illegal_address() {
    in_a_child("lost::child_illegal_address");
}

#[test]
fn a_misaligned_address() {
    in_a_child("lost::child_misaligned_address");
}

/// Everything that everybody gets once the device is lost.
fn assert_lost(gpu: Gpu) {
    let stream = cuda_core::StreamId(1);
    let start = Instant::now();
    // Whoever asks how a stream is, is told the fault itself.
    for told in [gpu.run(stream, Command::Notify { token: 9 }), gpu.sync(stream)] {
        assert!(matches!(told, Err(Error::Fault(_))), "{told:?}");
    }
    for wrong in [
        gpu.run(stream, Command::Record { event: gpu.event() }),
        gpu.backend.request(Request::Memory).map(drop),
        gpu.backend.host_block(16).map(drop),
        open().map(drop),
    ] {
        assert!(matches!(wrong, Err(Error::DeviceLost { .. })), "{wrong:?}");
        assert!(wrong.unwrap_err().is_sticky());
    }
    println!("six answers took {:?}", start.elapsed());
    println!("{}", gpu.sync(stream).unwrap_err());
    let reset = gpu.backend.request(Request::Reset);
    assert!(matches!(reset, Err(Error::Unsupported { .. })), "{reset:?}");
    gpu.no_notice_within(Duration::from_millis(300));
}

#[test]
#[ignore = "loses the device: run by `a_trap`"]
fn child_trap() {
    let Some(gpu) = gpu() else { return };
    let (stream, other, block) = (gpu.stream(), gpu.stream(), gpu.backend.host_block(64).unwrap());
    let trap = gpu.kernel(TRAP);
    gpu.notify(stream, 0);
    assert_eq!(gpu.notice().status, Ok(()));
    let start = Instant::now();
    gpu.launch(stream, trap, ONE, &[], &[]).unwrap();
    for (stream, token) in [(stream, 1), (other, 2), (stream, 3)] {
        gpu.notify(stream, token);
    }
    let mut tokens: Vec<_> = (0..3)
        .map(|_| {
            let notice = gpu.notice();
            println!("{:?}: {notice:?}", start.elapsed());
            // The other stream may have got there before the fault was known.
            match (&notice.status, notice.token) {
                (Err(Error::Fault(fault)), _) => {
                    assert!(matches!(fault.kind, FaultKind::Trap | FaultKind::Other), "{fault:?}")
                }
                (Ok(()), 2) => {}
                _ => panic!("{notice:?}"),
            }
            notice.token
        })
        .collect();
    tokens.sort_unstable();
    assert_eq!(tokens, [1, 2, 3]);
    drop(block); // calls nothing, so nothing fails
    assert_lost(gpu);
}

/// Stores one byte into an allocation, or to address 16, and lets `Synchronize` meet the fault.
fn store(misaligned: bool, kind: FaultKind) {
    let Some(gpu) = gpu() else { return };
    let stream = gpu.stream();
    let region = Region { alloc: gpu.alloc(stream, 64), offset: 1 };
    let launch = Launch {
        function: gpu.kernel(POKE),
        config: ONE,
        params: 16_u64.to_ne_bytes().to_vec().into(),
        relocations: misaligned.then_some(Relocation { at: 0, region }).into_iter().collect(),
    };
    gpu.run(stream, Command::Launch(launch)).unwrap();
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
#[ignore = "loses the device: run by `an_illegal_address`"]
fn child_illegal_address() {
    store(false, FaultKind::IllegalAddress);
}

#[test]
#[ignore = "loses the device: run by `a_misaligned_address`"]
fn child_misaligned_address() {
    store(true, FaultKind::Misaligned);
}
