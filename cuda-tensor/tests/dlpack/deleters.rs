//! Each deleter is called once: after a copy, after an error, after a cancelled run and without a run.

use std::thread::ThreadId;

use cuda_tensor::{Tensor, TensorOps, dlpack::ManagedTensor};

use cuda_async::{open_blocking, prelude::*};

use crate::producer::Foreign;

#[test]
fn deleter_is_called_once_after_the_copy() {
    let stream = open_blocking("cpu").unwrap().new_stream().unwrap();
    for shape in [&[4, 5][..], &[], &[1 << 12, 1 << 10]] {
        let (managed, deleted) = Foreign::counting(shape).managed();
        // SAFETY: no other code uses the memory.
        let x = unsafe { Tensor::<f32>::from_dlpack(managed) }.sync_on(&stream).unwrap();
        drop(x.add_scalar(1.0));
        deleted.assert_once();
    }
}

#[test]
fn deleter_is_called_once_if_the_tensor_is_dropped_during_an_operation() {
    let device = open_blocking("cpu").unwrap();
    let stream = device.new_stream().unwrap();
    for _ in 0..50 {
        let (managed, deleted) = Foreign::counting(&[256, 256]).managed();
        // SAFETY: no other code uses the memory.
        let x = unsafe { Tensor::<f32>::from_dlpack(managed) };
        // The tensor is dropped as soon as the sum is submitted.
        let max = x.max().item().sync_on(&stream).unwrap();
        assert_eq!(max, 65535.0);
        deleted.assert_once();
    }
}

#[test]
fn deleter_is_called_once_without_a_run() {
    let (managed, deleted) = Foreign::counting(&[4]).managed();
    // SAFETY: no other code uses the memory.
    drop(unsafe { Tensor::<f32>::from_dlpack(managed) });
    deleted.assert_once();
    let (managed, deleted) = Foreign::counting(&[4]).managed();
    drop(managed);
    assert_eq!(deleted.count(), 1);
}

#[test]
fn deleter_is_called_once_after_a_cancelled_run() {
    let device = open_blocking("cpu").unwrap();
    for polls in 0..3 {
        let (managed, deleted) =
            Foreign::of(vec![1.0; 1 << 21], 0, &[2, 1 << 20], Some(&[1, 2])).managed();
        // SAFETY: no other code uses the memory.
        let x = unsafe { Tensor::<f32>::from_dlpack(managed) }.on(&device);
        let mut future = Box::pin(x.into_future());
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        for _ in 0..polls {
            _ = future.as_mut().poll(&mut cx);
        }
        drop(future);
        deleted.assert_once();
    }
}

#[test]
fn deleter_of_an_exported_tensor_frees_it() {
    let stream = open_blocking("cpu").unwrap().new_stream().unwrap();
    let managed = Tensor::<f32>::ones(8).then(|x| x.into_dlpack()).sync_on(&stream).unwrap();
    // SAFETY: the pointer is valid and is used once.
    unsafe {
        let raw = managed.into_raw();
        let delete = (*raw).deleter.unwrap();
        delete(raw);
    }
}

/// Sends the id of the thread on which it is dropped.
struct Dropped(std::sync::mpsc::Sender<ThreadId>);

impl Drop for Dropped {
    fn drop(&mut self) {
        _ = self.0.send(std::thread::current().id());
    }
}

#[test]
fn deleter_never_runs_on_the_thread_that_polls() {
    let device = open_blocking("cpu").unwrap();
    let (sender, threads) = std::sync::mpsc::channel();
    let foreign = |elements: Vec<f32>| {
        let mut foreign = Foreign::of(elements, 0, &[4], None);
        foreign.keeps = Box::new((foreign.keeps, Dropped(sender.clone())));
        foreign.managed().0
    };
    // SAFETY: no other code uses the memory.
    let run = |managed: ManagedTensor| unsafe {
        futures::executor::block_on(Tensor::<f32>::from_dlpack(managed).on(&device).into_future())
            .map(drop)
    };
    run(foreign(vec![1.0; 4])).unwrap();
    assert_ne!(threads.recv().unwrap(), std::thread::current().id());
    let managed = foreign(vec![1.0; 4]);
    // SAFETY: the import is refused.
    let refused = unsafe { Tensor::<i32>::from_dlpack(managed) }.on(&device);
    assert!(futures::executor::block_on(refused.into_future()).is_err());
    assert_ne!(threads.recv().unwrap(), std::thread::current().id());
}
