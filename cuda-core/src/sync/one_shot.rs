//! A value that one thread sends once, and that a task or a thread waits for.

use std::{
    sync::Arc,
    task::{Context, Poll, Waker},
};

use parking_lot::{Condvar, Mutex};

use super::wake_each;

/// Makes the two ends.
pub fn one_shot<T>() -> (Sender<T>, Receiver<T>) {
    let state = Mutex::new(State { value: Value::Expected, waker: None });
    let slot = Arc::new(Slot { state, came: Condvar::new() });
    (Sender(Some(slot.clone())), Receiver(slot))
}

struct Slot<T> {
    state: Mutex<State<T>>,
    came: Condvar,
}

struct State<T> {
    value: Value<T>,
    waker: Option<Waker>,
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
pub struct Sender<T>(Option<Arc<Slot<T>>>);

impl<T> Sender<T> {
    /// Sends the value and wakes the receiver.
    pub fn send(mut self, value: T) {
        self.end(Value::Sent(value));
    }

    fn end(&mut self, value: Value<T>) {
        let Some(slot) = self.0.take() else { return };
        let waker = {
            let mut state = slot.state.lock();
            state.value = value;
            slot.came.notify_all();
            state.waker.take()
        };
        // The slot may hold the last handle of something whose drop runs other code.
        drop(slot);
        wake_each(waker);
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.end(Value::Gone);
    }
}

/// Receives the value.
pub struct Receiver<T>(Arc<Slot<T>>);

impl<T> Receiver<T> {
    /// Ready with the value, or with `None` if the sender was dropped or the value was taken.
    pub fn poll(&mut self, task: &mut Context<'_>) -> Poll<Option<T>> {
        let waker = task.waker().clone();
        let (value, previous) = {
            let mut state = self.0.state.lock();
            (state.value.take(), state.waker.replace(waker))
        };
        drop(previous);
        value.map_or(Poll::Pending, Poll::Ready)
    }

    /// Blocks the calling thread until there is a value, or until there will be none.
    pub fn wait(&mut self) -> Option<T> {
        let mut state = self.0.state.lock();
        loop {
            match state.value.take() {
                Some(value) => return value,
                None => self.0.came.wait(&mut state),
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

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
