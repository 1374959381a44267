//! `script`.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use cuda_async::{
    Device, Error,
    policy::{SingleStream, StreamPoolRoundRobin},
    prelude::*,
    script, value,
};
use futures::{FutureExt, channel::oneshot, executor::block_on};

use crate::{
    kernels::{Kernels, spun},
    on_every_device,
    polling::{dropped_at_every_poll, iterations_for, memory_is_freed, own_devices},
};

on_every_device! {
    script_loop_decides_on_device_results
    script_accepts_both_kinds_of_closure
    script_runs_in_order_on_one_stream
    script_composes_with_other_operations
    script_ends_at_an_error_or_handles_it
    foreign_futures_work_in_a_script
    script_works_with_select
    script_context_is_an_error_outside_its_script
    script_is_refused_by_async_on
    run_of_a_script_ends_once
    script_that_panics_has_ended
}

fn script_loop_decides_on_device_results(device: &Device) {
    let kernels = Kernels::load(device);
    let op = || {
        script(async |cx| {
            let mut x = cx.run(h2d(vec![1.0f32; 4])).await?;
            let mut turns = 0;
            loop {
                x = cx.run(kernels.scale(x, 2.0)).await?;
                turns += 1;
                let host = cx.run(to_host(&x)).await?;
                if host[0] > 1000.0 {
                    break Ok((host[0], turns));
                }
            }
        })
    };
    assert_eq!(op().sync_on(&device.new_stream().unwrap()), Ok((1024.0, 10)));
    let policy = StreamPoolRoundRobin::new(device).unwrap();
    assert_eq!(block_on(op().schedule(&policy)), Ok((1024.0, 10)));
}

fn script_accepts_both_kinds_of_closure(device: &Device) {
    let stream = device.new_stream().unwrap();
    let data = vec![1u8, 2, 3];
    let moved = data.clone();
    let a = script(async move |cx| cx.run(h2d(moved).then(to_host)).await);
    let moved = data.clone();
    let b = script(|cx| async move { cx.run(h2d(moved).then(to_host)).await });
    let c = script(async |cx| cx.run(h2d(&data).then(to_host)).await);
    let (a, b, c) = zip!(a, b, c).sync_on(&stream).unwrap();
    assert!(a == data && b == data && c == data);
}

fn script_runs_in_order_on_one_stream(device: &Device) {
    let kernels = Kernels::load(device);
    let stream = device.new_stream().unwrap();
    let op = script(async |cx| {
        let mut x = cx.run(h2d(vec![0.0f32; 100])).await?;
        for turn in 0..200u16 {
            x = cx.run(kernels.add_scalar(x, f32::from(turn % 2))).await?;
        }
        // A fork, a tuple, a `Vec`, and an empty `Vec` inside the script.
        let (x, y) = cx.run((value(x), h2d(vec![1.0f32; 100]))).await?;
        let sums = cx.run(vec![kernels.add(&x, &y), kernels.add(&x, &y)]).await?;
        Ok((
            cx.run(sums.into_iter().map(to_host).collect::<Vec<_>>()).await?,
            cx.run(value(7)).await?,
        ))
    });
    let (sums, seven) = op.sync_on(&stream).unwrap();
    assert_eq!((sums, seven), (vec![vec![101.0; 100]; 2], 7));
}

fn script_composes_with_other_operations(device: &Device) {
    let kernels = Kernels::load(device);
    let minute = Duration::from_secs(60);
    let inner = |n: u32| {
        let kernels = kernels.clone();
        script(async move |cx| {
            let nested = script(async move |cx| cx.run(zeros::<u32>(n as usize)).await);
            let out = cx.run(nested).await?;
            cx.run(kernels.spin(out, n)).await
        })
    };
    let op = zip!(inner(5), inner(6).timeout(minute)).then(|(a, b)| (to_host(a), to_host(b)));
    let policy = SingleStream::new(device).unwrap();
    assert_eq!(block_on(op.schedule(&policy)).unwrap(), (spun(5, 5), spun(6, 6)));
}

fn script_ends_at_an_error_or_handles_it(device: &Device) {
    let stream = device.new_stream().unwrap();
    let op = |catch: bool| {
        script(async move |cx| match cx.run(zeros::<u8>(1 << 50)).await {
            Err(Error::OutOfMemory { .. }) if catch => cx.run(zeros::<u8>(2).then(to_host)).await,
            other => other.map(|_| vec![]),
        })
    };
    assert_eq!(op(true).sync_on(&stream), Ok(vec![0, 0]));
    assert!(matches!(op(false).sync_on(&stream), Err(Error::OutOfMemory { .. })));
}

fn foreign_futures_work_in_a_script(device: &Device) {
    let (kernels, stream) = (Kernels::load(device), device.new_stream().unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build().unwrap();
    let _entered = runtime.enter();
    let op = || {
        let (sender, receiver) = oneshot::channel();
        let sent = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(3));
            sender.send(40u32).unwrap();
        });
        script(async |cx| {
            let x = cx.run(zeros::<u32>(8)).await?;
            tokio::time::sleep(Duration::from_millis(2)).await;
            let turns = receiver.await.map_err(|_| Error::AlreadyEnded)?;
            sent.join().unwrap();
            let (host, ()) = futures::join!(
                cx.run(kernels.spin(x, turns).then(to_host)),
                tokio::time::sleep(Duration::from_millis(2)),
            );
            host
        })
    };
    assert_eq!(op().sync_on(&stream).unwrap(), spun(8, 40));
    let policy = SingleStream::from(stream.clone());
    assert_eq!(runtime.block_on(op().schedule(&policy)).unwrap(), spun(8, 40));
}

fn script_works_with_select(device: &Device) {
    let (kernels, stream) = (Kernels::load(device), device.new_stream().unwrap());
    let long = iterations_for(device, Duration::from_millis(200));
    let op = script(async |cx| {
        let x = cx.run(zeros::<u32>(8)).await?;
        let mut slow = cx.run(kernels.spin(x, long).then(to_host)).fuse();
        let mut looks = 0;
        loop {
            futures::select! {
                host = slow => return host.map(|host| (host.len(), looks)),
                () = nap().fuse() => looks += 1,
            }
        }
    });
    let (len, looks) = op.sync_on(&stream).unwrap();
    assert!(len == 8 && looks > 0, "{looks}");
}

/// Waits two milliseconds on a separate thread.
pub fn nap() -> impl Future<Output = ()> + Send + Unpin {
    let (sender, receiver) = oneshot::channel();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(2));
        let _ = sender.send(());
    });
    receiver.map(drop)
}

fn script_context_is_an_error_outside_its_script(device: &Device) {
    let stream = device.new_stream().unwrap();
    let (kept, seen) = (Arc::new(std::sync::Mutex::new(None)), AtomicBool::new(false));
    let keep = kept.clone();
    let op = script(async |cx| {
        *keep.lock().unwrap() = Some(cx.clone());
        let elsewhere = cx.run(value(1));
        // Also while the script is polled.
        let said = std::thread::spawn(move || block_on(elsewhere)).join().unwrap();
        seen.store(said == Err(Error::OutsideScript), Ordering::SeqCst);
        cx.run(value(2)).await
    });
    assert_eq!(op.sync_on(&stream), Ok(2));
    assert!(seen.load(Ordering::SeqCst));
    let cx = kept.lock().unwrap().take().unwrap();
    assert_eq!(block_on(cx.run(value(3))), Err(Error::OutsideScript));
}

fn script_is_refused_by_async_on(device: &Device) {
    let stream = device.new_stream().unwrap();
    // SAFETY: nothing is submitted.
    let refused = unsafe { script(async |cx| cx.run(value(1)).await).async_on(&stream) };
    assert_eq!(refused, Err(Error::needs_host_data("script")));
}

fn run_of_a_script_ends_once(device: &Device) {
    let stream = device.new_stream().unwrap();
    let op = script(async |cx| {
        let mut once = cx.run(zeros::<u8>(9).then(to_host));
        (&mut once).await?;
        assert_eq!(once.await, Err(Error::AlreadyEnded));
        Ok(())
    });
    assert_eq!(op.sync_on(&stream), Ok(()));
}

fn script_that_panics_has_ended(device: &Device) {
    let stream = device.new_stream().unwrap();
    let mut op = script(async |cx| {
        cx.run(zeros::<u8>(9).then(to_host)).await?;
        if true {
            panic!("on purpose")
        }
        Ok(())
    })
    .shared();
    op = op.clone();
    assert!(catch_unwind(AssertUnwindSafe(|| op.clone().sync_on(&stream))).is_err());
    let error = op.sync_on(&stream).map(drop).unwrap_err();
    assert!(matches!(error, Error::Panicked { .. }), "{error}");
    assert_eq!(zeros::<u8>(3).then(to_host).sync_on(&stream).unwrap(), [0; 3]);
}

#[test]
fn script_dropped_at_any_poll_leaves_no_memory() {
    for device in own_devices() {
        let kernels = Kernels::load(&device);
        let before = device.memory().unwrap().used;
        let policy = SingleStream::new(&device).unwrap();
        dropped_at_every_poll(|| {
            let op = script(async |cx| {
                for n in [64, 1, 300] {
                    let x = cx.run(zeros::<u32>(n)).await?;
                    let x = cx.run(kernels.spin(x, 2000)).await?;
                    nap().await;
                    drop(cx.run(to_host(x)).await?);
                }
                Ok(())
            });
            op.schedule(&policy)
        });
        memory_is_freed(&device, before);
    }
}

#[tokio::test]
async fn script_can_be_spawned_and_aborted() {
    let op = script(async |cx| cx.run(h2d(vec![1u8, 2]).then(to_host)).await);
    assert_eq!(tokio::spawn(op.into_future()).await.unwrap().unwrap(), [1, 2]);
    let op = script(async |cx| {
        cx.run(zeros::<u8>(100)).await?;
        std::future::pending::<()>().await;
        Ok(())
    });
    let task = tokio::spawn(op.into_future());
    tokio::time::sleep(Duration::from_millis(5)).await;
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
}
