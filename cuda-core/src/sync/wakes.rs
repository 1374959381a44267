//! Isolates panics of user code: wakers, and the payloads of panics.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    task::Waker,
};

/// Wakes each waker. A waker that panics does not keep the others asleep.
pub fn wake_each(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
            discard_panic(payload);
        }
    }
}

/// Drops the payload of a panic, whose own drop may panic.
pub fn discard_panic(payload: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        // Its drop could panic again, without end.
        std::mem::forget(again);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        task::Wake,
    };

    use super::*;

    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            std::panic::panic_any(Bomb);
        }
    }

    struct Throws;

    impl Wake for Throws {
        fn wake(self: Arc<Self>) {
            std::panic::panic_any(Bomb);
        }
    }

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn throw_and_count(count: &Arc<Count>) {
        wake_each([Waker::from(Arc::new(Throws)), Waker::from(count.clone())]);
    }

    #[test]
    fn panicking_waker_does_not_prevent_other_wakes() {
        let count = Arc::new(Count::default());
        throw_and_count(&count);
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn wakers_are_woken_while_the_thread_unwinds() {
        struct Wakes(Arc<Count>);
        impl Drop for Wakes {
            fn drop(&mut self) {
                throw_and_count(&self.0);
            }
        }
        let count = Arc::new(Count::default());
        let wakes = Wakes(count.clone());
        let unwound = catch_unwind(AssertUnwindSafe(move || {
            let _wakes = wakes;
            panic!("on purpose");
        }));
        assert!(unwound.is_err());
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
    }
}
