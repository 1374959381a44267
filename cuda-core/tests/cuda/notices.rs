//! Notices of work that ends well.

use std::{collections::BTreeSet, time::Duration};

use cuda_core::{Command, LaunchConfig, Request};

use crate::{
    harness::gpu,
    kernels::{SLOW_STORE, slow_store_params},
};

const ONE: LaunchConfig = LaunchConfig::new(1, 1);

#[test]
fn a_notice_comes_after_the_work_before_it() {
    let Some(gpu) = gpu() else { return };
    let (stream, other) = (gpu.stream(), gpu.stream());
    let to = gpu.upload(stream, &[0]);
    let store = gpu.kernel(SLOW_STORE);
    // Longer than the watchdog's period, which must find nothing wrong.
    let params = slow_store_params(5, 200_000_000);
    gpu.launch(stream, store, ONE, &params, &[(8, to)]).unwrap();
    gpu.notify(stream, 1);
    gpu.notify(stream, 2);
    gpu.notify(other, 3);
    let notices: Vec<_> = (0..3).map(|_| gpu.notice()).collect();
    assert!(notices.iter().all(|notice| notice.status == Ok(())), "{notices:?}");
    let of = |stream| notices.iter().filter(move |notice| notice.stream == stream);
    assert_eq!(of(stream).map(|notice| notice.token).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(of(other).map(|notice| notice.token).collect::<Vec<_>>(), [3]);
    assert_eq!(gpu.download(stream, to, 1), [5]);
}

#[test]
fn every_notice_comes_once_from_many_threads() {
    let Some(gpu) = gpu() else { return };
    let (threads, each) = (4, 250);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let gpu = &gpu.backend;
            let id = cuda_core::StreamId(1000 + thread);
            scope.spawn(move || {
                gpu.request(Request::CreateStream { id, priority: 0 }).unwrap();
                for token in thread * each..(thread + 1) * each {
                    // SAFETY: touches no memory.
                    unsafe { gpu.enqueue(id, Command::Notify { token }, &[]) }.unwrap();
                }
                // Before its notices are out: they hold the stream.
                gpu.request(Request::DestroyStream { id }).unwrap();
            });
        }
    });
    let mut tokens = BTreeSet::new();
    for _ in 0..threads * each {
        let notice = gpu.notice();
        assert_eq!(notice.status, Ok(()));
        assert!(tokens.insert(notice.token), "{} came twice", notice.token);
    }
    gpu.no_notice_within(Duration::from_millis(100));
}

#[test]
fn a_thread_that_has_parked_comes_back() {
    let Some(gpu) = gpu() else { return };
    let stream = gpu.stream();
    for token in 0..3 {
        gpu.notify(stream, token);
        assert_eq!(gpu.notice().token, token);
        std::thread::sleep(Duration::from_millis(150));
    }
}
