//! A value that one thread sends once, and that a task or a thread waits for.
//!
//! ThreadSanitizer, which CI runs on this crate, reports races in the crate `oneshot`, because it does not know fences.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use atomic_waker::AtomicWaker;
use parking_lot::{Condvar, Mutex};

use super::wake_each;

/// Makes the two ends.
pub fn one_shot<T>() -> (Sender<T>, Receiver<T>) {
    let value = Mutex::new(Value::Expected);
    let shared = Arc::new(Shared { value, arrived: Condvar::new(), waker: AtomicWaker::new() });
    (Sender(Some(shared.clone())), Receiver(shared))
}

struct Shared<T> {
    value: Mutex<Value<T>>,
    arrived: Condvar,
    waker: AtomicWaker,
}

enum Value<T> {
    Expected,
    Sent(T),
    /// The value was taken, or the sender was dropped.
    Gone,
}

impl<T> Value<T> {
    /// Takes the value. Returns `None` while it may still come, and `Some(None)` if no value will come.
    fn take(&mut self) -> Option<Option<T>> {
        match std::mem::replace(self, Value::Gone) {
            Value::Expected => {
                *self = Value::Expected;
                None
            }
            Value::Sent(value) => Some(Some(value)),
            Value::Gone => Some(None),
        }
    }
}

/// Sends the value. If it is dropped, the receiver learns that no value will come.
pub struct Sender<T>(Option<Arc<Shared<T>>>);

impl<T> Sender<T> {
    /// Sends the value and wakes the receiver.
    pub fn send(mut self, value: T) {
        self.end(Value::Sent(value));
    }

    fn end(&mut self, value: Value<T>) {
        let Some(shared) = self.0.take() else { return };
        *shared.value.lock() = value;
        shared.arrived.notify_all();
        let waker = shared.waker.take();
        // The channel may hold the last handle of something whose drop runs other code.
        drop(shared);
        wake_each(waker);
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.end(Value::Gone);
    }
}

/// Receives the value.
pub struct Receiver<T>(Arc<Shared<T>>);

impl<T> Receiver<T> {
    /// Ready with the value, or with `None` if the sender was dropped or the value was taken.
    pub fn poll(&mut self, task: &mut Context<'_>) -> Poll<Option<T>> {
        // Kept until the end of the call. Its drop may panic, and a panic inside `register` would disable the waker
        // cell.
        let _previous = self.0.waker.take();
        // Registers before it checks, so a value that arrives after the check wakes the task.
        self.0.waker.register(task.waker());
        let value = self.0.value.lock().take();
        value.map_or(Poll::Pending, Poll::Ready)
    }

    /// Blocks the calling thread until there is a value, or until there will be none.
    pub fn wait(&mut self) -> Option<T> {
        let mut value = self.0.value.lock();
        loop {
            match value.take() {
                Some(value) => return value,
                None => self.0.arrived.wait(&mut value),
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::{
        sync::atomic::{AtomicU32, Ordering},
        task::{Wake, Waker},
    };

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicU32);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    struct PanicsWhenDropped;

    impl Wake for PanicsWhenDropped {
        fn wake(self: Arc<Self>) {}
    }

    #[allow(clippy::panic)]
    impl Drop for PanicsWhenDropped {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }

    #[test]
    fn panic_of_a_replaced_waker_loses_no_wake() {
        let (sender, mut receiver) = one_shot();
        let panics = Waker::from(Arc::new(PanicsWhenDropped));
        assert!(receiver.poll(&mut Context::from_waker(&panics)).is_pending());
        drop(panics);
        let wakes = Arc::<Wakes>::default();
        let waker = Waker::from(wakes.clone());
        let mut poll = || receiver.poll(&mut Context::from_waker(&waker)).is_pending();
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(&mut poll)).unwrap_err();
        assert!(poll());
        sender.send(7);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn end_wakes_the_task_that_polled_last() {
        for sends in [true, false] {
            let (sender, mut receiver) = one_shot();
            let wakes: [Arc<Wakes>; 2] = Default::default();
            for task in &wakes {
                let waker = Waker::from(task.clone());
                assert!(receiver.poll(&mut Context::from_waker(&waker)).is_pending());
            }
            if sends {
                sender.send(7)
            } else {
                drop(sender)
            }
            assert_eq!(wakes.map(|task| task.0.load(Ordering::Relaxed)), [0, 1]);
        }
    }

    #[test]
    fn value_is_received_once() {
        let (sender, mut receiver) = one_shot();
        let task = &mut Context::from_waker(Waker::noop());
        assert!(receiver.poll(task).is_pending());
        sender.send(7);
        assert_eq!(receiver.poll(task), Poll::Ready(Some(7)));
        assert_eq!(receiver.poll(task), Poll::Ready(None));
    }

    #[test]
    fn dropped_sender_ends_the_wait() {
        let (sender, mut receiver) = one_shot::<u8>();
        let waits = std::thread::spawn(move || receiver.wait());
        drop(sender);
        assert_eq!(waits.join().unwrap(), None);
    }
}
