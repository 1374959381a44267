//! Policies, and operations that run on a given device.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use cuda_async::{
    Device, DeviceBuffer, Error, SchedulingPolicy, Stream,
    policy::{Devices, LeastLoaded, Priorities, SingleStream, StreamPoolRoundRobin},
    prelude::*,
    runtime::{device_policy, set_device_policy},
    value, with_context,
};
use cuda_core::Provider;
use futures::executor::block_on;

use crate::{
    kernels::{Kernels, spun},
    link::LinkProvider,
    on_every_device,
    polling::{dropped_at_every_poll, memory_is_freed, own_devices},
};

on_every_device! {
    least_loaded_spreads_and_prefers_the_last_stream
    priorities_use_separate_streams
    devices_policy_takes_turns_or_the_least_loaded
    policies_work_as_trait_objects
    on_same_device_continues_on_the_stream
    on_other_device_and_back
    on_other_device_is_refused_by_async_on
}

/// Submits work whose completion is not known yet.
fn load(stream: &Stream) {
    // SAFETY: the output is dropped.
    drop(unsafe { zeros::<u8>(1).async_on(stream) }.unwrap());
}

fn least_loaded_spreads_and_prefers_the_last_stream(device: &Device) {
    let policy = LeastLoaded::with_streams(device, 3).unwrap();
    let first = policy.place().unwrap();
    assert_eq!(policy.place().unwrap(), first);
    zeros::<u8>(1).sync_on(&first).unwrap();
    assert_eq!(policy.place().unwrap(), first);
    let mut used = vec![];
    for _ in 0..3 {
        let stream = policy.place().unwrap();
        load(&stream);
        used.push(stream);
    }
    assert!(used[0] != used[1] && used[1] != used[2] && used[0] != used[2]);
    assert!(policy.load() >= 3, "{}", policy.load());
    load(&used[0]);
    load(&used[1]);
    used[0].synchronize().unwrap();
    assert_eq!(policy.place().unwrap(), used[0]);
    assert_eq!(LeastLoaded::with_streams(device, 0).unwrap().load(), 0);
    assert_eq!(StreamPoolRoundRobin::with_streams(device, usize::MAX).unwrap().load(), 0);
}

fn priorities_use_separate_streams(device: &Device) {
    let kernels = Kernels::load(device);
    let priorities = Priorities::new(device).unwrap();
    let (high, low) = (priorities.high().place().unwrap(), priorities.place().unwrap());
    assert!(high.priority() < low.priority() && low == priorities.low().place().unwrap());
    // Forks too: an urgent operation must not wait for an ordinary one.
    let seen =
        |cx: cuda_async::ExecutionContext| cx.enqueue(|stream| Ok(stream.priority())).map(value);
    let fork = zip!(with_context(seen), with_context(seen), with_context(seen));
    let (a, b, c) = block_on(fork.schedule(priorities.high())).unwrap();
    assert!([a, b, c] == [high.priority(); 3]);
    let op = zeros::<u32>(50).then(|out| kernels.spin(out, 30)).then(to_host);
    assert_eq!(block_on(op.schedule(priorities.high())).unwrap(), spun(50, 30));
}

fn devices_policy_takes_turns_or_the_least_loaded(device: &Device) {
    let other = Device::open(&cuda_cpu::CpuProvider::default(), 0).unwrap();
    let place = |policy: &Devices| policy.place().unwrap().device().clone();
    let turns = Devices::in_turn([device.clone(), other.clone()]).unwrap();
    let seen: Vec<_> = (0..4).map(|_| place(&turns)).collect();
    assert!(seen == [device, &other, device, &other].map(Clone::clone));
    let idlest = Devices::least_loaded([device.clone(), other.clone()]).unwrap();
    let first = idlest.place().unwrap();
    assert_eq!(place(&idlest), *first.device());
    load(&first);
    assert_ne!(place(&idlest), *first.device());
    let singles: Vec<Arc<dyn SchedulingPolicy>> =
        [device, &other].map(|device| Arc::new(SingleStream::new(device).unwrap()) as _).into();
    assert_eq!(Devices::least_loaded_over(singles).unwrap().load(), 0);
    assert!(matches!(Devices::in_turn([]), Err(Error::NoDevice { .. })));
    // Operations run on each of them.
    for _ in 0..4 {
        assert_eq!(block_on(h2d([5u8; 9]).then(to_host).schedule(&turns)).unwrap(), [5; 9]);
    }
}

fn policies_work_as_trait_objects(device: &Device) {
    let policies: [Arc<dyn SchedulingPolicy>; 4] = [
        Arc::new(StreamPoolRoundRobin::with_priority(device, 2, 0).unwrap()),
        Arc::new(LeastLoaded::new(device).unwrap()),
        Arc::new(Priorities::new(device).unwrap()),
        Arc::new(Devices::in_turn([device.clone()]).unwrap()),
    ];
    for policy in policies {
        let tasks: Vec<_> = (0..50u8).map(|i| h2d([i]).then(to_host).schedule(&*policy)).collect();
        for (i, task) in (0..50).zip(tasks) {
            assert_eq!(block_on(task).unwrap(), [i]);
        }
        assert_eq!(policy.load(), policy.clone().load());
    }
}

fn on_same_device_continues_on_the_stream(device: &Device) {
    let stream = device.new_stream().unwrap();
    let id = || with_context(|cx| cx.enqueue(|stream| Ok(stream.id())).map(value));
    let (plain, on) = id().then(|a| id().on(device).map(move |b| (a, b))).sync_on(&stream).unwrap();
    assert_eq!((plain, on), (stream.id(), stream.id()));
    // SAFETY: nothing goes elsewhere.
    assert_eq!(unsafe { id().on(device).async_on(&stream) }, Ok(stream.id()));
}

fn on_other_device_and_back(device: &Device) {
    let other = Device::open(&cuda_cpu::CpuProvider::default(), 0).unwrap();
    let (here, there) = (Kernels::load(device), Kernels::load(&other));
    let op = || {
        let doubled = h2d(vec![1.0f32; 300]).then(|x| here.scale(x, 2.0)).then(to_host);
        doubled
            .then(|v| {
                h2d(v).then(|x| there.scale(x, 3.0)).then(|x| there.add_scalar(x, 1.0)).on(&other)
            })
            .then(|x| {
                assert_eq!(x.device(), &other);
                to_host(x).on(&other)
            })
            .then(|v| h2d(v).then(|x| here.scale(x, 10.0)).then(to_host))
    };
    let stream = device.new_stream().unwrap();
    assert_eq!(op().sync_on(&stream).unwrap(), [70.0; 300]);
    let policy = SingleStream::from(stream.clone());
    assert_eq!(block_on(op().schedule(&policy)).unwrap(), [70.0; 300]);
    let (a, b) = zip!(op(), op()).sync_on(&stream).unwrap();
    assert!(a == [70.0; 300] && b == a);
    // The output is complete already.
    let idle = zeros::<u32>(32).then(|out| there.spin(out, 30_000)).on(&other);
    let idle = idle.map(|_| device_policy(&other).unwrap().load());
    assert_eq!(block_on(idle.schedule(&policy)), Ok(0));
}

fn on_other_device_is_refused_by_async_on(device: &Device) {
    let other = Device::open(&cuda_cpu::CpuProvider::default(), 0).unwrap();
    let stream = device.new_stream().unwrap();
    // SAFETY: nothing is submitted.
    let refused = unsafe { value(1u8).on(&other).async_on(&stream) };
    assert_eq!(refused, Err(Error::needs_host_data("on")));
}

#[test]
fn device_policies_hold_for_all_threads_and_keep_no_device_open() {
    let device = LinkProvider::new(std::time::Duration::from_millis(2)).open_device();
    let usual = device_policy(&device).unwrap();
    assert!(Arc::ptr_eq(&usual, &device_policy(&device).unwrap()));
    let made = Arc::new(AtomicU32::new(0));
    let counted = made.clone();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            set_device_policy(&device, move |device| {
                counted.fetch_add(1, Ordering::SeqCst);
                SingleStream::new(device)
            });
        });
    });
    let single = device_policy(&device).unwrap();
    assert_eq!(made.load(Ordering::SeqCst), 1);
    load(&single.place().unwrap());
    assert_eq!(device_policy(&device).unwrap().place().unwrap(), single.place().unwrap());
    drop((single, usual));
    drop(device_policy(&device).unwrap());
    assert_eq!(made.load(Ordering::SeqCst), 2);
    // The device is closed. If it were open, it would hold the closure.
    drop(device);
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while Arc::strong_count(&made) > 1 && std::time::Instant::now() < until {
        std::thread::yield_now();
    }
    assert_eq!(Arc::strong_count(&made), 1);
}

#[test]
fn on_other_device_dropped_at_any_poll_leaves_no_memory() {
    for device in own_devices() {
        let provider: &dyn Provider = &cuda_cpu::CpuProvider::default();
        let other = Device::open(provider, 0).unwrap();
        let kernels = [&device, &other].map(Kernels::load);
        let before = [&device, &other].map(|device| device.memory().unwrap().used);
        let policy = SingleStream::new(&device).unwrap();
        let spin = |kernels: &Kernels| {
            let kernels = kernels.clone();
            zeros::<u32>(64)
                .then(move |out: DeviceBuffer<u32>| kernels.spin(out, 3000))
                .then(to_host)
        };
        dropped_at_every_poll(|| {
            zip!(spin(&kernels[0]), spin(&kernels[1]).on(&other)).schedule(&policy)
        });
        memory_is_freed(&device, before[0]);
        memory_is_freed(&other, before[1]);
    }
}
