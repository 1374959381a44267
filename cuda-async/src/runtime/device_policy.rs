//! The policy of each device, for operations that are sent there.
//!
//! A policy holds streams and a stream holds its device, so a policy that a device owned would keep it open for
//! ever. What the device owns is how to make one. The policy itself lives while somebody uses it; making it again
//! takes the streams that the last one gave back.

use std::sync::{Arc, Weak};

use cuda_core::{Device, Result};
use parking_lot::Mutex;

use crate::policy::{SchedulingPolicy, StreamPoolRoundRobin};

type Make = dyn Fn(&Device) -> Result<Arc<dyn SchedulingPolicy>> + Send + Sync;

#[derive(Default)]
struct DevicePolicy(Mutex<State>);

#[derive(Default)]
struct State {
    make: Option<Arc<Make>>,
    live: Option<Weak<dyn SchedulingPolicy>>,
    /// Counts changes of `make`.
    changes: u64,
}

/// Sets what [`on(&device)`](crate::DeviceOp::on) runs operations on, from now on and in every thread.
///
/// `make` makes the policy when it is needed, which may be several times: it is dropped when nobody uses it. A
/// closure that holds the device, or a stream or a buffer of it, keeps the device open until another policy is set.
///
/// ```
/// use cuda_async::{open, policy::{LeastLoaded, SingleStream}, runtime::set_device_policy};
/// let device = open("cpu")?;
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
    if let Some(DevicePolicy(state)) = device.attachment() {
        let mut state = state.lock();
        let before = (state.make.replace(make), state.live.take());
        state.changes += 1;
        drop(state);
        drop(before);
    }
}

/// The policy of a device: [`StreamPoolRoundRobin`], unless [`set_device_policy`] said otherwise. Everybody gets the
/// same one, as long as anybody has it.
///
/// # Errors
/// What making it says.
pub fn device_policy(device: &Device) -> Result<Arc<dyn SchedulingPolicy>> {
    let Some(DevicePolicy(shared)) = device.attachment() else { return usual(device) };
    let (make, changes) = {
        let state = shared.lock();
        if let Some(policy) = state.live.as_ref().and_then(Weak::upgrade) {
            return Ok(policy);
        }
        (state.make.clone(), state.changes)
    };
    // Without the lock: it is the user's code.
    let made = make.map_or_else(|| usual(device), |make| make(device))?;
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
