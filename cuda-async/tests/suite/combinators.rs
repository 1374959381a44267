//! Combinators on devices. The unit tests of the combinators cover the cases without a device.

use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use cuda_async::{
    Device, Error, in_order, iterate, join_all,
    policy::{SingleStream, StreamPoolRoundRobin},
    prelude::*,
    unzip, value,
};

use crate::{kernels::Kernels, on_every_device};

on_every_device! {
    tuples_run_concurrently_and_join
    branches_see_earlier_work
    nested_forks_join
    unzip_gives_each_part_once
    join_all_keeps_the_order_of_outputs
    iterate_decides_on_device_results
    in_order_runs_ten_thousand_operations
    shared_runs_once_for_many_threads
    shared_is_ordered_on_other_streams
    shared_error_reaches_every_clone
    closures_borrow_and_return_errors
}

fn tuples_run_concurrently_and_join(device: &Device) {
    let kernels = Kernels::load(device);
    let stream = device.new_stream().unwrap();
    let branch = |x: f32| {
        let kernels = kernels.clone();
        h2d(vec![x; 100]).then(move |v| kernels.scale(v, 2.0))
    };
    let (a, b, c) = zip!(branch(1.0), branch(2.0), branch(3.0)).sync_on(&stream).unwrap();
    let sum = kernels.add(a, b).then(|ab| kernels.add(ab, c)).then(to_host);
    assert_eq!(sum.sync_on(&stream).unwrap(), [12.0; 100]);
}

fn branches_see_earlier_work(device: &Device) {
    let kernels = Kernels::load(device);
    let stream = device.new_stream().unwrap();
    let op = h2d(vec![1.0f32; 70_000]).then(|x| kernels.scale(x, 3.0)).map(Arc::new).then(|x| {
        join_all((0..10).map(|_| {
            let kernels = kernels.clone();
            kernels.add(x.clone(), x.clone()).then(to_host)
        }))
    });
    for sum in op.sync_on(&stream).unwrap() {
        assert!(sum == [6.0; 70_000]);
    }
}

fn nested_forks_join(device: &Device) {
    let kernels = Kernels::load(device);
    let stream = device.new_stream().unwrap();
    let leaf = |x: f32| h2d(vec![x; 8]);
    let pair = |x: f32| {
        let kernels = kernels.clone();
        zip!(leaf(x), leaf(x + 1.0)).then(move |(a, b)| kernels.add(a, b))
    };
    let quad = zip!(zip!(pair(0.0), pair(2.0)), pair(4.0));
    let op = quad.then(|((a, b), c)| kernels.add(a, b).then(|ab| kernels.add(ab, c))).then(to_host);
    assert_eq!(op.sync_on(&stream).unwrap(), [15.0; 8]);
}

fn unzip_gives_each_part_once(device: &Device) {
    let stream = device.new_stream().unwrap();
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    let op = zip!(h2d(vec![1u32; 4]), h2d(vec![2u32; 4]), value("three"))
        .inspect(move |_| _ = counted.fetch_add(1, Ordering::SeqCst));
    let (a, b, c) = unzip!(op);
    assert_eq!(c.sync_on(&stream).unwrap(), "three");
    assert_eq!(a.then(to_host).sync_on(&stream).unwrap(), [1; 4]);
    assert_eq!(b.then(to_host).sync_on(&device.new_stream().unwrap()).unwrap(), [2; 4]);
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

fn join_all_keeps_the_order_of_outputs(device: &Device) {
    let stream = device.new_stream().unwrap();
    let op = join_all((0..40u32).map(|i| h2d(vec![i; 10]).then(to_host)));
    let expected: Vec<_> = (0..40u32).map(|i| vec![i; 10]).collect();
    assert_eq!(op.sync_on(&stream).unwrap(), expected);
    assert_eq!(
        join_all(Vec::<Op<cuda_async::ops::Value<u8>>>::new()).sync_on(&stream).unwrap(),
        Vec::<u8>::new()
    );
}

fn iterate_decides_on_device_results(device: &Device) {
    let kernels = Kernels::load(device);
    let doubled_past = |limit: f32| {
        let kernels = kernels.clone();
        h2d(vec![1.0f32; 4]).then(move |x| {
            iterate((x, 0), move |(x, turns)| {
                kernels.scale(x, 2.0).map(Arc::new).then(move |x| {
                    to_host(x.clone()).map(move |host| match Arc::try_unwrap(x) {
                        Ok(x) if host[0] < limit => ControlFlow::Continue((x, turns + 1)),
                        _ => ControlFlow::Break((host[0], turns + 1)),
                    })
                })
            })
        })
    };
    assert_eq!(doubled_past(1000.0).sync_on(&device.new_stream().unwrap()).unwrap(), (1024.0, 10));
    let policy = SingleStream::new(device).unwrap();
    let future = doubled_past(100.0).schedule(&policy);
    assert_eq!(futures::executor::block_on(future).unwrap(), (128.0, 7));
}

fn in_order_runs_ten_thousand_operations(device: &Device) {
    let stream = device.new_stream().unwrap();
    let op = in_order((0..10_000u32).map(value));
    assert!(op.sync_on(&stream).unwrap().into_iter().eq(0..10_000));
    let policy = SingleStream::from(stream);
    let future = in_order((0..200u32).map(|i| h2d([i]).then(to_host))).schedule(&policy);
    assert!(futures::executor::block_on(future).unwrap().into_iter().flatten().eq(0..200));
}

fn shared_runs_once_for_many_threads(device: &Device) {
    let kernels = Kernels::load(device);
    let policy = StreamPoolRoundRobin::new(device).unwrap();
    for _ in 0..20 {
        let runs = AtomicUsize::new(0);
        let shared = h2d(vec![5.0f32; 2000])
            .then(|x| kernels.scale(x, 2.0))
            .then(|x| Arc::new(x).to_host_vec())
            .inspect(|_| _ = runs.fetch_add(1, Ordering::SeqCst))
            .shared();
        std::thread::scope(|threads| {
            for _ in 0..4 {
                let op = shared.clone();
                threads.spawn(|| {
                    let host = futures::executor::block_on(op.schedule(&policy)).unwrap();
                    assert!(*host == [10.0; 2000]);
                });
            }
            let stream = device.new_stream().unwrap();
            assert!(*shared.clone().sync_on(&stream).unwrap() == [10.0; 2000]);
        });
        assert_eq!(runs.load(Ordering::SeqCst), 1);
    }
}

fn shared_is_ordered_on_other_streams(device: &Device) {
    let kernels = Kernels::load(device);
    let streams: Vec<_> = (0..3).map(|_| device.new_stream().unwrap()).collect();
    for round in 0..30u8 {
        let x = f32::from(round);
        let shared = h2d(vec![x; 30_000]).then(|v| kernels.scale(v, 2.0)).shared();
        // SAFETY: the output is used only by operations of this library.
        let _running = unsafe { shared.clone().async_on(&streams[0]) }.unwrap();
        let sums: Vec<_> = streams
            .iter()
            .map(|stream| {
                let op = shared.clone().then(|v| kernels.add(v.clone(), v)).then(to_host);
                op.sync_on(stream).unwrap()
            })
            .collect();
        assert!(sums.iter().all(|sum| *sum == [4.0 * x; 30_000]));
    }
}

fn shared_error_reaches_every_clone(device: &Device) {
    let stream = device.new_stream().unwrap();
    let failing = value(())
        .then(|()| Err::<Op<cuda_async::ops::Value<u8>>, _>(Error::OutsideScript))
        .shared();
    assert_eq!(failing.clone().sync_on(&stream).unwrap_err(), Error::OutsideScript);
    assert_eq!(failing.sync_on(&stream).unwrap_err(), Error::OutsideScript);
}

fn closures_borrow_and_return_errors(device: &Device) {
    let stream = device.new_stream().unwrap();
    let limit = String::from("7");
    let parsed = h2d([6u32, 8]).then(to_host).then(|v| {
        let limit: u32 = limit.parse().map_err(|_| Error::OutsideScript)?;
        Ok::<_, Error>(value(v.into_iter().filter(|x| *x < limit).collect::<Vec<_>>()))
    });
    assert_eq!(parsed.sync_on(&stream).unwrap(), [6]);
}
