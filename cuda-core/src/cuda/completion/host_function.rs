//! The host function that stores the number of a report: the driver calls it on a thread of its own (rule 8).

use std::{ffi::c_void, sync::Arc};

use super::inbox::ReportInbox;
use crate::cuda::{
    driver::{api::Api, status::Failed},
    streams::{DriverStream, Passed},
};

/// Enqueues a host function that stores the number and wakes the completion thread.
pub(super) fn enqueue(
    api: &Api,
    stream: &DriverStream,
    number: u64,
    inbox: &Arc<ReportInbox>,
) -> Result<(), Failed> {
    let call = Box::new(Call { inbox: Arc::clone(inbox), passed: stream.passed.clone(), number });
    let data = Box::into_raw(call);
    // SAFETY: the caller holds the stream; `fire` takes over the box when it runs, at most once.
    let enqueued = unsafe { api.launch_host(stream.raw, fire, data.cast()) };
    if enqueued.is_err() {
        // SAFETY: the driver refused, so `fire` never runs and the box is still owned here.
        drop(unsafe { Box::from_raw(data) });
    }
    enqueued
}

/// The data of a host function. If the device is lost, the function never runs and the data is leaked.
struct Call {
    inbox: Arc<ReportInbox>,
    passed: Passed,
    number: u64,
}

/// The host function. A thread of the driver runs it, so it calls no driver and drops no value of a user.
unsafe extern "system" fn fire(data: *mut c_void) {
    // SAFETY: made by `enqueue`, which gave it away; the driver calls this once.
    let call = unsafe { Box::from_raw(data.cast::<Call>()) };
    call.passed.raise(call.number);
    call.inbox.wake();
}

/// Runs a host function as the driver does.
#[cfg(all(test, loom))]
pub(crate) fn host_call(inbox: &Arc<ReportInbox>, passed: Passed, number: u64) {
    let call = Box::new(Call { inbox: Arc::clone(inbox), passed, number });
    // SAFETY: made here, run once.
    unsafe { fire(Box::into_raw(call).cast()) };
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn host_function_stores_the_number_and_wakes_the_thread() {
        let (inbox, passed) = (Arc::new(ReportInbox::default()), Passed::default());
        let call = Call { inbox: Arc::clone(&inbox), passed: passed.clone(), number: 7 };
        let data = Box::into_raw(Box::new(call)) as usize;
        let driver = std::thread::spawn(move || {
            // SAFETY: made above, run once.
            unsafe { fire(data as *mut c_void) }
        });
        inbox.wait(None);
        driver.join().unwrap();
        assert_eq!(passed.load(), 7);
    }
}
