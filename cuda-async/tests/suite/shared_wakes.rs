//! A shared operation whose first clone is never polled again.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Wake, Waker},
};

use cuda_async::{
    Device, Error, ExecutionContext, Op,
    op::{Submit, Submitted},
    policy::SingleStream,
    prelude::*,
};

use futures::FutureExt;

use crate::on_every_device;

on_every_device! { clone_woken_during_another_poll_is_woken_again }

type Inside = Arc<Mutex<Option<Box<dyn FnOnce(&Waker) + Send>>>>;

/// Runs a closure in its first poll, which is pending. Its second poll is ready.
struct Twice(Inside);

impl Submit for Twice {
    type Output = u32;

    fn submit(
        self,
        task: &mut Context<'_>,
        _: &ExecutionContext,
    ) -> Result<Submitted<Self>, Error> {
        let inside = self.0.lock().unwrap().take();
        Ok(match inside {
            Some(inside) => {
                inside(task.waker());
                Submitted::Pending(self)
            }
            None => Submitted::Ready(7),
        })
    }
}

#[derive(Default)]
struct Woken(AtomicU32);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn clone_woken_during_another_poll_is_woken_again(device: &Device) {
    let policy = Arc::new(SingleStream::new(device).unwrap());
    let inside = Inside::default();
    let op = Op::new(Twice(inside.clone())).shared();
    let woken = Arc::new(Woken::default());
    let second = Arc::new(Mutex::new(None));
    *inside.lock().unwrap() = Some(Box::new({
        let (op, policy) = (op.clone(), policy.clone());
        let (second, waker) = (second.clone(), Waker::from(woken.clone()));
        move |steps| {
            let mut task = Context::from_waker(&waker);
            let mut future = op.schedule(&*policy);
            assert!(future.poll_unpin(&mut task).is_pending());
            steps.wake_by_ref();
            // After the wake, the other clone is still polling the steps.
            assert!(future.poll_unpin(&mut task).is_pending());
            *second.lock().unwrap() = Some(future);
        }
    }));
    // Begins the run, and is never polled again.
    let first = op.schedule(&*policy);
    assert_eq!(woken.0.load(Ordering::SeqCst), 2, "no clone will poll it again");
    let second = second.lock().unwrap().take().unwrap();
    assert_eq!(*futures::executor::block_on(second).unwrap(), 7);
    drop(first);
}
