//! Pipelines over two devices: two CPU devices, a CPU device and a GPU, two GPUs.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use cuda_async::{
    Device, DeviceBuffer, Error,
    cuda_core::{PeerCopy, protocol::Capabilities},
    memory::fill,
    prelude::*,
    script, to_device, uninitialized, value, zip,
};
use cuda_cpu::CpuProvider;
use futures::executor::block_on;

use crate::{
    devices::cuda, kernels::Kernels, link::LinkProvider, polling::dropped_at_every_poll,
    wrapper::WrapperProvider,
};

const LEN: usize = 3000;

fn own_cpu() -> Device {
    Device::open(&CpuProvider::default(), 0).unwrap()
}

/// Runs a test on every ordered pair of available devices.
macro_rules! on_pairs {
    ($($name:ident)*) => {
        mod cpu_and_cpu {
            $(#[test] fn $name() {
                super::$name(&super::own_cpu(), &super::own_cpu());
            })*
        }
        mod cpu_and_cuda {
            $(#[test] fn $name() {
                if let Some(cuda) = super::cuda() {
                    super::$name(&super::own_cpu(), &cuda);
                    super::$name(&cuda, &super::own_cpu());
                }
            })*
        }
        mod cuda_and_cuda {
            $(#[test] fn $name() {
                let Some(first) = super::cuda() else { return };
                match crate::modules::open_beside(&first, "cuda:1") {
                    Ok(second) => super::$name(&first, &second),
                    Err(error) => println!("not run here: {error}"),
                }
            })*
        }
    };
}

on_pairs! {
    round_trip_over_two_devices
    borrowed_shared_and_empty_buffers
    results_of_two_devices_are_combined
    concurrent_copies_between_devices
    dropped_at_any_poll
    copy_to_peer_checks_its_requirements
    destination_was_in_use_before
}

fn numbers(len: usize) -> Vec<f32> {
    (0..len).map(|i| i as f32).collect()
}

fn round_trip_over_two_devices(first: &Device, second: &Device) {
    let kernels = [Kernels::load(first), Kernels::load(second)];
    let op = || {
        let ([here, there], (first, second)) = (kernels.clone(), (first.clone(), second.clone()));
        let (home, away) = (first.clone(), second.clone());
        h2d(numbers(LEN))
            .then(move |x| here.scale(x, 2.0))
            .on(&first)
            .then(move |x| to_device(x, &away))
            .then(move |x| there.add_scalar(x, 1.0).on(&second))
            .then(move |x| to_device(x, &home))
            .then(to_host)
    };
    let expected: Vec<_> = numbers(LEN).iter().map(|x| 2.0 * x + 1.0).collect();
    // Started on each device, blocking and awaited.
    assert_eq!(op().on(first).sync().unwrap(), expected);
    for device in [first, second] {
        let stream = device.new_stream().unwrap();
        let away = op().map(|host| host.len()).sync_on(&stream);
        // `to_host` runs on the device of the operation, which is the only one that may read the buffer.
        assert_eq!(away.is_ok(), device == first, "{away:?}");
    }
    assert_eq!(block_on(op().on(first).into_future()).unwrap(), expected);
}

fn borrowed_shared_and_empty_buffers(first: &Device, second: &Device) {
    let (here, there) = (first.new_stream().unwrap(), second.new_stream().unwrap());
    let x = Arc::new(h2d(numbers(LEN)).sync_on(&here).unwrap());
    let copies =
        zip!(to_device(&*x, second), to_device(x.clone(), second), to_device(x.clone(), first));
    let (a, b, c) = copies.sync_on(&there).unwrap();
    assert_eq!(to_host(a).sync_on(&there).unwrap(), numbers(LEN));
    assert_eq!(to_host(b).sync_on(&there).unwrap(), numbers(LEN));
    assert_eq!(to_host(c).sync_on(&here).unwrap(), numbers(LEN));
    let nothing = h2d(Vec::<f32>::new()).sync_on(&here).unwrap();
    let nothing = to_device(nothing, second).sync_on(&there).unwrap();
    assert!(nothing.is_empty() && nothing.device() == second);
}

/// Runs half of the work on each device concurrently, and sums on the first one.
fn results_of_two_devices_are_combined(first: &Device, second: &Device) {
    let (a, b) = (Kernels::load(first), Kernels::load(second));
    let half =
        |kernels: Kernels, factor: f32| h2d(numbers(LEN)).then(move |x| kernels.scale(x, factor));
    let home = first.clone();
    let sum = zip!(half(a.clone(), 2.0).on(first), half(b, 3.0).on(second))
        .then(move |(x, y)| to_device(y, &home).map(|y| (x, y)))
        .then(move |(x, y)| a.add(x, y))
        .then(to_host)
        .on(first);
    assert_eq!(sum.sync().unwrap(), numbers(LEN).iter().map(|x| 5.0 * x).collect::<Vec<_>>());
}

fn concurrent_copies_between_devices(first: &Device, second: &Device) {
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for turn in 0..20 {
                    let (to, back) = (second.clone(), first.clone());
                    let values = vec![thread * 1000 + turn; 500];
                    let op = h2d(values.clone())
                        .on(first)
                        .then(move |x| to_device(x, &to))
                        .then(move |x| to_device(x, &back))
                        .then(to_host)
                        .on(first);
                    assert_eq!(block_on(op.into_future()).unwrap(), values);
                }
            });
        }
    });
}

fn dropped_at_any_poll(first: &Device, second: &Device) {
    let used = |device: &Device| {
        device.synchronize().unwrap();
        device.memory().unwrap().used
    };
    let x = h2d(numbers(LEN)).sync_on(&first.new_stream().unwrap()).unwrap();
    let before = used(second);
    dropped_at_every_poll(|| to_device(&x, second).into_future());
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    // Other tests use the GPU too, so the use may also shrink.
    while used(second) > before && std::time::Instant::now() < until {
        first.synchronize().unwrap();
        std::thread::yield_now();
    }
}

fn copy_to_peer_checks_its_requirements(first: &Device, second: &Device) {
    let (here, there) = (first.new_stream().unwrap(), second.new_stream().unwrap());
    let x = h2d(numbers(LEN)).sync_on(&here).unwrap();
    let wrong = |copy: Result<PeerCopy<f32>, Error>| copy.map(drop).unwrap_err();
    let short: DeviceBuffer<f32> = uninitialized(LEN - 1).sync_on(&there).unwrap();
    assert!(matches!(wrong(x.as_slice().copy_to_peer(&here, short)), Error::OutOfRange { .. }));
    let place = || value(()).then(|()| uninitialized::<f32>(LEN)).sync_on(&there).unwrap();
    if first.reach(second).wait().unwrap() {
        let mut copy = x.as_slice().copy_to_peer(&here, place()).unwrap();
        here.synchronize().unwrap();
        let arrived = copy.try_take().unwrap().unwrap();
        assert_eq!(to_host(arrived).sync_on(&there).unwrap(), numbers(LEN));
        assert!(copy.try_take().unwrap().is_err());
        // Dropped in flight: the memory is retained until the copy is complete.
        drop(x.as_slice().copy_to_peer(&here, place()).unwrap());
    } else {
        let unsupported = wrong(x.as_slice().copy_to_peer(&here, place()));
        assert!(matches!(unsupported, Error::Unsupported { .. }), "{unsupported:?}");
    }
    let elsewhere = x.as_slice().copy_to_peer(&there, place()).map(drop);
    assert!(elsewhere.is_err(), "the stream is not the source's");
}

/// A copy whose destination is the memory of a buffer that was dropped with work left to run.
fn copy_into_dropped_memory(first: &Device, second: &Device) -> Result<Vec<f32>, Error> {
    let (home, there) = (first.clone(), second.clone());
    home.reach(&there).wait()?; // so that no later step waits for the answer
    let copied = script(async move |cx| {
        let x = cx.run(h2d(numbers(LEN)).on(&home)).await?;
        let y = cx.run(zeros::<f32>(LEN)).await?;
        drop(cx.run(fill(y, 1.0)).await?);
        cx.run(to_device(&x, &there).then(to_host)).await
    });
    copied.on(second).sync()
}

fn destination_was_in_use_before(first: &Device, second: &Device) {
    for _ in 0..20 {
        assert_eq!(copy_into_dropped_memory(first, second).unwrap(), numbers(LEN));
    }
}

/// The destination stays in use for as long as a link takes, so the copy has to wait for it. This device refuses the
/// copy then.
#[test]
fn copy_waits_for_its_destination() {
    let mut capabilities = Capabilities::local(1 << 30);
    capabilities.reuses_memory = true;
    let open = || {
        let provider = WrapperProvider::new(LinkProvider::new(Duration::from_millis(2)));
        provider.watched.capabilities.set(capabilities.clone()).unwrap();
        provider.watched.reaches_all.store(true, Ordering::SeqCst);
        provider.open_device()
    };
    let refused = copy_into_dropped_memory(&open(), &open()).unwrap_err();
    assert!(refused.to_string().contains("a direct copy to another device"), "{refused}");
}
