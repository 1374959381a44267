//! The policy of each device, for operations that [`DeviceOp::on`](crate::ops::DeviceOp::on) sends there.
//!
//! A policy holds streams, and a stream holds its device. A device that owned its policy would never be closed. So the
//! device owns the policy's constructor. A policy lives while it is used. The next one borrows streams from the
//! device's pool, to which the previous one returned its streams.

use std::{
    sync::{Arc, Weak},
    thread::{self, ThreadId},
};

use cuda_core::{Device, Misuse, Result, internals::attachment};
use parking_lot::Mutex;

use crate::policy::{SchedulingPolicy, StreamPoolRoundRobin};

type Make = dyn Fn(&Device) -> Result<Arc<dyn SchedulingPolicy>> + Send + Sync;

#[derive(Default)]
struct DevicePolicy(Mutex<State>);

#[derive(Default)]
struct State {
    make: Option<Arc<Make>>,
    live: Option<Weak<dyn SchedulingPolicy>>,
    /// The number of changes of `make`.
    changes: u64,
    /// The threads that run `make`.
    making: Vec<ThreadId>,
}

/// Sets the policy on which [`on(&device)`](crate::ops::DeviceOp::on) runs operations, for all threads from now on.
///
/// `make` constructs the policy when an operation needs it, perhaps several times, because an unused policy is dropped.
/// `make` must not request the policy of the same device. A closure that holds the device, or a stream or a buffer of
/// it, keeps the device open until another policy is set.
///
/// ```
/// use cuda_async::{open_blocking, policy::{LeastLoaded, SingleStream}, runtime::set_device_policy};
/// let device = open_blocking("cpu")?;
/// set_device_policy(&device, LeastLoaded::new);
/// set_device_policy(&device, |device| LeastLoaded::with_streams(device, 8));
/// # Ok::<(), cuda_async::Error>(())
/// ```
pub fn set_device_policy<P, F>(device: &Device, make: F)
where
    P: SchedulingPolicy + 'static,
    F: Fn(&Device) -> Result<P> + Send + Sync + 'static,
{
    let make: Arc<Make> = Arc::new(move |device| Ok(Arc::new(make(device)?)));
    if let Some(DevicePolicy(state)) = attachment(device) {
        let mut state = state.lock();
        let before = (state.make.replace(make), state.live.take());
        state.changes += 1;
        drop(state);
        drop(before);
    }
}

/// Returns the policy of a device: [`StreamPoolRoundRobin`], unless [`set_device_policy`] has set another one. All
/// callers share one policy while it is in use.
///
/// # Errors
/// The error of the policy's constructor. [`Error::Misuse`](crate::Error::Misuse) if the constructor requests the
/// policy that it makes.
pub fn device_policy(device: &Device) -> Result<Arc<dyn SchedulingPolicy>> {
    let Some(DevicePolicy(shared)) = attachment(device) else { return usual(device) };
    let this_thread = thread::current().id();
    let (make, changes) = {
        let mut state = shared.lock();
        if let Some(policy) = state.live.as_ref().and_then(Weak::upgrade) {
            return Ok(policy);
        }
        if state.making.contains(&this_thread) {
            return Err(
                Misuse::PolicyRequestsItself { device: device.info().address.clone() }.into()
            );
        }
        state.making.push(this_thread);
        (state.make.clone(), state.changes)
    };
    let making = Making { shared, by: this_thread };
    // Without the lock, because `make` is user code.
    let made = make.map_or_else(|| usual(device), |make| make(device));
    drop(making);
    let made = made?;
    let mut state = shared.lock();
    if let Some(policy) = state.live.as_ref().and_then(Weak::upgrade) {
        drop(state);
        return Ok(policy);
    }
    if state.changes == changes {
        state.live = Some(Arc::downgrade(&made));
    }
    Ok(made)
}

fn usual(device: &Device) -> Result<Arc<dyn SchedulingPolicy>> {
    Ok(Arc::new(StreamPoolRoundRobin::new(device)?))
}

/// Marks that a thread runs the constructor, until it is dropped.
struct Making<'a> {
    shared: &'a Mutex<State>,
    by: ThreadId,
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        self.shared.lock().making.retain(|thread| *thread != self.by);
    }
}
