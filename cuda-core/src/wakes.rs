//! Code of others that panics where that must not stop anybody else: wakers, and what they panic with.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    task::Waker,
};

/// Wakes each. One that panics is its owner's affair: the others are woken all the same.
pub fn wake_each(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
            discard_panic(payload);
        }
    }
}

/// Drops what a panic was raised with, which may panic in its turn.
pub fn discard_panic(payload: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        // This could go on for ever.
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
    fn one_that_panics_with_something_nasty_keeps_nobody_asleep() {
        let count = Arc::new(Count::default());
        throw_and_count(&count);
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_panic_on_the_way_is_no_matter() {
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
