//! Host functions: closures that the driver calls on a thread of its own, in the order of a stream.

use std::ffi::c_void;

use super::{
    api::{Api, StreamHandle},
    status::Failed,
};

/// Enqueues a call of `function` behind the work of a stream. On a lost device the driver never makes the call, and
/// `function` is leaked.
///
/// # Errors
/// The driver's error. The closure is dropped.
///
/// # Safety
/// The caller holds the stream, and its context is bound. The closure obeys rule 8 of [`cuda`](crate::self): it calls
/// no driver, does not panic, takes no lock that is held across a driver call, and drops no value of a user.
pub(crate) unsafe fn enqueue<F: FnOnce() + Send + 'static>(
    api: &Api,
    stream: StreamHandle,
    function: F,
) -> Result<(), Failed> {
    let data = Box::into_raw(Box::new(function));
    // SAFETY: the caller holds the stream, its context is bound, and the closure obeys rule 8. `call` takes over the
    // box when it runs, at most once.
    let enqueued = unsafe { api.launch_host(stream, call::<F>, data.cast()) };
    if enqueued.is_err() {
        // SAFETY: the driver refused, so `call` never runs and the box is still owned here.
        drop(unsafe { Box::from_raw(data) });
    }
    enqueued
}

/// The function that the driver calls.
///
/// # Safety
/// `data` is a box of an `F` that was given away. It is used at most once.
unsafe extern "system" fn call<F: FnOnce()>(data: *mut c_void) {
    // SAFETY: `data` is a box of an `F` that was given away, and is used at most once.
    let function = unsafe { Box::from_raw(data.cast::<F>()) };
    function();
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::driver::api::simulated;

    #[test]
    fn driver_calls_the_closure_in_the_order_of_the_stream() {
        let (api, gate) = (simulated::driver().api, simulated::gate());
        let stream = simulated::stream_with(gate);
        let (sender, receiver) = channel();
        // SAFETY: the stream is never destroyed; the closure only sends.
        unsafe { enqueue(api, stream, move || _ = sender.send(())) }.unwrap();
        assert!(receiver.try_recv().is_err());
        simulated::open(gate);
        receiver.recv().unwrap();
    }

    #[test]
    fn closure_of_a_refused_call_is_dropped() {
        let held = std::sync::Arc::new(());
        let closure = {
            let held = held.clone();
            move || drop(held)
        };
        let api = Api::refusing();
        // SAFETY: every call is refused.
        unsafe { enqueue(&api, StreamHandle::NULL, closure) }.unwrap_err();
        assert_eq!(std::sync::Arc::strong_count(&held), 1);
    }
}
